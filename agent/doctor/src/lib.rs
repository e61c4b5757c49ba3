//! Asks a live set-up and says what is wrong with it.
//!
//! [`ask`] makes a [`Snapshot`] of what proxies, agents and Redis answer; [`findings`] decides, without
//! asking anybody, what of it is wrong.

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
