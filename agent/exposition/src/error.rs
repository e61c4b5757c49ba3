//! Errors in scrapes.

/// An error in a scrape; the message may quote the other program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// The scrape is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The scrape is truncated.
    #[error("{0}")]
    Truncated(String),
    /// The scrape has none of the selected series.
    #[error("{0}")]
    NoSeries(String),
}

impl ExpositionError {
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        ExpositionError::Malformed(message.into())
    }
}
