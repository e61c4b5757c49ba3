//! What an agent knows of its node and decides: one loop a service, what operators set and what was learned; and what it shares
//! through Redis: the ring and the table of primaries.

pub mod control_loop;
pub mod functions;
mod kept_file;
pub mod learned;
pub mod overrides;
pub mod placement;
pub mod ring;
pub mod state;
