//! The ring: a table of `H` slots on the hash circle, each with one owner.
//!
//! Chronos-C gives node i `H_i = f_i · H` points of the circle. Here this is literal: shares are exact to one slot, a
//! lookup is one array read, and a change of shares moves only the losers' surplus. The table depends on its past, so
//! it is shared as a version.

mod hash;
mod sizes;
mod table;

pub use hash::{key_hash, probe_hash, slot_of_hash};
pub use sizes::{SizesError, ring_sizes, ring_weights, worth_moving};
pub use table::{Candidates, RingDelta, RingError, RingTable};

/// Default number of slots.
pub const DEFAULT_SLOTS: u32 = 16_384;
/// Maximum nodes of a ring: an owner is one byte, one value of which is [`NOBODY`].
pub const MAX_NODES: usize = 255;
/// Maximum slots; a table of this size has a megabyte.
pub const MAX_SLOTS: u32 = 1 << 20;
/// Owner of a slot while no node takes work.
pub const NOBODY: u8 = u8::MAX;
