//! Updates of temporal data at every node.

use serde::Deserialize;

/// Temporal data: what is read is as old as its last update.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Updates {
    /// How many items.
    pub items: u32,
    /// Seconds between two updates of one, while nothing is wrong.
    pub period: f64,
    /// The most a policy may make of it (`P_max`).
    pub longest: f64,
    /// One core's time for an update.
    pub update_seconds: f64,
    /// Items that a request reads.
    pub reads: f64,
    /// Exponent of Zipf's law by which items are read; 0 is evenly.
    pub skew: f64,
}

impl Updates {
    /// What they come to while nobody makes their periods longer.
    pub(crate) fn load(&self) -> UpdateLoad {
        UpdateLoad {
            per_second: f64::from(self.items) / self.period,
            age: self.period / 2.0,
            longest: self.period,
        }
    }
}

/// What updates come to.
#[derive(Clone, Copy, Debug)]
pub struct UpdateLoad {
    /// Of all items.
    pub per_second: f64,
    /// Mean age of what is read, seconds.
    pub age: f64,
    /// The longest period that an item has, seconds.
    pub longest: f64,
}
