//! The error of a failed measurement.

use plimsoll_exposition::ExpositionError;
use plimsoll_net::{FetchError, printable};

/// All values of [`SourceError::kind`].
pub const KINDS: [&str; 12] = [
    "bind",
    "buckets",
    "garbage",
    "jobs",
    "load",
    "no_series",
    "role",
    "status",
    "timeout",
    "too_large",
    "truncated",
    "unreachable",
];

/// A failed observation: its kind, as a metric label, and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// Value of the `kind` label, one of [`KINDS`].
    pub kind: &'static str,
    /// Message for logs and operators, made printable.
    pub message: String,
    /// True if the agent gave up on an open connection, which may still be waiting in the service's listen queue.
    pub left_waiting: bool,
}

impl SourceError {
    /// An error of a kind from [`KINDS`]. The message may quote untrusted input: it is made printable.
    pub fn new(kind: &'static str, message: impl AsRef<str>) -> Self {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        SourceError {
            kind,
            message: printable(message.as_ref()),
            left_waiting: false,
        }
    }

    /// True for a timeout, which may be due to overload; false for every other failure.
    pub fn is_late(&self) -> bool {
        self.kind == "timeout"
    }
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SourceError {}

impl From<FetchError> for SourceError {
    fn from(error: FetchError) -> Self {
        SourceError {
            left_waiting: error.left_waiting,
            ..SourceError::new(error.failure.label(), error.message)
        }
    }
}

impl From<ExpositionError> for SourceError {
    fn from(error: ExpositionError) -> Self {
        let kind = match &error {
            ExpositionError::Malformed(_) => "garbage",
            ExpositionError::Truncated(_) => "truncated",
            ExpositionError::NoSeries(_) => "no_series",
        };
        SourceError::new(kind, error.to_string())
    }
}
