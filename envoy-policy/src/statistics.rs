//! A cluster's metrics in Envoy's own statistics. Their names are `plimsoll_<name>`, with the cluster as a tag.

use plimsoll_core::dispatch::{Class, DispatchCounts};

use crate::primaries::PrimaryCounts;

/// Names of the counters of the position that admits requests.
pub const COUNTERS: [&str; 4] = [
    "admitted_total",
    "refused_total",
    "undecided_total",
    "ejections_total",
];

/// Names of the counters of requests of a class, which is a label, 0 to 3: where the settings have `class`.
pub const CLASS_COUNTERS: [&str; 2] = ["class_admitted_total", "class_refused_total"];

/// Names of the counters of the position that names primaries.
pub const PRIMARY_COUNTERS: [&str; 4] = [
    "placement_placed_total",
    "placement_waited_total",
    "placement_refused_total",
    "placement_doubted_total",
];

/// Names of the gauges, which are of the whole process.
pub const GAUGES: [&str; 3] = ["in_flight_cost", "in_flight_requests", "proxy_ring_version"];

/// Name of the gauge of the time that the last ring took to come into force, microseconds.
pub const RING_APPLIED: &str = "ring_applied_microseconds";

/// Values in the order of [`COUNTERS`].
pub fn counted(counts: DispatchCounts) -> [u64; 4] {
    [
        counts.admitted(),
        counts.refused(),
        counts.undecided,
        counts.ejections,
    ]
}

/// Values in the order of [`CLASS_COUNTERS`], by class.
pub fn counted_by_class(counts: DispatchCounts) -> [[u64; Class::COUNT]; 2] {
    [counts.admitted_by_class, counts.refused_by_class]
}

/// Values in the order of [`PRIMARY_COUNTERS`].
pub fn primaries_counted(counts: PrimaryCounts) -> [u64; 4] {
    let PrimaryCounts {
        placed,
        waited,
        refused,
        doubted,
    } = counts;
    [placed, waited, refused, doubted]
}

/// Values in the order of [`GAUGES`]; `cost` in items is rounded down.
pub fn gauges((cost, requests): (f64, u64), ring_version: u64) -> [u64; 3] {
    [cost.max(0.0) as u64, requests, ring_version]
}

/// Adds the counts of one worker to the sums over all.
pub fn add(sums: &mut [u64; 4], counts: [u64; 4]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// The counts that have been added to Envoy's counters. That is done by a timer, so that requests do not pay for it.
#[derive(Debug, Default)]
pub struct HandedOver([u64; 4]);

impl HandedOver {
    /// The increase of each count since the last call.
    pub fn more(&mut self, counts: [u64; 4]) -> [u64; 4] {
        let before = std::mem::replace(&mut self.0, counts);
        std::array::from_fn(|at| counts[at].saturating_sub(before[at]))
    }
}
