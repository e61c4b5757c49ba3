//! Calls to agents: when they are due, what they say, and how long to wait after a failure.

use log::{info, warn};

/// First wait after a failure, seconds; doubles up to [`MAX_WAIT`].
const FIRST_WAIT: f64 = 0.1;
const MAX_WAIT: f64 = 5.0;
/// The longest answer that is read: a ring of 65,536 slots, all of them in runs of one.
pub const MAX_ANSWER: usize = 4 << 20;
const MAX_PROBLEM: usize = 300;
/// A call that was not answered this long after its own timeout went with the configuration that made it,
/// seconds.
const LOST: f64 = 1.0;

/// A call to make: `POST` where there is a body, else `GET`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// With the query.
    pub path: String,
    /// JSON.
    pub body: Option<Vec<u8>>,
    /// For the whole of it, seconds.
    pub timeout: f64,
}

impl Request {
    /// Its headers; `agents` is what Envoy calls them.
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

/// An agent's answer, status and body, or why there is none.
pub type Answered<'a> = Result<(u32, &'a [u8]), String>;

/// A call to an agent: when it is due, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Call {
    token: Option<u64>,
    /// It is not waited for any longer.
    pub until: f64,
    /// The next one is due.
    pub due: f64,
    wait: f64,
    said: Option<String>,
}

impl Call {
    /// Whether this is the answer that is waited for; it is not any longer.
    pub fn takes(&mut self, token: u64) -> bool {
        let is_mine = self.token == Some(token);
        if is_mine {
            self.token = None;
        }
        is_mine
    }

    /// Whether it is to be made now.
    pub fn is_due(&self, now: f64) -> bool {
        match self.token {
            Some(_) => now >= self.until,
            None => now >= self.due,
        }
    }

    /// Whether the last one was answered well, so that the next one may be made early.
    pub fn is_well(&self) -> bool {
        self.wait == 0.0
    }

    /// It was made, or could not be.
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

    /// There is no good answer: a problem is told once, and the wait grows.
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

    /// There is a good answer; the next call is due then.
    pub fn succeeded(&mut self, purpose: &str, due: f64) {
        self.wait = 0.0;
        self.due = due;
        if self.said.take().is_some() {
            info!("{purpose}: in touch again");
        }
    }
}

/// The body of a good answer; what is wrong with it otherwise.
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

/// As a part of a query (RFC 3986).
pub(crate) fn in_query(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
