//! Queries a live installation and finds misconfigurations.
//!
//! [`ask`] collects a [`Snapshot`] of the answers of proxies, agents and Redis; [`findings`] derives the findings
//! from it, without I/O.

mod ask;
mod finding;
mod findings;
mod haproxy_config;
mod snapshot;

pub use ask::{Asked, Failure, Targets, ask};
pub use finding::{Code, Finding};
pub use findings::findings;
pub use haproxy_config::HaproxyConfig;
pub use snapshot::Snapshot;
