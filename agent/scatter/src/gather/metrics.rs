//! Metrics of `plimsoll gather`.

use std::time::Duration;

use plimsoll_exposition::{Catalogue, Label};
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, Result};

use crate::gather::{OUTCOMES, Outcome, Summary};

/// Upper bounds of the delay buckets, in seconds.
const BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

/// Metrics of gathers.
#[derive(Clone, Debug)]
pub struct GatherMetrics {
    gathers: IntCounterVec,
    partitions: IntCounterVec,
    delay: Histogram,
    rows: IntCounter,
    bytes: IntCounter,
    running: Gauge,
}

/// Counts a gather as running until dropped.
pub struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl GatherMetrics {
    /// Registers the metrics.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Gathers");
        let states = ["answered", "enough", "late", "refused", "down"];
        let delay = "plimsoll_gather_delay_seconds";
        let delay_help = "From a question to the end of its answer.";
        let histogram =
            Histogram::with_opts(HistogramOpts::new(delay, delay_help).buckets(BUCKETS.to_vec()))?;
        catalogue.register(
            delay,
            "histogram",
            "seconds",
            delay_help,
            &[],
            histogram.clone(),
        )?;
        Ok(GatherMetrics {
            delay: histogram,
            gathers: catalogue.counters(
                "plimsoll_gathers_total",
                "gathers",
                "Questions to all partitions, by how they ended (docs/scatter.md); `left`: the caller did not take the answer.",
                &[Label::one_of("outcome", OUTCOMES.map(Outcome::word))],
            )?,
            partitions: catalogue.counters(
                "plimsoll_gather_partitions_total",
                "answers",
                "Answers of partitions, by how they ended; not those that were under way at the end of their gather.",
                &[
                    Label::are("partition", "a partition's name"),
                    Label::one_of("state", states),
                ],
            )?,
            rows: catalogue.counter(
                "plimsoll_gather_rows_total",
                "rows",
                "Rows sent to callers.",
            )?,
            bytes: catalogue.counter(
                "plimsoll_gather_bytes_total",
                "bytes",
                "Bytes of answers sent to callers.",
            )?,
            running: catalogue.gauge(
                "plimsoll_gather_running",
                "gathers",
                "Gathers under way.",
            )?,
        })
    }

    /// Counts a query that was refused before it began.
    pub fn turned_away(&self) {
        self.count(Outcome::Refused);
    }

    /// Counts a gather that begins.
    pub fn running(&self) -> Running {
        self.running.inc();
        Running(self.running.clone())
    }

    /// Counts a gather that ended.
    pub fn ended(&self, summary: &Summary, delay: Duration, bytes: u64) {
        self.count(summary.outcome);
        self.delay.observe(delay.as_secs_f64());
        self.rows.inc_by(summary.rows);
        self.bytes.inc_by(bytes);
        for (name, state) in &summary.partitions {
            self.partitions
                .with_label_values(&[name.as_str(), *state])
                .inc();
        }
    }

    fn count(&self, outcome: Outcome) {
        self.gathers.with_label_values(&[outcome.word()]).inc();
    }
}
