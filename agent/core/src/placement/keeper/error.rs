//! What the keeper refuses.

use super::super::{DispatcherId, MAX_DISPATCHERS, MAX_NAMED, NameError, NodeId, ObjectSet};

/// What the keeper refuses. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperError {
    /// A dispatcher that has not joined, or was taken for gone: it suspends its follower and joins under a new number.
    Unknown(DispatcherId),
    /// A dispatcher joins that has joined before.
    Joined(DispatcherId),
    /// There are [`MAX_DISPATCHERS`].
    TooMany,
    /// A version that there has not been.
    Ahead {
        /// The keeper's.
        have: u64,
        /// The one that was told of.
        told: u64,
    },
    /// There is no such entry.
    NoEntry(ObjectSet),
    /// A node that is down cannot be a primary.
    Down(NodeId),
    /// No name of an object set.
    Name(NameError),
    /// There are [`MAX_NAMED`] names with entries of their own.
    Full,
}

impl std::fmt::Display for KeeperError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeeperError::Unknown(id) => write!(f, "dispatcher {id} has not joined"),
            KeeperError::Joined(id) => write!(f, "dispatcher {id} has joined before"),
            KeeperError::TooMany => write!(f, "there are {MAX_DISPATCHERS} dispatchers"),
            KeeperError::Ahead { have, told } => {
                write!(f, "version {told} has not been: the table is at {have}")
            }
            KeeperError::NoEntry(ObjectSet::Named(name)) => {
                write!(f, "object set {name} has no entry of its own")
            }
            KeeperError::NoEntry(ObjectSet::Rest(rest)) => write!(f, "there is no rest {rest}"),
            KeeperError::Down(node) => write!(f, "node {node} is down"),
            KeeperError::Name(error) => error.fmt(f),
            KeeperError::Full => write!(f, "there are {MAX_NAMED} object sets with entries"),
        }
    }
}

impl std::error::Error for KeeperError {}
