//! Adds Plimsoll to an existing haproxy.cfg: parses the file by HAProxy's grammar, and plans the edits that
//! docs/haproxy.md describes and the agents' configurations. No I/O.

mod address;
mod agents;
mod config;
mod edits;
mod keywords;
mod lexer;
mod plan;
mod proxies;

pub use agents::{Agent, Source};
pub use config::{Config, Kind, Line, Problem, Section};
pub use edits::{Edits, unified_diff};
pub use lexer::{Environment, Word};
pub use plan::{Note, Plan, Wish, plan};
pub use proxies::{Server, adoptable, servers};
