//! Adds Plimsoll to an existing haproxy.cfg, or Envoy's bootstrap (`envoy`): parses the file with positions, and plans
//! the edits that docs/haproxy.md and docs/envoy.md describe and the agents' configurations. No I/O.

mod address;
mod agents;
mod config;
mod edits;
pub mod envoy;
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
