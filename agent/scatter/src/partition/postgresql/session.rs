//! One connection to a partition's PostgreSQL, with the statements prepared there.

use std::{error::Error as StdError, time::Duration};

use plimsoll_core::gather::MAX_COLUMNS;
use plimsoll_net::connect;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, Config, Error, NoTls, Statement, error::SqlState};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    client::MAX_ROW_BYTES,
    partition::{PartitionDatabase, Trouble, kept::Statements, pool::Pooled},
};

/// The server looks every 500 ms whether the agent is still there while a query has no rows; and it plans a
/// query for its parameters each time, as it does one that is asked once.
const OPTIONS: &str =
    "-c client_connection_check_interval=500 -c plan_cache_mode=force_custom_plan";
/// A query that is called off has so long to end before the connection is dropped.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// For the farewell to a server.
const CLOSE_WAIT: Duration = Duration::from_millis(100);
/// Until it is called off again: it may not have begun when it was.
const CANCEL_PAUSE: Duration = Duration::from_millis(100);
/// To end a transaction.
const RESET_WAIT: Duration = Duration::from_secs(1);
/// What a rollback does not undo is undone by name.
const RESET: &str = "ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()";

/// See above.
#[derive(Debug)]
pub struct Session {
    /// To ask by.
    pub client: Client,
    driver: Driver,
    statements: Statements<Prepared>,
    is_used: bool,
}

/// A query whose rows come as lines.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Takes the query's parameters and, after them, the limit.
    pub statement: Statement,
    /// Of the query.
    pub columns: Vec<String>,
    /// Parameters of the query.
    pub parameters: usize,
    is_kept: bool,
}

/// Reads and writes; goes with the connection.
pub type Driver = AbortOnDropHandle<Result<(), Error>>;

/// A connection, under this name in the server's list and with these settings.
pub async fn login(
    database: &PartitionDatabase,
    application: &str,
    options: &str,
) -> Result<(Client, Driver), Trouble> {
    let mut login = Config::new();
    login.user(&database.user).dbname(&database.name);
    login.application_name(application).options(options);
    if let Some(password) = &database.password {
        login.password(password.text());
    }
    let socket = connect(&database.address).await.map_err(Trouble::Down)?;
    let connected = login.connect_raw(socket, NoTls).await;
    let (client, driver) = connected.map_err(|error| told(&error))?;
    Ok((client, Driver::new(tokio::spawn(driver))))
}

impl Pooled for Session {
    type Server = PartitionDatabase;

    async fn open(database: &PartitionDatabase) -> Result<Self, Trouble> {
        let opened = login(database, "plimsoll-partition", OPTIONS).await;
        let (client, driver) = opened.map_err(|trouble| Trouble::Down(trouble.to_string()))?;
        Ok(Session {
            client,
            driver,
            statements: Statements::new(),
            is_used: false,
        })
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// With a word to the server, which would log it otherwise.
    async fn close(self) {
        let Session {
            client,
            mut driver,
            statements,
            ..
        } = self;
        drop((client, statements));
        let _ = timeout(CLOSE_WAIT, &mut driver).await;
    }
}

impl Session {
    /// Whether there was a query before.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// A transaction that only reads.
    pub async fn begin(&mut self, limit: Duration) -> Result<(), Error> {
        self.is_used = true;
        let limit = limit.as_millis().max(1);
        let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {limit}");
        self.client.batch_execute(&begin).await
    }

    /// The statement for a query, prepared unless it is kept from an earlier one.
    pub async fn prepared(&mut self, sql: &str, keep: bool) -> Result<Prepared, Broken> {
        let now = Instant::now();
        if let Some(kept) = self.statements.get(sql, now) {
            let is_kept = true;
            return Ok(Prepared {
                is_kept,
                ..kept.clone()
            });
        }
        let prepared = self.prepare(sql).await?;
        if keep {
            self.statements.keep(sql, prepared.clone(), now);
        }
        Ok(prepared)
    }

    async fn prepare(&self, sql: &str) -> Result<Prepared, Broken> {
        // By itself, so that it is one whole statement and nothing that only becomes one inside of another.
        let plain = self.client.prepare(sql).await?;
        let columns: Vec<String> = plain
            .columns()
            .iter()
            .map(|it| it.name().to_owned())
            .collect();
        if !(1..=MAX_COLUMNS).contains(&columns.len()) {
            let count = columns.len();
            return Err(Broken::at_rest(format!(
                "the query has {count} columns: must have 1 to {MAX_COLUMNS}"
            )));
        }
        let parameters = plain.params().len();
        let as_lines = as_lines(sql, columns.len(), parameters + 1);
        Ok(Prepared {
            statement: self.client.prepare(&as_lines).await?,
            columns,
            parameters,
            is_kept: false,
        })
    }

    /// Ends the transaction; whether the connection is as it was before it.
    pub async fn reset(&self) -> bool {
        let reset = timeout(RESET_WAIT, self.client.batch_execute(RESET)).await;
        matches!(reset, Ok(Ok(())))
    }

    /// The same, and without its statements.
    pub async fn renew(&mut self) -> bool {
        self.statements.clear();
        self.reset().await
    }

    /// Calls the query off, until the server has closed the connection.
    pub async fn cancel(self, database: &PartitionDatabase) {
        let Session {
            client,
            mut driver,
            statements,
            ..
        } = self;
        let token = client.cancel_token();
        drop((client, statements));
        let cancel = async {
            loop {
                if let Ok(socket) = connect(&database.address).await {
                    let _ = token.cancel_query_raw(socket, NoTls).await;
                }
                if timeout(CANCEL_PAUSE, &mut driver).await.is_ok() {
                    return;
                }
            }
        };
        let _ = timeout(CANCEL_WAIT, cancel).await;
    }
}

/// Why a query ended without its last row.
#[derive(Debug)]
pub struct Broken {
    /// For who asked.
    pub trouble: Trouble,
    /// Whether the server has ended the query, and is ready for another.
    pub is_at_rest: bool,
    /// Whether a statement that was prepared for an older schema may be why.
    pub is_stale: bool,
}

impl Broken {
    /// There is nothing to be ended.
    pub fn at_rest(problem: String) -> Self {
        Broken {
            trouble: Trouble::Refused(problem),
            is_at_rest: true,
            is_stale: false,
        }
    }

    /// The query may still run.
    pub fn amid(trouble: Trouble) -> Self {
        Broken {
            trouble,
            is_at_rest: false,
            is_stale: false,
        }
    }

    /// A new statement knows the schema.
    pub fn of(self, prepared: &Prepared) -> Self {
        Broken {
            is_stale: self.is_stale && prepared.is_kept,
            ..self
        }
    }

    /// Whether the server is not there any more.
    pub fn is_down(&self) -> bool {
        matches!(self.trouble, Trouble::Down(_))
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        let trouble = told(&error);
        let code = error.code().map_or("", SqlState::code);
        let is_down = matches!(trouble, Trouble::Down(_));
        Broken {
            is_at_rest: error.as_db_error().is_some() && !is_down,
            // What is not supported, statements' names, syntax and access.
            is_stale: ["0A", "26", "42"]
                .iter()
                .any(|class| code.starts_with(class)),
            trouble,
        }
    }
}

/// Each row as one JSON array, null where that is too long; without the fence it would be made twice.
fn as_lines(sql: &str, columns: usize, limit: usize) -> String {
    let names: Vec<String> = (0..columns).map(|at| format!("c{at}")).collect();
    let names = names.join(", ");
    let sql = sql.trim_end().trim_end_matches(';');
    format!(
        "SELECT CASE WHEN pg_catalog.octet_length(line) <= {MAX_ROW_BYTES} THEN line END FROM \
         (SELECT pg_catalog.json_build_array({names})::text FROM (\n{sql}\n) AS asked ({names}) \
         OFFSET 0 LIMIT ${limit}::pg_catalog.int8) AS lines (line)"
    )
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
