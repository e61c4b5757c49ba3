//! Messages between agents, proxies, Redis and the command line, without I/O. Each is defined once for writers and
//! readers.
//!
//! Readers ignore unknown fields, since the peer may be newer, and reject values beyond the limits: no input is
//! trusted. `vectors/` pins the JSON. The crate builds for `wasm32-wasip1`.

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

/// Maximum length of the name of a cluster or node in a configuration; readers of names accept up to
/// [`MAX_NAME_BYTES`].
pub const MAX_CONFIGURED_NAME_BYTES: usize = 120;
/// Maximum length of a dispatcher's observation of a node.
pub const MAX_OBSERVATION_BYTES: usize = 2048;
/// Maximum length of "host:port".
pub const MAX_ADDRESS_BYTES: usize = 255;
/// Range of leases.
pub const LEASE_SECONDS: RangeInclusive<f64> = 0.1..=3600.0;
/// Maximum number of dispatchers in an exchange.
pub const MAX_DISPATCHERS: usize = 256;

/// Whether `name` can name a cluster, a node or a dispatcher: 1 to [`MAX_NAME_BYTES`] of `A-Za-z0-9._:/-`, as in the
/// function library.
pub fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fine)
}

/// Whether `name` is valid in a configuration: as [`is_name`], up to [`MAX_CONFIGURED_NAME_BYTES`].
pub fn is_configured_name(name: &str) -> bool {
    name.len() <= MAX_CONFIGURED_NAME_BYTES && is_name(name)
}

/// Whether `address` can be part of a list of addresses in a header.
fn is_address(address: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-[]".contains(&byte);
    (1..=MAX_ADDRESS_BYTES).contains(&address.len()) && address.bytes().all(fine)
}

/// Whether `number` is from 0 to [`MAX_NUMBER`].
fn is_amount(number: f64) -> bool {
    (0.0..=MAX_NUMBER).contains(&number)
}
