//! Why a scrape cannot be used.

/// The message may quote the other program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// It is malformed.
    #[error("{0}")]
    Malformed(String),
    /// It broke off.
    #[error("{0}")]
    Truncated(String),
    /// It has no series that was asked for.
    #[error("{0}")]
    NoSeries(String),
}

impl ExpositionError {
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        ExpositionError::Malformed(message.into())
    }
}
