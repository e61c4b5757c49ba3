//! Newtypes for quantities with units, and their limits.

use serde::{Deserialize, Serialize};

/// A bound, cost or count: exact as a float, and more than there is of anything.
pub const MAX_NUMBER: f64 = 1e15;
/// The longest name of a node, dispatcher, partition, object set or item, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// A duration in seconds. Finite in every value the crate hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

/// Work in data items; one per request if the cost is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub f64);

impl Seconds {
    /// The value in seconds.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl From<std::time::Duration> for Seconds {
    fn from(duration: std::time::Duration) -> Self {
        Seconds(duration.as_secs_f64())
    }
}

impl Cost {
    /// The value in data items.
    pub fn get(self) -> f64 {
        self.0
    }
}
