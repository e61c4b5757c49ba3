//! What one sampling period saw of a node.

use crate::{Cost, DelayHistogram, Seconds};

/// Everything measured in one sampling period. Fields that a source cannot know are `None`.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Length of the period as measured, not as configured.
    pub period: Seconds,
    /// Delays of the requests that finished well in the period.
    pub delays: DelayHistogram,
    /// Requests that the node failed: in a server error, or not within the proxy's timeout. Neither refusals
    /// nor requests whose clients left are in here.
    pub failed: u64,
    /// Ages at which clients left who had no answer. One over the target was late, by its age at least; one
    /// below it says nothing of the node: it is the client who chose to leave.
    pub left: Option<DelayHistogram>,
    /// Cost of the requests that finished, if the source knows it.
    pub finished_cost: Option<Cost>,
    /// Jobs in the node on average over the period, those that wait in its listen backlog with them and those
    /// that wait in a proxy without.
    pub mean_jobs: Option<f64>,
    /// Of all requests that asked for the service, at whatever node, the share that proxies refused for want of
    /// room, in [0, 1].
    pub refused_share: Option<f64>,
    /// Jobs in the node at the end of the period.
    pub jobs: Option<f64>,
    /// The most jobs seen in the node during the period.
    pub peak_jobs: Option<f64>,
    /// Age of the oldest unfinished request.
    pub oldest_age: Option<Seconds>,
    /// Mean delay of a request before the source's clock began, as jobs over throughput show it; only where
    /// that is clear, and goes on. The delay that a client has is longer by it.
    pub unseen: Option<Seconds>,
}

impl Observation {
    /// Nothing is known but these.
    pub fn new(period: Seconds, delays: DelayHistogram) -> Self {
        Observation {
            period,
            delays,
            failed: 0,
            left: None,
            finished_cost: None,
            mean_jobs: None,
            refused_share: None,
            jobs: None,
            peak_jobs: None,
            oldest_age: None,
            unseen: None,
        }
    }

    /// What clients who left show of delays, where those up to `target` are none.
    pub(crate) fn left_late(&self, target: Seconds) -> Option<DelayHistogram> {
        let late = self.left.as_ref()?.above(target);
        (late.count() > 0).then_some(late)
    }
}
