//! How it was with each partition.

use super::Kind;

/// How it is with a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing came yet.
    Waiting,
    /// Rows come.
    Answering,
    /// Its answer is whole.
    Answered,
    /// The limit was reached before its end.
    Enough,
    /// It had not ended at the deadline.
    Late,
    /// It would not, and why.
    Refused(String),
    /// It could not be reached, or broke off, and why.
    Down(String),
}

impl State {
    /// One word for it.
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

    /// Why, where there is more to say than the word.
    pub fn why(&self) -> Option<&str> {
        match self {
            State::Refused(why) | State::Down(why) => Some(why),
            _ => None,
        }
    }

    /// Whether more may come from it.
    pub fn is_open(&self) -> bool {
        matches!(self, State::Waiting | State::Answering)
    }

    /// Whether what was asked for is there.
    pub fn is_fine(&self) -> bool {
        matches!(self, State::Answered | State::Enough)
    }
}

/// How it was with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: State,
    /// Rows of it that were taken.
    pub rows: u64,
    /// Rows that were not: after its end, after the deadline, or of a second answer.
    pub ignored: u64,
}

/// How it was with all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Rows of the answer.
    pub rows: u64,
    /// Whether every partition's answer is in it.
    pub complete: bool,
    /// In the order of the map.
    pub partitions: Vec<PartitionReport>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// All were asked for, and this one is not there.
    Partition {
        /// Its name.
        name: String,
        /// How it is.
        state: State,
    },
    /// No partition answered.
    Nobody,
    /// A column has values that cannot be compared with each other.
    Mixed {
        /// The column.
        column: String,
        /// The partition where that was seen.
        name: String,
        /// What others have, and what it has.
        kinds: [Kind; 2],
    },
    /// A column has no sum.
    NoNumber {
        /// The column.
        column: String,
        /// What it has instead of numbers.
        kind: Kind,
    },
    /// A sum is beyond what a number can say.
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
