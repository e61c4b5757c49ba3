//! State and control of one node: a control loop per service, operators' overrides and learned figures; and the state
//! shared through Redis: the ring and the table of primaries.

pub mod control_loop;
pub mod functions;
pub mod history;
mod kept_file;
pub mod learned;
pub mod overrides;
pub mod placement;
pub mod ring;
pub mod state;
