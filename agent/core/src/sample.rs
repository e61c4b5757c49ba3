//! What a source of delays hands over.

use crate::{Cost, DelayHistogram, Seconds};

/// What a source saw since the last good observation.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time since then, by the monotonic clock.
    pub period: Seconds,
    /// Delays of requests that finished well.
    pub delays: DelayHistogram,
    /// Requests that failed.
    pub failed: u64,
    /// Ages at which clients left who had no answer.
    pub left: Option<DelayHistogram>,
    /// Cost of what finished.
    pub finished_cost: Option<Cost>,
    /// Jobs in the node on average, without those that waited in a proxy.
    pub mean_jobs: Option<f64>,
    /// Of what asked for the service, at whatever node, the share that proxies refused for want of room.
    pub refused_share: Option<f64>,
    /// Age of the oldest unfinished request.
    pub oldest_age: Option<Seconds>,
    /// The jobs gauge, where it is in the source's own scrape.
    pub jobs: Option<f64>,
    /// The most jobs that there were, where the source knows it.
    pub peak_jobs: Option<f64>,
}
