//! Newtypes for the quantities the controllers exchange.

use serde::{Deserialize, Serialize};

/// A duration in seconds. Finite in every value the crate hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

/// Work, in data items (one per request where the cost is unknown).
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
