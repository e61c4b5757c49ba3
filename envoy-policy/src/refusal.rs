//! The proxy's own answers to requests that it refuses.

use crate::primaries::Reason;

/// The answer to a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u32,
    /// Body, plain text.
    pub body: &'static str,
    reason: &'static str,
    retry_after: Option<u32>,
}

impl Refusal {
    /// No node may take the request; `retry_after` is in seconds.
    pub fn full(retry_after: u32) -> Self {
        Refusal {
            status: 503,
            body: "no node may carry more\n",
            reason: "full",
            retry_after: Some(retry_after),
        }
    }

    /// The request has no primary; `retry_after` is in seconds.
    pub fn no_primary(reason: Reason, retry_after: u32) -> Self {
        match reason {
            Reason::Name => Refusal {
                status: 400,
                body: "no name of an object set\n",
                reason: reason.word(),
                retry_after: None,
            },
            _ => Refusal::unplaced(reason.word(), retry_after),
        }
    }

    /// The request has a primary, but the proxy cannot route it there; `retry_after` is in seconds.
    pub fn lost(retry_after: u32) -> Self {
        Refusal::unplaced("lost", retry_after)
    }

    fn unplaced(reason: &'static str, retry_after: u32) -> Self {
        Refusal {
            status: 503,
            body: "no primary now\n",
            reason,
            retry_after: Some(retry_after),
        }
    }

    /// Headers of the answer; the status is not among them.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("content-type", "text/plain".to_owned()),
            ("plimsoll-reason", self.reason.to_owned()),
        ];
        let seconds = self.retry_after.map(|seconds| seconds.to_string());
        headers.extend(seconds.map(|seconds| ("retry-after", seconds)));
        headers
    }
}
