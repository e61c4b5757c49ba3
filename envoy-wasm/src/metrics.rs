//! Counters and gauges in Envoy's own statistics, `wasmcustom.plimsoll_….cluster.<name>`. Counted in the
//! VM and handed over at each look, so that a request pays for none of it.

use plimsoll_core::dispatch::DispatchCounts;
use proxy_wasm::{hostcalls, types::MetricType};

/// One cluster's.
#[derive(Debug)]
pub struct Metrics {
    admitted: Option<u32>,
    refused: Option<u32>,
    undecided: Option<u32>,
    ejections: Option<u32>,
    in_flight_cost: Option<u32>,
    in_flight_requests: Option<u32>,
    ring_version: Option<u32>,
    ring_applied: Option<u32>,
    said: DispatchCounts,
}

impl Metrics {
    pub fn new(cluster: &str) -> Self {
        let define = |kind, name: &str| {
            hostcalls::define_metric(kind, &format!("plimsoll_{name}.cluster.{cluster}")).ok()
        };
        let counter = |name| define(MetricType::Counter, name);
        let gauge = |name| define(MetricType::Gauge, name);
        Metrics {
            admitted: counter("admitted_total"),
            refused: counter("refused_total"),
            undecided: counter("undecided_total"),
            ejections: counter("ejections_total"),
            in_flight_cost: gauge("in_flight_cost"),
            in_flight_requests: gauge("in_flight_requests"),
            ring_version: gauge("proxy_ring_version"),
            ring_applied: gauge("ring_applied_microseconds"),
            said: DispatchCounts::default(),
        }
    }

    /// What was counted since the last time.
    pub fn count(&mut self, counts: DispatchCounts) {
        let said = std::mem::replace(&mut self.said, counts);
        for (metric, now, before) in [
            (self.admitted, counts.admitted, said.admitted),
            (self.refused, counts.refused, said.refused),
            (self.undecided, counts.undecided, said.undecided),
            (self.ejections, counts.ejections, said.ejections),
        ] {
            if let Some(metric) = metric.filter(|_| now > before) {
                // One that is lost is lost.
                let _ = hostcalls::increment_metric(metric, (now - before) as i64);
            }
        }
    }

    /// How long a worker's requests waited for the last ring.
    pub fn show_ring_applied(&self, seconds: f64) {
        if let Some(metric) = self.ring_applied.filter(|_| seconds > 0.0) {
            let _ = hostcalls::record_metric(metric, (1e6 * seconds) as u64);
        }
    }

    /// What holds for the whole process.
    pub fn show(&self, (cost, requests): (f64, u64), ring_version: u64) {
        for (metric, value) in [
            (self.in_flight_cost, cost.max(0.0) as u64),
            (self.in_flight_requests, requests),
            (self.ring_version, ring_version),
        ] {
            if let Some(metric) = metric {
                let _ = hostcalls::record_metric(metric, value);
            }
        }
    }
}
