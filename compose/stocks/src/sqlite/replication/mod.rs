//! Transactions from one master to its slaves, over TCP, one JSON message a line.

pub mod master;
mod orders;
pub mod slave;
mod wire;

use std::sync::Arc;

use master::Master;
use slave::Link;

/// Committer of a node's transactions.
#[derive(Clone)]
pub enum Ledger {
    Own(Arc<Master>),
    Masters(Arc<Link>),
}

/// This node's part in replication.
pub enum Replication {
    Master(Arc<Master>),
    Slave(Arc<Link>),
}

impl Replication {
    /// Whether this node may answer, or why not.
    pub fn ready(&self) -> Result<(), &'static str> {
        match self {
            Self::Master(_) => Ok(()),
            Self::Slave(link) => link.ready(),
        }
    }
}
