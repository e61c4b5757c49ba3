//! The other side of `POST /v1/partition-query`: how an agent is asked, or a service that answers as one.

mod lines;
mod plain;

use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use plimsoll_core::gather::MAX_COLUMNS;
use plimsoll_wire::PartitionQuery;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

pub use lines::{Lines, Picker, TooLong, Word};

/// Of a line, so that nobody has to hold a longer one.
pub const MAX_ROW_BYTES: usize = 1 << 20;
/// Of the body of a refusal.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// What is read of a connection at once; no head may be longer.
pub const BUFFER_BYTES: usize = 128 << 10;

/// For who asked to take the end of an answer that is late or broke off.
pub const LAST_WORD: Duration = Duration::from_secs(1);

/// The header that tells how many agents a question came through; none where it is not there.
pub const HOPS: &str = "plimsoll-hops";

/// What is asked.
#[derive(Debug)]
pub struct Question<'a> {
    /// Whose rows.
    pub partition: &'a str,
    /// By name.
    pub query: Option<&'a str>,
    /// In its place.
    pub sql: Option<&'a str>,
    /// Values that JSON has.
    pub parameters: &'a [Value],
    /// No more rows than this.
    pub limit: Option<u64>,
}

impl Question<'_> {
    /// The body, with what is left until the deadline; none where nothing is.
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

/// A question on its way, from this program.
pub fn request(
    uri: &str,
    program: &str,
    token: Option<&str>,
    body: String,
) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let program = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
    let mut request = Request::post(uri)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, program);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(Full::from(body))
}

/// Why there is no answer, or no whole one.
#[derive(Debug)]
pub enum Fault {
    /// Not before the deadline.
    Late,
    /// Who was asked would not, or does not answer as it must.
    Refused {
        /// Where it was a refusal as such.
        status: Option<StatusCode>,
        /// For people.
        problem: String,
    },
    /// It is not there, or broke off.
    Down(String),
}

impl Fault {
    /// An answer that is none.
    pub fn refused(problem: impl Into<String>) -> Self {
        Fault::Refused {
            status: None,
            problem: problem.into(),
        }
    }

    /// What was said in the place of an end.
    pub fn said(state: &str, problem: String) -> Self {
        match state {
            "late" => Fault::Late,
            "refused" => Fault::refused(problem),
            _ => Fault::Down(problem),
        }
    }
}

/// An answer of which the first line is read.
#[derive(Debug)]
pub struct Begun {
    /// That line.
    pub columns: Vec<String>,
    /// What came with it.
    pub lines: Lines,
    /// The rest.
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

/// More of an answer that has no row yet.
pub async fn first(body: &mut Incoming) -> Result<Bytes, Fault> {
    match more(body).await {
        Ok(Some(data)) => Ok(data),
        Ok(None) => Err(Fault::Down("broke off before its first row".to_owned())),
        Err(error) => Err(Fault::Down(format!("broke off: {error}"))),
    }
}

/// More of an answer; none at its end.
pub async fn more(body: &mut Incoming) -> hyper::Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        // Else they are trailers.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// How many rows there were, by a line that is none.
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

/// An error with its causes, which hyper's own texts leave out.
pub fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
