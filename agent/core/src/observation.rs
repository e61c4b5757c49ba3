//! Measurements of a node in one sampling period.

use crate::{Cost, DelayHistogram, Seconds};

/// Measurements of one sampling period. Fields that a source does not provide are `None`.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Measured (not configured) length of the period.
    pub period: Seconds,
    /// Delays of the requests that succeeded in the period.
    pub delays: DelayHistogram,
    /// Failed requests: with a server error, or beyond the proxy's timeout. Excludes refusals and requests whose
    /// clients left.
    pub failed: u64,
    /// Ages at which clients left without a response. Above the target, the request was late by at least its age;
    /// below it, the age says nothing about the node.
    pub left: Option<DelayHistogram>,
    /// Total cost of the finished requests, in items.
    pub finished_cost: Option<Cost>,
    /// Mean number of jobs in the node over the period, including its listen backlog, excluding queues in proxies.
    pub mean_jobs: Option<f64>,
    /// Share of all requests to the service, at all nodes, that proxies refused for lack of room, in [0, 1].
    pub refused_share: Option<f64>,
    /// Jobs in the node at the end of the period.
    pub jobs: Option<f64>,
    /// Maximum number of jobs seen in the node during the period.
    pub peak_jobs: Option<f64>,
    /// Age of the oldest unfinished request.
    pub oldest_age: Option<Seconds>,
    /// Mean delay of a request before a blind source starts its clock, derived from jobs and throughput. `None` unless
    /// it is clear and lasting. A client's delay is longer by it.
    pub unseen: Option<Seconds>,
}

impl Observation {
    /// Creates an observation with only these measurements.
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

    /// Minimum delays of the requests whose clients left after `target`; `None` if there are none.
    pub(crate) fn left_late(&self, target: Seconds) -> Option<DelayHistogram> {
        let late = self.left.as_ref()?.above(target);
        (late.count() > 0).then_some(late)
    }
}
