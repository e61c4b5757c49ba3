//! Why something that a service's loop looks at cannot be seen.

use plimsoll_exposition::ExpositionError;
use plimsoll_net::{FetchError, printable};

/// Every kind of [`SourceError`].
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

/// Why there is no observation: a label value and the whole story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// The `kind` label.
    pub kind: &'static str,
    /// For people.
    pub message: String,
    /// Whether the connection was open when the agent gave up: it may wait for the service still.
    pub left_waiting: bool,
}

impl SourceError {
    /// An error of this kind. The message may quote what a peer sent.
    pub fn new(kind: &'static str, message: impl AsRef<str>) -> Self {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        SourceError {
            kind,
            message: printable(message.as_ref()),
            left_waiting: false,
        }
    }

    /// Whether it was not answered in time, as by an overloaded service, rather than not at all.
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
