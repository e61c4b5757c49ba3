//! Report on the partitions of a gathering.

use super::Kind;

/// State of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing has arrived yet.
    Waiting,
    /// Rows are arriving.
    Answering,
    /// The answer is complete.
    Answered,
    /// The row limit was reached before the partition's end.
    Enough,
    /// The partition had not ended at the deadline.
    Late,
    /// The partition refused the query, or its answer is invalid; with the reason.
    Refused(String),
    /// The partition is unavailable, or its answer broke off; with the reason.
    Down(String),
}

impl State {
    /// Name in reports.
    pub fn word(&self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Answering => "answering",
            State::Answered => "answered",
            State::Enough => "enough",
            State::Late => "late",
            State::Refused(_) => "refused",
            State::Down(_) => "down",
        }
    }

    /// Reason, if the state has one.
    pub fn why(&self) -> Option<&str> {
        match self {
            State::Refused(why) | State::Down(why) => Some(why),
            _ => None,
        }
    }

    /// Whether more rows may arrive.
    pub fn is_open(&self) -> bool {
        matches!(self, State::Waiting | State::Answering)
    }

    /// Whether all rows that the answer needs have arrived.
    pub fn is_fine(&self) -> bool {
        matches!(self, State::Answered | State::Enough)
    }
}

/// Report on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Name of the partition.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Accepted rows.
    pub rows: u64,
    /// Ignored rows: invalid, after the end or the deadline, or of a second answer.
    pub ignored: u64,
}

/// Report on a gathering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Rows of the combined answer.
    pub rows: u64,
    /// Whether every partition's answer is included.
    pub complete: bool,
    /// Partitions in the order of the map.
    pub partitions: Vec<PartitionReport>,
}

/// Reason for which a gathering failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// All partitions are required, and this one failed.
    Partition {
        /// Name of the partition.
        name: String,
        /// Its state.
        state: State,
    },
    /// No partition answered.
    Nobody,
    /// A column has values that cannot be compared with each other.
    Mixed {
        /// The column.
        column: String,
        /// Partition with the differing value.
        name: String,
        /// Kind of the earlier values, and of the differing one.
        kinds: [Kind; 2],
    },
    /// A column has a value that cannot be summed.
    NoNumber {
        /// The column.
        column: String,
        /// Kind of that value.
        kind: Kind,
    },
    /// A result does not fit 64 bits.
    Overflow {
        /// The column.
        column: String,
    },
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Partition { name, state } => {
                write!(f, "partition {name:?} is {}", state.word())?;
                match state.why() {
                    Some(why) => write!(f, ": {why}"),
                    None => Ok(()),
                }
            }
            Failure::Nobody => write!(f, "no partition answered"),
            Failure::Mixed {
                column,
                name,
                kinds: [others, its],
            } => write!(
                f,
                "column {column:?} has a {its} in partition {name:?}, and a {others} before"
            ),
            Failure::NoNumber { column, kind } => {
                write!(f, "column {column:?} has no sum: it has a {kind}")
            }
            Failure::Overflow { column } => {
                write!(f, "the sum of column {column:?} is beyond 64 bits")
            }
        }
    }
}

impl std::error::Error for Failure {}
