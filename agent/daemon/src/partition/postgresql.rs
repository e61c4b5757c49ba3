//! A query in PostgreSQL: in a transaction that only reads, prepared, and never beyond the deadline.

use std::{error::Error as StdError, future::poll_fn, pin::pin, task::Poll, time::Duration};

use plimsoll_core::gather::MOST_COLUMNS;
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tokio_postgres::{
    Client, Config, Error, NoTls,
    error::SqlState,
    types::{Format, IsNull, ToSql, Type},
};
use tokio_stream::{Stream, StreamExt};
use tokio_util::bytes::BytesMut;

use super::{Asked, MOST_ROW_BYTES, Out, Trouble};
use crate::{config::PartitionConfig, jobs::connect};

/// Milliseconds until the server sees that the agent is gone while a query has no rows.
const CHECK_MS: u32 = 500;
/// A query that is called off has so long to end before the connection is dropped.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// For the farewell to a server.
const CLOSE_WAIT: Duration = Duration::from_millis(100);
/// Until it is called off again: it may not have begun when it was.
const CANCEL_PAUSE: Duration = Duration::from_millis(100);

/// The whole answer; where the deadline passes or nobody listens any more, the database is told to stop.
pub async fn run(asked: &Asked, out: &mut Out) -> Result<(), Trouble> {
    let listener = out.chunks.clone();
    let gone = listener.closed();
    let mut gone = pin!(gone);
    let session = tokio::select! {
        opened = timeout_at(asked.deadline, Session::open(&asked.partition)) => {
            opened.map_err(|_| Trouble::Late)??
        }
        () = &mut gone => return Err(Trouble::Late),
    };
    let ended = tokio::select! {
        ended = timeout_at(asked.deadline, session.answer(asked, out)) => {
            ended.unwrap_or(Err(Trouble::Late))
        }
        () = &mut gone => Err(Trouble::Late),
    };
    match ended {
        Ok(()) => session.close().await,
        Err(_) => session.cancel(&asked.partition).await,
    }
    ended
}

struct Session {
    client: Client,
    driver: Driver,
}

/// Reads and writes; goes with the connection.
pub struct Driver(JoinHandle<Result<(), Error>>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection, under this name in the server's list.
pub async fn login(
    partition: &PartitionConfig,
    application: &str,
) -> Result<(Client, Driver), Trouble> {
    let mut login = Config::new();
    login.user(&partition.user).dbname(&partition.database);
    login.application_name(application);
    if let Some(password) = &partition.password {
        login.password(password.text());
    }
    let socket = connect(&partition.address).await.map_err(Trouble::Down)?;
    let connected = login.connect_raw(socket, NoTls).await;
    let (client, driver) = connected.map_err(|error| told(&error))?;
    Ok((client, Driver(tokio::spawn(driver))))
}

impl Session {
    async fn open(partition: &PartitionConfig) -> Result<Self, Trouble> {
        match login(partition, "plimsoll-partition").await {
            Ok((client, driver)) => Ok(Session { client, driver }),
            Err(Trouble::Refused(why)) => Err(Trouble::Down(why)),
            Err(other) => Err(other),
        }
    }

    /// With a word to the server, which would log it otherwise; nothing is committed.
    async fn close(self) {
        let Session { client, mut driver } = self;
        drop(client);
        let _ = timeout(CLOSE_WAIT, &mut driver.0).await;
    }

    /// Until the server has closed the connection.
    async fn cancel(self, partition: &PartitionConfig) {
        let Session { client, mut driver } = self;
        let token = client.cancel_token();
        drop(client);
        let cancel = async {
            loop {
                if let Ok(socket) = connect(&partition.address).await {
                    let _ = token.cancel_query_raw(socket, NoTls).await;
                }
                if timeout(CANCEL_PAUSE, &mut driver.0).await.is_ok() {
                    return;
                }
            }
        };
        let _ = timeout(CANCEL_WAIT, cancel).await;
    }

    async fn answer(&self, asked: &Asked, out: &mut Out) -> Result<(), Trouble> {
        let told = |error: Error| told(&error);
        let left = asked.deadline.saturating_duration_since(Instant::now());
        let begin = format!(
            "BEGIN READ ONLY; SET LOCAL client_connection_check_interval = {CHECK_MS}; \
             SET LOCAL statement_timeout = {}",
            left.as_millis().max(1)
        );
        self.client.batch_execute(&begin).await.map_err(told)?;
        // By itself, so that it is one whole statement and nothing that only becomes one inside of another.
        let plain = self.client.prepare(&asked.sql).await.map_err(told)?;
        let names: Vec<&str> = plain.columns().iter().map(|it| it.name()).collect();
        if !(1..=MOST_COLUMNS).contains(&names.len()) {
            let count = names.len();
            return Err(Trouble::Refused(format!(
                "the query has {count} columns: must have 1 to {MOST_COLUMNS}"
            )));
        }
        let wanted = plain.params().len();
        if wanted != asked.parameters.len() {
            let given = asked.parameters.len();
            return Err(Trouble::Refused(format!(
                "the query has {wanted} parameters, {given} were given"
            )));
        }
        let as_lines = as_lines(&asked.sql, names.len(), asked.limit);
        let statement = self.client.prepare(&as_lines).await.map_err(told)?;
        let parameters: Vec<Text> = asked.parameters.iter().map(Text::new).collect();
        let rows = self.client.query_raw(&statement, parameters).await;
        let mut rows = pin!(rows.map_err(told)?);
        out.columns(&names);
        loop {
            let ready = poll_fn(|context| match rows.as_mut().poll_next(context) {
                Poll::Ready(row) => Poll::Ready(Some(row)),
                Poll::Pending => Poll::Ready(None),
            });
            let row = match ready.await {
                Some(row) => row,
                None => {
                    // Before the first row it may still be refused as a whole.
                    if out.rows > 0 {
                        out.flush().await;
                    }
                    rows.next().await
                }
            };
            let Some(row) = row else { break };
            let row = row.map_err(told)?;
            let line: Option<&str> = row.try_get(0).map_err(told)?;
            let Some(line) = line else {
                let number = out.rows + 1;
                return Err(Trouble::Refused(format!(
                    "row {number} has more than {MOST_ROW_BYTES} bytes as JSON"
                )));
            };
            out.row(line.as_bytes()).await;
        }
        out.end().await;
        Ok(())
    }
}

/// Each row as one JSON array, null where that is too long; without the fence it would be made twice.
fn as_lines(sql: &str, columns: usize, limit: Option<u64>) -> String {
    let names: Vec<String> = (0..columns).map(|at| format!("c{at}")).collect();
    let names = names.join(", ");
    let limit = limit.map_or(String::new(), |limit| format!(" LIMIT {limit}"));
    let sql = sql.trim_end().trim_end_matches(';');
    format!(
        "SELECT CASE WHEN pg_catalog.octet_length(line) <= {MOST_ROW_BYTES} THEN line END FROM \
         (SELECT pg_catalog.json_build_array({names})::text FROM (\n{sql}\n) AS asked ({names}) \
         OFFSET 0{limit}) AS lines (line)"
    )
}

/// A parameter as text: the database reads it as the type that the query has there.
#[derive(Debug)]
struct Text(Option<String>);

impl Text {
    fn new(value: &Value) -> Self {
        Text(match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
    }
}

impl ToSql for Text {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        Ok(match &self.0 {
            None => IsNull::Yes,
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                IsNull::No
            }
        })
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    tokio_postgres::types::to_sql_checked!();
}

fn told(error: &Error) -> Trouble {
    let Some(said) = error.as_db_error() else {
        // Its own text leaves out the cause.
        let cause = error.source().map(|cause| format!(": {cause}"));
        return Trouble::Down(format!("{error}{}", cause.unwrap_or_default()));
    };
    let code = said.code();
    if *code == SqlState::QUERY_CANCELED {
        return Trouble::Late;
    }
    let text = format!("{} ({})", said.message(), code.code());
    // Connections, resources, operators, the system.
    match ["08", "53", "57", "58", "XX"]
        .iter()
        .any(|class| code.code().starts_with(class))
    {
        true => Trouble::Down(text),
        false => Trouble::Refused(text),
    }
}
