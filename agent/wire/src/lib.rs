//! What travels between agents, proxies, Redis and the command line, without I/O: one definition for who writes it and
//! who reads it.
//!
//! Readers ignore fields that they do not know, since another agent may be newer, and refuse values beyond the limits:
//! nothing that is read is trusted. `vectors/` pins the JSON. The crate builds for `wasm32-wasip1`.

mod exchange;
mod keys;
mod node;
mod partition;
mod placement;
mod ring;

use std::ops::RangeInclusive;

pub use exchange::{Dispatcher, Exchange, Exchanged, Granted, LiveNode, Wish};
pub use keys::{placement_keys, ring_keys};
pub use node::{
    ForcedHealth, Health, Listener, NodeDecision, NodeLearned, NodeService, NodeView, Override,
    ProxyView, ServiceSettings, Shed, SlaView, SourceSight,
};
pub use partition::PartitionQuery;
pub use placement::{
    GoneDispatcher, MAX_MESSAGE_SETS, PlacedDispatcher, PlacementAnswer, PlacementMessage,
    PlacementOperation, PlacementView,
};
pub use plimsoll_core::{MAX_NAME_BYTES, MAX_NUMBER, ring::MAX_NODES};
pub use ring::{Ring, RingView};

/// Bytes of the name of a cluster or a node in configurations; everybody who reads names takes [`MAX_NAME_BYTES`].
pub const MAX_CONFIGURED_NAME_BYTES: usize = 120;
/// Bytes of what a dispatcher counted of a node.
pub const MAX_OBSERVATION_BYTES: usize = 2048;
/// Bytes of "host:port".
pub const MAX_ADDRESS_BYTES: usize = 255;
/// Seconds without a word after which somebody is gone.
pub const LEASE_SECONDS: RangeInclusive<f64> = 0.1..=3600.0;
/// Dispatchers that are told of in one exchange.
pub const MAX_DISPATCHERS: usize = 256;

/// Whether it can name a cluster, a node or a dispatcher: 1 to [`MAX_NAME_BYTES`] of `A-Za-z0-9._:/-`, as Redis'
/// function library has it.
pub fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fine)
}

/// Whether a configuration may call a cluster or a node so: as [`is_name`], to [`MAX_CONFIGURED_NAME_BYTES`].
pub fn is_configured_name(name: &str) -> bool {
    name.len() <= MAX_CONFIGURED_NAME_BYTES && is_name(name)
}

/// Whether it goes into a list of addresses in a header.
fn is_address(address: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-[]".contains(&byte);
    (1..=MAX_ADDRESS_BYTES).contains(&address.len()) && address.bytes().all(fine)
}

/// From 0 to [`MAX_NUMBER`].
fn is_amount(number: f64) -> bool {
    (0.0..=MAX_NUMBER).contains(&number)
}
