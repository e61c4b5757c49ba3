//! Which node is the primary of which object set: global adaptation of Middle-R (section 4), without I/O.
//!
//! An *object set* is what a request that writes may touch: a table, a customer, a path. Its *primary* is the one
//! node at which such requests run. Loads are given; a [`Planner`] says which sets to move so that the nodes are
//! loaded evenly, and only if that is worth it. A set moves by a hand-over: the [`Keeper`], of which there is one in
//! a cluster, says that it leaves; dispatchers, each with a [`Follower`], let nobody in and tell when theirs are
//! through; only then does the keeper name the new primary. So no two nodes run requests of one set at a time,
//! whatever messages are lost, late or doubled. There is no clock in it.
//!
//! Memory is bounded: at most [`MAX_NAMED`] sets have an entry of their own. All others share [`RESTS`] entries by
//! the hash of their names, so that every name has a primary and none has to be asked for. A name that is hot and
//! should be elsewhere than its rest gets an entry; the coldest lose theirs, which is counted.

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

/// A node, by a number that is never given to another one.
pub type NodeId = u32;
/// A dispatcher, by a number that is never given to another one, nor to the same one after a restart.
pub type DispatcherId = u64;

/// The highest version: what is a whole number for Redis' and JSON's numbers, too.
pub const MAX_VERSION: u64 = (1 << 53) - 1;
/// Versions of one keeper's term, as in the function library. A term begins with a later block of so many.
pub const TERM_VERSIONS: u64 = 1 << 14;
/// As many later at most. So many that two terms of which neither knows the other hardly ever draw the same.
const MAX_SKIP: u64 = 1 << 20;

/// The first version of a term that goes on from this one: of a later block, by `lot`, so that versions that were lost
/// have no namesakes. `None` where there are none left.
pub fn first_of_term(version: u64, lot: u64) -> Option<u64> {
    let first = (version / TERM_VERSIONS + 1 + lot % MAX_SKIP) * TERM_VERSIONS;
    (first + TERM_VERSIONS - 1 <= MAX_VERSION).then_some(first)
}

/// Entries that names without one of their own share.
pub const RESTS: u16 = 64;
/// Object sets with an entry of their own, at most.
pub const MAX_NAMED: usize = 16_384;
/// Dispatchers, at most.
pub const MAX_DISPATCHERS: usize = 4096;

/// Why a text names no object set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It is empty.
    Empty,
    /// It is longer than [`MAX_NAME_BYTES`]; this many bytes.
    Long(usize),
    /// The byte at this place is not a visible ASCII character.
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

/// Refuses what cannot be the name of an object set: 1 to [`MAX_NAME_BYTES`] visible ASCII characters can.
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

/// The entry that a name shares with others while it has none of its own.
pub fn rest_of(name: &str) -> u16 {
    (md5_word(name.as_bytes()) % u32::from(RESTS)) as u16
}
