//! Properties of everything that reads external input: one function per fuzz target, which panics if a property is
//! violated. `fuzz/fuzz_targets` calls them with random bytes, `tests/corpus.rs` with those of `fuzz/corpus`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adopt_envoy;
mod adopt_haproxy;
mod agent_check;
mod agent_toml;
#[allow(dead_code, unused_imports)]
#[path = "../../../agent/cli/src/config/mod.rs"]
mod config;
mod envoy_answer;
mod envoy_settings;
mod exposition;
mod gather_rows;
mod log_line;
mod mysql_handshake;
mod observation;
mod scenario;
mod wire;
mod wire_ring;

pub use adopt_envoy::adopt_envoy;
pub use adopt_haproxy::adopt_haproxy;
pub use agent_check::agent_check;
pub use agent_toml::agent_toml;
pub use envoy_answer::envoy_answer;
pub use envoy_settings::envoy_settings;
pub use exposition::exposition;
pub use gather_rows::gather_rows;
pub use log_line::log_line;
pub use mysql_handshake::mysql_handshake;
pub use observation::observation;
pub use scenario::scenario;
pub use wire::{wire_exchange, wire_node, wire_placement};
pub use wire_ring::wire_ring;

/// Reads any bytes, and panics where a promise about them is broken.
pub type Check = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Check); 16] = [
    ("adopt_envoy", adopt_envoy),
    ("adopt_haproxy", adopt_haproxy),
    ("agent_check", agent_check),
    ("agent_toml", agent_toml),
    ("envoy_answer", envoy_answer),
    ("envoy_settings", envoy_settings),
    ("exposition", exposition),
    ("gather_rows", gather_rows),
    ("log_line", log_line),
    ("mysql_handshake", mysql_handshake),
    ("observation", observation),
    ("scenario", scenario),
    ("wire_exchange", wire_exchange),
    ("wire_node", wire_node),
    ("wire_placement", wire_placement),
    ("wire_ring", wire_ring),
];
