//! Errors of the keeper.

use super::super::{DispatcherId, MAX_DISPATCHERS, MAX_NAMED, NameError, NodeId, ObjectSet};

/// Error of a keeper's method, which then has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperError {
    /// The dispatcher has not joined, or is considered gone: it must suspend its follower and join under a new number.
    Unknown(DispatcherId),
    /// The dispatcher has already joined.
    Joined(DispatcherId),
    /// There are already [`MAX_DISPATCHERS`] dispatchers.
    TooMany,
    /// The reported version is newer than the table's.
    Ahead {
        /// Version of the keeper's table.
        have: u64,
        /// Reported version.
        told: u64,
    },
    /// The object set has no entry.
    NoEntry(ObjectSet),
    /// The node is down, and cannot become a primary.
    Down(NodeId),
    /// Invalid name of an object set.
    Name(NameError),
    /// There are already [`MAX_NAMED`] names with entries of their own.
    Full,
}

impl std::fmt::Display for KeeperError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeeperError::Unknown(id) => write!(f, "dispatcher {id} has not joined"),
            KeeperError::Joined(id) => write!(f, "dispatcher {id} has already joined"),
            KeeperError::TooMany => write!(f, "too many dispatchers, maximum {MAX_DISPATCHERS}"),
            KeeperError::Ahead { have, told } => {
                write!(f, "unknown version {told}: the table is at {have}")
            }
            KeeperError::NoEntry(ObjectSet::Named(name)) => {
                write!(f, "object set {name} has no entry of its own")
            }
            KeeperError::NoEntry(ObjectSet::Rest(rest)) => {
                write!(f, "rest {rest}, maximum {}", super::super::RESTS - 1)
            }
            KeeperError::Down(node) => write!(f, "node {node} is down"),
            KeeperError::Name(error) => error.fmt(f),
            KeeperError::Full => {
                write!(f, "too many object sets with entries, maximum {MAX_NAMED}")
            }
        }
    }
}

impl std::error::Error for KeeperError {}
