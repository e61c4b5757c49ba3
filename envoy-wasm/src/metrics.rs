//! Counters and gauges in Envoy's own statistics, `wasmcustom.plimsoll_….cluster.<name>`. Counted in the
//! VM and handed over at each look, so that a request pays for none of it.

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

    /// What was counted since the last time.
    pub fn count(&mut self, counts: [u64; 4]) {
        for (metric, more) in self.metrics.iter().zip(self.handed_over.more(counts)) {
            if let Some(metric) = metric.filter(|_| more > 0) {
                // One that is lost is lost.
                let _ = hostcalls::increment_metric(metric, more as i64);
            }
        }
    }
}

/// One cluster's.
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

    /// How long a worker's requests waited for the last ring.
    pub fn show_ring_applied(&self, seconds: f64) {
        if let Some(metric) = self.ring_applied.filter(|_| seconds > 0.0) {
            let _ = hostcalls::record_metric(metric, (1e6 * seconds) as u64);
        }
    }

    /// What holds for the whole process.
    pub fn show(&self, in_flight: (f64, u64), ring_version: u64) {
        let values = gauges(in_flight, ring_version);
        for (metric, value) in self.gauges.iter().zip(values) {
            if let Some(metric) = metric {
                let _ = hostcalls::record_metric(*metric, value);
            }
        }
    }
}
