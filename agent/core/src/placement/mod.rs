//! Placement of object sets on primaries: the global adaptation of Middle-R (section 4), without I/O.
//!
//! An *object set* is the data that a writing request may touch: a table, a customer, a path. Its *primary* is the one
//! node at which such requests run. Given the loads, a [`Planner`] decides which sets to move for an even load, and
//! whether that is worth it. A set moves in a handover: the cluster's one [`Keeper`] announces that it leaves;
//! dispatchers, each with a [`Follower`], admit no more of its requests, and report when theirs have ended; only then
//! does the keeper name the new primary. So no two nodes run requests of one set at a time, whatever messages are
//! lost, late or duplicated. No clock is involved.
//!
//! Memory is bounded: at most [`MAX_NAMED`] sets have an entry of their own. All others share [`RESTS`] entries, the
//! *rests*, by the hash of their names, so that every name has a primary without a lookup elsewhere. A hot name that
//! should be at a different node than its rest gets an entry; the coldest names lose theirs, which is counted.

mod assign;
mod follower;
mod keeper;
mod loads;
mod plan;
mod replication;
mod steward;
mod table;

pub use assign::{branch_and_bound, greedy, improve, variance};
pub use follower::{Follower, Route, Ticket};
pub use keeper::{Ended, Keeper, KeeperError, News};
pub use loads::SetLoads;
pub use plan::{Change, PlanReason, PlanSettings, Planned, Planner, SetLoad};
pub use replication::{NoHold, Replication};
pub use steward::{Heard, NodeNow, Reading, Step, Steward, StewardSettings};
pub use table::{Delta, Gap, NoSet, ObjectSet, State, Table};

use crate::{MAX_NAME_BYTES, md5_word};

/// Number of a node, never reused for another one.
pub type NodeId = u32;
/// Number of a dispatcher, never reused for another one, nor for the same one after a restart.
pub type DispatcherId = u64;

/// Maximum version: the largest integer that Redis' and JSON's numbers represent exactly.
pub const MAX_VERSION: u64 = (1 << 53) - 1;
/// Number of versions in one keeper's term, as in the function library. Each term begins with a later block of these.
pub const TERM_VERSIONS: u64 = 1 << 14;
/// Maximum blocks that a term skips: large enough that two terms unaware of each other hardly ever draw the same.
const MAX_SKIP: u64 = 1 << 20;

/// First version of a term that continues from `version`: in a later block, chosen by the random `lot`, so that lost
/// versions are not reused. `None` if no versions are left.
pub fn first_of_term(version: u64, lot: u64) -> Option<u64> {
    let first = (version / TERM_VERSIONS + 1 + lot % MAX_SKIP) * TERM_VERSIONS;
    (first + TERM_VERSIONS - 1 <= MAX_VERSION).then_some(first)
}

/// Number of rests: entries shared by names without one of their own.
pub const RESTS: u16 = 64;
/// Maximum object sets with an entry of their own.
pub const MAX_NAMED: usize = 16_384;
/// Maximum dispatchers of a cluster.
pub const MAX_DISPATCHERS: usize = 4096;

/// Reason for which the name of an object set is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// The name's length in bytes is above [`MAX_NAME_BYTES`].
    Long(usize),
    /// The byte at this offset is not a visible ASCII character.
    Character(usize),
}

impl std::fmt::Display for NameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NameError::Empty => write!(f, "the name of an object set must not be empty"),
            NameError::Long(bytes) => write!(
                f,
                "the name of an object set has {bytes} bytes: must be at most {MAX_NAME_BYTES}"
            ),
            NameError::Character(at) => write!(
                f,
                "byte {at} in the name of an object set is not visible ASCII"
            ),
        }
    }
}

impl std::error::Error for NameError {}

/// Checks the name of an object set: 1 to [`MAX_NAME_BYTES`] visible ASCII characters.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::Long(name.len()));
    }
    match name.bytes().position(|byte| !byte.is_ascii_graphic()) {
        Some(at) => Err(NameError::Character(at)),
        None => Ok(()),
    }
}

/// Rest that a name belongs to without an entry of its own, below [`RESTS`].
pub fn rest_of(name: &str) -> u16 {
    (md5_word(name.as_bytes()) % u32::from(RESTS)) as u16
}
