//! Limits of what agents, proxies and Redis tell each other. The function library, `lua/redis/`, has the same.

use std::ops::RangeInclusive;

/// Nodes of a ring: a slot is a byte, in which 255 is nobody.
pub const MAX_NODES: usize = 255;
/// Bytes of a name of a node or a dispatcher.
pub const MAX_NAME_BYTES: usize = 128;
/// Bytes of what a dispatcher counted of a node.
pub const MAX_OBSERVATION_BYTES: usize = 2048;
/// Seconds without a word after which somebody is gone.
pub const LEASE_SECONDS: RangeInclusive<f64> = 0.1..=3600.0;
/// A bound, cost or count: exact as a float, and more than there is of anything.
pub const MAX_NUMBER: f64 = 1e15;
/// Dispatchers that are told of in one exchange.
pub const MAX_DISPATCHERS: usize = 256;
