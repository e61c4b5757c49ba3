//! Metrics of the placement table.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_exposition::{Catalogue, Label};
use prometheus::{CounterVec, Gauge, GaugeVec, IntCounter, IntCounterVec, Result};

/// Metrics of placement.
#[derive(Clone, Debug)]
pub struct PlacementMetrics {
    keeper: Gauge,
    version: Gauge,
    named: Gauge,
    moving: Gauge,
    sets: GaugeVec,
    variation: Gauge,
    even: Gauge,
    dispatchers: Gauge,
    silent: Gauge,
    hand_overs: IntCounterVec,
    hand_over_seconds: CounterVec,
    forgotten: Gauge,
    restored: IntCounter,
    failures: IntCounter,
}

impl PlacementMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Placement (agents with `[placement]`)");
        let outcomes = || [Label::one_of("outcome", ["done", "back"])];
        let metrics = PlacementMetrics {
            keeper: catalogue.gauge(
                "plimsoll_placement_keeper",
                "1 or 0",
                "Whether this agent is the keeper of its cluster's table.",
            )?,
            version: catalogue.gauge(
                "plimsoll_placement_version",
                "version",
                "Version of the table that this agent follows; 0 before it has one.",
            )?,
            named: catalogue.gauge(
                "plimsoll_placement_named_sets",
                "object sets",
                "Object sets with an entry of their own.",
            )?,
            moving: catalogue.gauge(
                "plimsoll_placement_moving_sets",
                "object sets",
                "Entries in hand-over.",
            )?,
            sets: catalogue.gauges(
                "plimsoll_placement_sets",
                "object sets",
                "Entries of each primary in the table that this agent follows: named sets and rests, including those in hand-over to another node.",
                &[Label::are("plimsoll_node", "the primary")],
            )?,
            variation: catalogue.gauge(
                "plimsoll_placement_variation_ratio",
                "ratio",
                "Standard deviation over mean of the primaries' loads at the last plan; set by the keeper.",
            )?,
            even: catalogue.gauge(
                "plimsoll_placement_even_ratio",
                "ratio",
                "Variation up to which the loads counted as even at the last plan: `threshold`, plus the chance variation of few requests; set by the keeper.",
            )?,
            dispatchers: catalogue.gauge(
                "plimsoll_placement_dispatchers",
                "dispatchers",
                "Dispatchers that use the table.",
            )?,
            silent: catalogue.gauge(
                "plimsoll_placement_silent_dispatchers",
                "dispatchers",
                "Dispatchers that have been silent for a lease, which blocks moves; set by the keeper.",
            )?,
            forgotten: catalogue.gauge(
                "plimsoll_placement_forgotten_names",
                "object sets",
                "Names no longer counted individually because they were the coldest, since this agent became the keeper.",
            )?,
            hand_overs: catalogue.counters(
                "plimsoll_placement_hand_overs_total",
                "hand-overs",
                "Hand-overs that ended while this agent was the keeper, by outcome: `done`, or `back` to the previous node.",
                &outcomes(),
            )?,
            hand_over_seconds: catalogue.amounts(
                "plimsoll_placement_hand_over_seconds_total",
                "seconds",
                "Total duration of these hand-overs.",
                &outcomes(),
            )?,
            restored: catalogue.counter(
                "plimsoll_placement_restored_total",
                "tables",
                "Tables that this agent restored after Redis had lost them.",
            )?,
            failures: catalogue.counter(
                "plimsoll_placement_failures_total",
                "failures",
                "Calls that failed because Redis was unreachable or returned an error.",
            )?,
        };
        for outcome in ["done", "back"] {
            metrics.hand_overs.with_label_values(&[outcome]);
            metrics.hand_over_seconds.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Sets whether this agent is the keeper.
    pub fn show_keeper(&self, is_keeper: bool) {
        self.keeper.set(f64::from(u8::from(is_keeper)));
    }

    /// Sets the gauges of the table.
    pub fn show_table(&self, version: u64, named: usize, moving: usize) {
        self.version.set(version as f64);
        self.named.set(named as f64);
        self.moving.set(moving as f64);
    }

    /// Sets the number of entries of each primary.
    pub fn show_sets(&self, per_node: &BTreeMap<&str, usize>) {
        self.sets.reset();
        for (node, sets) in per_node {
            self.sets.with_label_values(&[node]).set(*sets as f64);
        }
    }

    /// Sets the numbers of dispatchers.
    pub fn show_dispatchers(&self, all: usize, silent: usize) {
        self.dispatchers.set(all as f64);
        self.silent.set(silent as f64);
    }

    /// Sets the imbalance of the loads at the last plan, and the imbalance up to which they count as even.
    pub fn planned(&self, variation: f64, even: f64) {
        self.variation.set(variation);
        self.even.set(even);
    }

    /// Sets the number of names forgotten in this term.
    pub fn forgotten(&self, names: u64) {
        self.forgotten.set(names as f64);
    }

    /// Counts a finished hand-over and its duration.
    pub fn handed_over(&self, outcome: &str, after: Duration) {
        self.hand_overs.with_label_values(&[outcome]).inc();
        let seconds = self.hand_over_seconds.with_label_values(&[outcome]);
        seconds.inc_by(after.as_secs_f64());
    }

    /// Counts a table that was restored to Redis.
    pub fn restored(&self) {
        self.restored.inc();
    }

    /// Counts a failure to reach or use Redis.
    pub fn failed(&self) {
        self.failures.inc();
    }
}
