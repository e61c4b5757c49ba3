//! What Envoy's own statistics show of a cluster. They are named `plimsoll_<name>`, with the cluster as a tag.

use plimsoll_core::dispatch::DispatchCounts;

use crate::primaries::PrimaryCounts;

/// Counters of the downstream position.
pub const COUNTERS: [&str; 4] = [
    "admitted_total",
    "refused_total",
    "undecided_total",
    "ejections_total",
];

/// Counters of the position that names primaries.
pub const PRIMARY_COUNTERS: [&str; 4] = [
    "placement_placed_total",
    "placement_waited_total",
    "placement_refused_total",
    "placement_doubted_total",
];

/// Gauges of the whole process.
pub const GAUGES: [&str; 3] = ["in_flight_cost", "in_flight_requests", "proxy_ring_version"];

/// How long the last ring took to reach a worker.
pub const RING_APPLIED: &str = "ring_applied_microseconds";

/// Of [`COUNTERS`].
pub fn counted(counts: DispatchCounts) -> [u64; 4] {
    let DispatchCounts {
        admitted,
        refused,
        undecided,
        ejections,
    } = counts;
    [admitted, refused, undecided, ejections]
}

/// Of [`PRIMARY_COUNTERS`].
pub fn primaries_counted(counts: PrimaryCounts) -> [u64; 4] {
    let PrimaryCounts {
        placed,
        waited,
        refused,
        doubted,
    } = counts;
    [placed, waited, refused, doubted]
}

/// Of [`GAUGES`].
pub fn gauges((cost, requests): (f64, u64), ring_version: u64) -> [u64; 3] {
    [cost.max(0.0) as u64, requests, ring_version]
}

/// Counters that are handed over at times, so that a request pays for none of it.
#[derive(Debug, Default)]
pub struct HandedOver([u64; 4]);

impl HandedOver {
    /// What was counted since the last time.
    pub fn more(&mut self, counts: [u64; 4]) -> [u64; 4] {
        let before = std::mem::replace(&mut self.0, counts);
        std::array::from_fn(|at| counts[at].saturating_sub(before[at]))
    }
}
