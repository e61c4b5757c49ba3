//! Calls to agents: their requests, when the next one is due, and the backoff after failures.

use log::{info, warn};

/// Backoff after the first failure, seconds; doubles with each further one, up to [`MAX_WAIT`].
const FIRST_WAIT: f64 = 0.1;
const MAX_WAIT: f64 = 5.0;
/// Limit on the length of an agent's answer, bytes; fits a ring of 65,536 slots, no two adjacent ones of the same node.
pub const MAX_ANSWER: usize = 4 << 20;
/// A logged problem is cut to this many characters, and an error answer quoted in it to this many bytes.
const MAX_PROBLEM: usize = 300;
/// A call that has no result this long after its own timeout, seconds, was lost together with the configuration that
/// made it.
const LOST: f64 = 1.0;

/// The HTTP request of a call: `POST` if it has a body, else `GET`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Path and query.
    pub path: String,
    /// JSON; `None` for a `GET`.
    pub body: Option<Vec<u8>>,
    /// Limit on the whole call, seconds.
    pub timeout: f64,
}

impl Request {
    /// The request's headers. `agents` is the name of the agents' cluster in Envoy, and `token` a bearer token.
    pub fn headers(&self, agents: &str, token: Option<&str>) -> Vec<(&'static str, String)> {
        let method = if self.body.is_some() { "POST" } else { "GET" };
        let mut headers = vec![
            (":method", method.to_owned()),
            (":path", self.path.clone()),
            (":authority", agents.to_owned()),
        ];
        let kind = self.body.as_ref().map(|_| "application/json".to_owned());
        headers.extend(kind.map(|kind| ("content-type", kind)));
        headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
        headers
    }
}

/// Status and body of an agent's answer, or the reason why there is none.
pub type Answered<'a> = Result<(u32, &'a [u8]), String>;

/// State of one kind of call to an agent: at most one is in flight, and failures put off the next one.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Token of the call in flight.
    token: Option<u64>,
    /// Time at which the call in flight is given up, seconds.
    pub until: f64,
    /// Time at which the next call is due, seconds.
    pub due: f64,
    /// Current backoff, seconds; 0 after a success.
    wait: f64,
    /// The last problem logged; cleared by a success.
    said: Option<String>,
}

impl Call {
    /// True if `token` is that of the call in flight, which ends with this.
    pub fn takes(&mut self, token: u64) -> bool {
        let is_mine = self.token == Some(token);
        if is_mine {
            self.token = None;
        }
        is_mine
    }

    /// True if a call is to be made at `now`, seconds.
    pub fn is_due(&self, now: f64) -> bool {
        match self.token {
            Some(_) => now >= self.until,
            None => now >= self.due,
        }
    }

    /// True if there was no failure since the last success, so that the next call may be made early.
    pub fn is_well(&self) -> bool {
        self.wait == 0.0
    }

    /// Records that a call was made, with its token, or why it could not be. `timeout` is in seconds, `random` in 0..1.
    pub fn started(
        &mut self,
        purpose: &str,
        called: Result<u64, String>,
        (now, timeout): (f64, f64),
        random: f64,
    ) {
        self.token = None;
        match called {
            Ok(token) => {
                self.token = Some(token);
                self.until = now + timeout + LOST;
            }
            Err(problem) => self.failed(purpose, problem, now, random),
        }
    }

    /// Records a failure: logs the problem unless it is the last one logged, and lengthens the backoff. `random`, 0..1,
    /// spreads the next call over half to one and a half times the backoff.
    pub fn failed(&mut self, purpose: &str, problem: String, now: f64, random: f64) {
        let readable = |c: char| if c.is_control() { '?' } else { c };
        let problem: String = problem.chars().take(MAX_PROBLEM).map(readable).collect();
        if self.said.as_ref() != Some(&problem) {
            warn!("{purpose}: {problem}");
            self.said = Some(problem);
        }
        self.wait = (2.0 * self.wait).clamp(FIRST_WAIT, MAX_WAIT);
        self.due = now + self.wait * (0.5 + random);
    }

    /// Records a success: resets the backoff, and makes the next call due at `due`, seconds.
    pub fn succeeded(&mut self, purpose: &str, due: f64) {
        self.wait = 0.0;
        self.due = due;
        if self.said.take().is_some() {
            info!("{purpose}: in touch again");
        }
    }
}

/// The body of an answer with status 200.
///
/// # Errors
///
/// Describes a missing answer, another status, or a body of [`MAX_ANSWER`] bytes or more.
pub(crate) fn body(answered: Answered<'_>) -> Result<&[u8], String> {
    let (status, body) = answered?;
    if status != 200 {
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_PROBLEM)]);
        return Err(format!("an agent answers {status}: {}", text.trim()));
    }
    if body.len() >= MAX_ANSWER {
        return Err(format!("an agent answers more than {MAX_ANSWER} bytes"));
    }
    Ok(body)
}

/// Percent-encodes `text` for a query (RFC 3986).
pub(crate) fn in_query(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
