//! What one sampling period saw of a node.

use crate::{Cost, DelayHistogram, Seconds};

/// Everything measured in one sampling period. Fields that a source cannot know are `None`.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Length of the period as measured, not as configured.
    pub period: Seconds,
    /// Delays of the requests that finished well in the period.
    pub delays: DelayHistogram,
    /// Requests that ended in a server error, a time-out or an abort. Refusals are not in here.
    pub failed: u64,
    /// Cost of the requests that finished, if the source knows it.
    pub finished_cost: Option<Cost>,
    /// Jobs in the node at the end of the period.
    pub jobs: Option<f64>,
    /// The most jobs seen in the node during the period.
    pub peak_jobs: Option<f64>,
    /// Age of the oldest unfinished request.
    pub oldest_age: Option<Seconds>,
}

impl Observation {
    /// Requests that ended in the period, well or not.
    pub fn ended(&self) -> u64 {
        self.delays.count().saturating_add(self.failed)
    }
}
