//! Client of `POST /v1/partition-query`, of an agent or a service with the same protocol.

mod lines;
mod plain;

use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, USER_AGENT},
};
use plimsoll_net::Caller;
use plimsoll_wire::PartitionQuery;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::answer::MAX_COLUMNS;

pub use lines::{Lines, Picker, TooLong, Word};

/// Maximum length of a line, in bytes.
pub const MAX_ROW_BYTES: usize = 1 << 20;
/// Maximum length of a refusal's body, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// Read buffer of a connection, and maximum length of a head, in bytes.
pub const BUFFER_BYTES: usize = 128 << 10;

/// Time for the caller to take the last line of an answer that is late or broke off.
pub const LAST_WORD: Duration = Duration::from_secs(1);

/// Header with the number of agents that a query has come through; 0 if absent.
pub const HOPS: &str = "plimsoll-hops";

/// A query to a partition.
#[derive(Debug)]
pub struct Question<'a> {
    /// Name of the partition.
    pub partition: &'a str,
    /// Name of the query, unless it is given as `sql`.
    pub query: Option<&'a str>,
    /// SQL of the query, in place of a name.
    pub sql: Option<&'a str>,
    /// Parameters: JSON scalars.
    pub parameters: &'a [Value],
    /// Maximum number of rows.
    pub limit: Option<u64>,
}

impl Question<'_> {
    /// The body with the time left until the deadline; `None` if the deadline is exceeded.
    pub fn body(&self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let body = PartitionQuery {
            partition: self.partition.into(),
            query: self.query.map(Into::into),
            sql: self.sql.map(Into::into),
            parameters: self.parameters.into(),
            limit: self.limit,
            deadline_seconds: left.as_secs_f64(),
        };
        if left.is_zero() {
            return None;
        }
        serde_json::to_string(&body).ok()
    }
}

/// HTTP request for a query.
pub fn request(
    uri: &str,
    program: &str,
    caller: &Caller,
    body: String,
) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let program = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
    let request = Request::post(uri)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, program);
    caller.authorize(request).body(Full::from(body))
}

/// Reason for which there is no complete answer.
#[derive(Debug)]
pub enum Fault {
    /// Deadline exceeded.
    Late,
    /// The server refused the query, or its answer is malformed.
    Refused {
        /// Status of a refusal; `None` for a malformed answer.
        status: Option<StatusCode>,
        /// Message for the operator.
        problem: String,
    },
    /// The server is unavailable, or its answer broke off; with the reason.
    Down(String),
}

impl Fault {
    /// Fault for a malformed answer.
    pub fn refused(problem: impl Into<String>) -> Self {
        Fault::Refused {
            status: None,
            problem: problem.into(),
        }
    }

    /// Fault for the `error` line of an answer.
    pub fn said(state: &str, problem: String) -> Self {
        match state {
            "late" => Fault::Late,
            "refused" => Fault::refused(problem),
            _ => Fault::Down(problem),
        }
    }
}

/// Answer whose first line has been read.
#[derive(Debug)]
pub struct Begun {
    /// Columns from the first line.
    pub columns: Vec<String>,
    /// Lines received together with it.
    pub lines: Lines,
    /// Rest of the body.
    pub body: Incoming,
}

/// Reads the head and the first line.
pub async fn begin(answer: Response<Incoming>) -> Result<Begun, Fault> {
    let (head, mut body) = answer.into_parts();
    if head.status != StatusCode::OK {
        return Err(refusal(head.status, body).await);
    }
    let mut lines = Lines::default();
    let too_long = |TooLong| Fault::refused("a line is too long");
    let first = loop {
        match lines.next_line().map_err(too_long)? {
            Some(line) => break line,
            None => lines.push(first(&mut body).await?),
        }
    };
    let Ok(Word::Columns(columns)) = serde_json::from_slice(&first) else {
        return Err(Fault::refused("does not begin with its columns"));
    };
    if !(1..=MAX_COLUMNS).contains(&columns.len()) {
        let count = columns.len();
        let problem = format!("{count} columns: must be 1 to {MAX_COLUMNS}");
        return Err(Fault::refused(problem));
    }
    Ok(Begun {
        columns,
        lines,
        body,
    })
}

/// Next chunk of an answer without any row so far; its end is a fault.
pub async fn first(body: &mut Incoming) -> Result<Bytes, Fault> {
    match more(body).await {
        Ok(Some(data)) => Ok(data),
        Ok(None) => Err(Fault::Down("broke off before its first row".to_owned())),
        Err(error) => Err(Fault::Down(format!("broke off: {error}"))),
    }
}

/// Next chunk of an answer; `None` at its end.
pub async fn more(body: &mut Incoming) -> hyper::Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        // Other frames are trailers.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Number of rows according to an answer's last line.
pub fn ending(line: &[u8]) -> Result<u64, Fault> {
    match serde_json::from_slice(line) {
        Ok(Word::End { rows }) => Ok(rows),
        Ok(Word::Error { state, problem }) => Err(Fault::said(&state, problem)),
        _ => Err(Fault::refused("a line is neither a row nor its end")),
    }
}

async fn refusal(status: StatusCode, body: Incoming) -> Fault {
    #[derive(Deserialize)]
    struct Refused {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        state: String,
        problem: String,
    }
    let said = Limited::new(body, MAX_REFUSAL_BYTES).collect().await;
    let said = said.map(|said| said.to_bytes()).unwrap_or_default();
    let Ok(Refused { error }) = serde_json::from_slice(&said) else {
        return Fault::Down(format!("answers with status {status}"));
    };
    match Fault::said(&error.state, error.problem) {
        Fault::Refused { problem, .. } => Fault::Refused {
            status: Some(status),
            problem,
        },
        other => other,
    }
}

/// Message of an error with its causes, which hyper's messages omit.
pub fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
