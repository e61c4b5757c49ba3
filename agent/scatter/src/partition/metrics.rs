//! Metrics of queries in this node's partitions.

use std::time::Duration;

use plimsoll_exposition::{Catalogue, Label, forget_where};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Result,
};

/// Final states of queries.
const STATES: [&str; 5] = ["answered", "refused", "late", "down", "left"];
/// Upper bounds of the delay buckets, in seconds; a query may take 60 s.
const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
const DELAYS: &str = "plimsoll_partition_query_delay_seconds";
const DELAYS_HELP: &str = "From the question to the last row, without the time that who asked kept the agent waiting; of queries that were answered.";

/// Metrics of all partitions.
#[derive(Clone, Debug)]
pub struct PartitionMetrics {
    queries: IntCounterVec,
    rows: IntCounterVec,
    bytes: IntCounterVec,
    logins: IntCounterVec,
    delays: HistogramVec,
    waiting: GaugeVec,
    running: GaugeVec,
}

impl PartitionMetrics {
    /// Registers the metrics.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Queries in partitions (agents with `[[partition]]`)");
        let partition = || Label::are("partition", "a `name` of `[[partition]]`");
        let only = [partition()];
        let queries = catalogue.counters(
            "plimsoll_partition_queries_total",
            "queries",
            "Queries that ended, by how; `left`: who asked was gone before the end, and the query was cancelled, as it is where it is `late`.",
            &[partition(), Label::one_of("state", STATES)],
        )?;
        let delays = HistogramVec::new(
            HistogramOpts::new(DELAYS, DELAYS_HELP).buckets(BUCKETS.to_vec()),
            &["partition"],
        )?;
        catalogue.register(
            DELAYS,
            "histogram",
            "seconds",
            DELAYS_HELP,
            &only,
            delays.clone(),
        )?;
        Ok(PartitionMetrics {
            queries,
            delays,
            rows: catalogue.counters(
                "plimsoll_partition_rows_total",
                "rows",
                "Rows that were read for answers.",
                &only,
            )?,
            bytes: catalogue.counters(
                "plimsoll_partition_bytes_total",
                "bytes",
                "Bytes that were sent as answers.",
                &only,
            )?,
            logins: catalogue.counters(
                "plimsoll_partition_logins_total",
                "connections",
                "Connections opened to the partition's server, or tried: others are kept from query to query.",
                &[partition(), Label::one_of("result", ["open", "failed"])],
            )?,
            waiting: catalogue.gauges(
                "plimsoll_partition_queries_waiting",
                "queries",
                "Queries that wait for a core before they begin.",
                &only,
            )?,
            running: catalogue.gauges(
                "plimsoll_partition_queries_running",
                "queries",
                "Queries that have begun and not ended, or are being cancelled. Those that wait for who asked to take their rows have no core meanwhile.",
                &only,
            )?,
        })
    }

    /// Creates a partition's counters with value 0.
    pub fn announce(&self, partition: &str) {
        for state in STATES {
            self.queries.with_label_values(&[partition, state]);
        }
        for result in ["open", "failed"] {
            self.logins.with_label_values(&[partition, result]);
        }
        self.rows.with_label_values(&[partition]);
        self.bytes.with_label_values(&[partition]);
        for gauge in [&self.waiting, &self.running] {
            gauge.with_label_values(&[partition]);
        }
        self.delays.with_label_values(&[partition]);
    }

    /// Removes all metrics of a partition.
    pub fn forget(&self, partition: &str) {
        for counters in [&self.queries, &self.rows, &self.bytes, &self.logins] {
            forget_where(counters, "partition", partition);
        }
        for gauges in [&self.waiting, &self.running] {
            forget_where(gauges, "partition", partition);
        }
        forget_where(&self.delays, "partition", partition);
    }

    /// Metrics of a running query, which remain valid if its partition is removed.
    pub fn query(&self, partition: &str) -> QueryMetrics {
        let only = [partition];
        let waiting = self.waiting.with_label_values(&only);
        waiting.inc();
        QueryMetrics {
            queries: STATES.map(|state| self.queries.with_label_values(&[partition, state])),
            rows: self.rows.with_label_values(&only),
            bytes: self.bytes.with_label_values(&only),
            delays: self.delays.with_label_values(&only),
            waiting,
            running: self.running.with_label_values(&only),
            is_running: false,
            // Unless `ends` sets another state.
            state: "left",
        }
    }

    /// Counts an attempt to open a connection.
    pub fn login(&self, partition: &str, is_open: bool) {
        let result = if is_open { "open" } else { "failed" };
        self.logins.with_label_values(&[partition, result]).inc();
    }
}

/// Metrics of one query, which initially waits; dropping it ends the query.
#[derive(Debug)]
pub struct QueryMetrics {
    queries: [IntCounter; STATES.len()],
    rows: IntCounter,
    bytes: IntCounter,
    delays: Histogram,
    waiting: Gauge,
    running: Gauge,
    is_running: bool,
    state: &'static str,
}

impl QueryMetrics {
    /// Ends the wait.
    pub fn runs(&mut self) {
        self.waiting.dec();
        self.running.inc();
        self.is_running = true;
    }

    /// Sets the final state.
    pub fn ends(&mut self, state: &'static str) {
        debug_assert!(STATES.contains(&state), "{state}");
        self.state = state;
    }

    /// Counts rows and bytes.
    pub fn sent(&self, rows: u64, bytes: u64) {
        self.rows.inc_by(rows);
        self.bytes.inc_by(bytes);
    }

    /// Ends the query with a complete answer after `delay`.
    pub fn answered(&mut self, delay: Duration) {
        self.ends("answered");
        self.delays.observe(delay.as_secs_f64());
    }
}

impl Drop for QueryMetrics {
    fn drop(&mut self) {
        match self.is_running {
            true => self.running.dec(),
            false => self.waiting.dec(),
        }
        for (state, counter) in STATES.iter().zip(&self.queries) {
            if *state == self.state {
                counter.inc();
            }
        }
    }
}
