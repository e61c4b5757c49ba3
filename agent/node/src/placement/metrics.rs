//! The table of primaries.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_exposition::{Catalogue, Label};
use prometheus::{CounterVec, Gauge, GaugeVec, IntCounter, IntCounterVec, Result};

/// Of placement.
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
    /// Registers them.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Placement (agents with `[placement]`)");
        let outcomes = || [Label::one_of("outcome", ["done", "back"])];
        let metrics = PlacementMetrics {
            keeper: catalogue.gauge(
                "plimsoll_placement_keeper",
                "1 or 0",
                "Whether this agent keeps the table of its cluster.",
            )?,
            version: catalogue.gauge(
                "plimsoll_placement_version",
                "version",
                "Version of the table as this agent knows it; 0 before it knows one.",
            )?,
            named: catalogue.gauge(
                "plimsoll_placement_named_sets",
                "object sets",
                "Object sets with an entry of their own.",
            )?,
            moving: catalogue.gauge(
                "plimsoll_placement_moving_sets",
                "object sets",
                "Entries that are being handed over.",
            )?,
            sets: catalogue.gauges(
                "plimsoll_placement_sets",
                "object sets",
                "Entries of each primary, as this agent knows the table: named sets and rests, those included that leave.",
                &[Label::are("plimsoll_node", "a primary")],
            )?,
            variation: catalogue.gauge(
                "plimsoll_placement_variation_ratio",
                "ratio",
                "Standard deviation over mean of the primaries' loads at the last plan; of the keeper.",
            )?,
            even: catalogue.gauge(
                "plimsoll_placement_even_ratio",
                "ratio",
                "Up to here that counted as even at the last plan: `threshold`, and what few requests make by chance; of the keeper.",
            )?,
            dispatchers: catalogue.gauge(
                "plimsoll_placement_dispatchers",
                "dispatchers",
                "Dispatchers that act on the table.",
            )?,
            silent: catalogue.gauge(
                "plimsoll_placement_silent_dispatchers",
                "dispatchers",
                "Those that were not heard for a lease, so that nothing moves; of the keeper.",
            )?,
            forgotten: catalogue.gauge(
                "plimsoll_placement_forgotten_names",
                "object sets",
                "Names that were counted one by one and no longer are, as they were the coldest, since this agent became the keeper.",
            )?,
            hand_overs: catalogue.counters(
                "plimsoll_placement_hand_overs_total",
                "hand-overs",
                "Hand-overs that ended while this agent was the keeper: done, or back to where the set was.",
                &outcomes(),
            )?,
            hand_over_seconds: catalogue.amounts(
                "plimsoll_placement_hand_over_seconds_total",
                "seconds",
                "How long they took together.",
                &outcomes(),
            )?,
            restored: catalogue.counter(
                "plimsoll_placement_restored_total",
                "tables",
                "Times this agent gave Redis a table that it had lost.",
            )?,
            failures: catalogue.counter(
                "plimsoll_placement_failures_total",
                "failures",
                "Times Redis could not be reached or refused a call.",
            )?,
        };
        for outcome in ["done", "back"] {
            metrics.hand_overs.with_label_values(&[outcome]);
            metrics.hand_over_seconds.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Whether this agent is the keeper.
    pub fn show_keeper(&self, is_keeper: bool) {
        self.keeper.set(f64::from(u8::from(is_keeper)));
    }

    /// The table.
    pub fn show_table(&self, version: u64, named: usize, moving: usize) {
        self.version.set(version as f64);
        self.named.set(named as f64);
        self.moving.set(moving as f64);
    }

    /// How many entries each primary has.
    pub fn show_sets(&self, per_node: &BTreeMap<&str, usize>) {
        self.sets.reset();
        for (node, sets) in per_node {
            self.sets.with_label_values(&[node]).set(*sets as f64);
        }
    }

    /// Who acts on it.
    pub fn show_dispatchers(&self, all: usize, silent: usize) {
        self.dispatchers.set(all as f64);
        self.silent.set(silent as f64);
    }

    /// How uneven the load was, and how uneven it might be.
    pub fn planned(&self, variation: f64, even: f64) {
        self.variation.set(variation);
        self.even.set(even);
    }

    /// Names that were forgotten in this term.
    pub fn forgotten(&self, names: u64) {
        self.forgotten.set(names as f64);
    }

    /// A hand-over ended.
    pub fn handed_over(&self, outcome: &str, after: Duration) {
        self.hand_overs.with_label_values(&[outcome]).inc();
        let seconds = self.hand_over_seconds.with_label_values(&[outcome]);
        seconds.inc_by(after.as_secs_f64());
    }

    /// Redis got a table back.
    pub fn restored(&self) {
        self.restored.inc();
    }

    /// Redis was lost, or refused.
    pub fn failed(&self) {
        self.failures.inc();
    }
}
