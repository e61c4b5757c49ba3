//! Counters and gauges in Envoy's own statistics, `wasmcustom.plimsoll_….cluster.<name>`. Each tick adds what the VM
//! has counted, so that requests do not pay for it.

use envoy_policy::statistics::{COUNTERS, GAUGES, HandedOver, RING_APPLIED, gauges};
use proxy_wasm::{hostcalls, types::MetricType};

fn define(kind: MetricType, name: &str, cluster: &str) -> Option<u32> {
    hostcalls::define_metric(kind, &format!("plimsoll_{name}.cluster.{cluster}")).ok()
}

/// Counters of one cluster.
#[derive(Debug)]
pub struct Counters {
    metrics: [Option<u32>; 4],
    handed_over: HandedOver,
}

impl Counters {
    pub fn new(names: [&str; 4], cluster: &str) -> Self {
        Counters {
            metrics: names.map(|name| define(MetricType::Counter, name, cluster)),
            handed_over: HandedOver::default(),
        }
    }

    /// Adds the increase of each count since the last call; `counts` are totals in the order of the names.
    pub fn count(&mut self, counts: [u64; 4]) {
        for (metric, more) in self.metrics.iter().zip(self.handed_over.more(counts)) {
            if let Some(metric) = metric.filter(|_| more > 0) {
                // A count that Envoy refuses is lost.
                let _ = hostcalls::increment_metric(metric, more as i64);
            }
        }
    }
}

/// Counters and gauges of one cluster that admits requests.
#[derive(Debug)]
pub struct Metrics {
    pub counters: Counters,
    gauges: [Option<u32>; 3],
    ring_applied: Option<u32>,
}

impl Metrics {
    pub fn new(cluster: &str) -> Self {
        let gauge = |name| define(MetricType::Gauge, name, cluster);
        Metrics {
            counters: Counters::new(COUNTERS, cluster),
            gauges: GAUGES.map(gauge),
            ring_applied: gauge(RING_APPLIED),
        }
    }

    /// Sets the gauge of the time that the last ring took to come into force in this VM, seconds; 0 leaves it unset.
    pub fn show_ring_applied(&self, seconds: f64) {
        if let Some(metric) = self.ring_applied.filter(|_| seconds > 0.0) {
            let _ = hostcalls::record_metric(metric, (1e6 * seconds) as u64);
        }
    }

    /// Sets the gauges of the whole process; `in_flight` is cost, items, and number of requests.
    pub fn show(&self, in_flight: (f64, u64), ring_version: u64) {
        let values = gauges(in_flight, ring_version);
        for (metric, value) in self.gauges.iter().zip(values) {
            if let Some(metric) = metric {
                let _ = hostcalls::record_metric(*metric, value);
            }
        }
    }
}
