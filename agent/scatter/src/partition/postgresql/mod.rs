//! Queries to PostgreSQL: prepared, in a read-only transaction, and cancelled at the deadline.

mod session;

use std::{error::Error as StdError, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{Format, IsNull, ToSql, Type};
use tokio_stream::{Stream, StreamExt};
use tokio_util::bytes::BytesMut;

use super::{Asked, Out, Trouble};
use crate::client::MAX_ROW_BYTES;
use session::{Broken, Prepared};
pub use session::{Driver, Session, login, probe};

type Pool = super::pool::Pool<Session>;

/// State of the connection after a query.
#[derive(Debug)]
pub enum Left {
    /// There is no connection.
    Nothing,
    /// The server has ended the query.
    AtRest(Arc<Pool>, Session),
    /// The query may still be running.
    Amid(Arc<Pool>, Session),
}

impl Left {
    /// Ends the query completely, and keeps the connection if possible.
    pub async fn finish(self) {
        match self {
            Left::Nothing => {}
            Left::AtRest(pool, session) => {
                if session.reset().await {
                    pool.put(session);
                }
            }
            Left::Amid(pool, session) => session.cancel(&pool.server).await,
        }
    }
}

/// Runs a query until it is complete, the deadline is exceeded or the caller leaves.
pub async fn run(pool: &Arc<Pool>, asked: &Asked, out: &mut Out) -> (Left, Result<(), Trouble>) {
    let gone = out.gone();
    let mut session = None;
    let late = || Err(Broken::amid(Trouble::Late));
    let ended = tokio::select! {
        ended = timeout_at(asked.deadline, attempts(pool, &mut session, asked, out)) => {
            ended.unwrap_or_else(|_| late())
        }
        () = gone => late(),
    };
    let left = match (session, &ended) {
        (None, _) => Left::Nothing,
        (Some(session), Err(broken)) if !broken.is_at_rest => Left::Amid(Arc::clone(pool), session),
        (Some(session), _) => Left::AtRest(Arc::clone(pool), session),
    };
    (left, ended.map_err(|broken| broken.trouble))
}

/// Runs a query, with a retry if a kept connection or statement is no longer valid.
async fn attempts(
    pool: &Pool,
    place: &mut Option<Session>,
    asked: &Asked,
    out: &mut Out,
) -> Result<(), Broken> {
    let session = place.insert(pool.take().await.map_err(Broken::amid)?);
    let was_kept = session.is_used();
    let Err(broken) = answer(session, asked, out).await else {
        return Ok(());
    };
    if broken.is_down() {
        pool.clear();
    }
    if !(was_kept && (broken.is_down() || broken.is_stale) && out.begin_again()) {
        return Err(broken);
    }
    let session = match broken.is_stale && session.renew().await {
        true => session,
        false => place.insert(pool.open().await.map_err(Broken::amid)?),
    };
    answer(session, asked, out).await
}

async fn answer(session: &mut Session, asked: &Asked, out: &mut Out) -> Result<(), Broken> {
    let left = asked.deadline.saturating_duration_since(Instant::now());
    session.begin(left).await?;
    let prepared = session.prepared(&asked.text, asked.is_named).await?;
    let streamed = stream(session, &prepared, asked, out).await;
    streamed.map_err(|broken| broken.of(&prepared))
}

async fn stream(
    session: &Session,
    prepared: &Prepared,
    asked: &Asked,
    out: &mut Out,
) -> Result<(), Broken> {
    let (wanted, given) = (prepared.parameters, asked.parameters.len());
    if wanted != given {
        return Err(Broken::at_rest(format!(
            "the query has {wanted} parameters, {given} were given"
        )));
    }
    let limit = Text(asked.limit.map(|limit| limit.to_string()));
    let parameters = asked.parameters.iter().map(Text::new).chain([limit]);
    let parameters: Vec<Text> = parameters.collect();
    let rows = session.client.query_raw(&prepared.statement, parameters);
    let mut rows = pin!(rows.await?);
    out.columns(&prepared.columns);
    loop {
        let ready = poll_fn(|context| match rows.as_mut().poll_next(context) {
            Poll::Ready(row) => Poll::Ready(Some(row)),
            Poll::Pending => Poll::Ready(None),
        });
        let row = match ready.await {
            Some(row) => row,
            None => {
                // Before the first row the whole query may still be refused.
                if out.rows() > 0 {
                    out.flush().await;
                }
                rows.next().await
            }
        };
        let Some(row) = row else { break };
        let row = row?;
        let line: Option<&str> = row.try_get(0)?;
        let Some(line) = line else {
            let number = out.rows() + 1;
            return Err(Broken::amid(Trouble::Refused(format!(
                "row {number} has more than {MAX_ROW_BYTES} bytes as JSON"
            ))));
        };
        out.row(line.as_bytes()).await;
    }
    out.end().await;
    Ok(())
}

/// Parameter in text format, which the database parses as the type that the query needs.
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
