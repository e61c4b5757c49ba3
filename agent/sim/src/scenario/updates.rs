//! Updates of temporal data at every node.

use serde::Deserialize;

/// Temporal data, whose age is the time since their last update.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Updates {
    /// Number of items.
    pub items: u32,
    /// Normal update period of an item, in seconds.
    pub period: f64,
    /// Maximum update period, in seconds (`P_max`).
    pub longest: f64,
    /// One core's time for an update, in seconds.
    pub update_seconds: f64,
    /// Items that a request reads.
    pub reads: f64,
    /// Zipf exponent of the reads; 0 for a uniform distribution.
    pub skew: f64,
}

impl Updates {
    /// Load of the updates at the normal period.
    pub(crate) fn load(&self) -> UpdateLoad {
        UpdateLoad {
            per_second: f64::from(self.items) / self.period,
            age: self.period / 2.0,
            longest: self.period,
        }
    }
}

/// Load of updates.
#[derive(Clone, Copy, Debug)]
pub struct UpdateLoad {
    /// Updates/s of all items.
    pub per_second: f64,
    /// Mean age of the data read, in seconds.
    pub age: f64,
    /// Longest period of an item, in seconds.
    pub longest: f64,
}
