//! Counters and gauges in Envoy's own statistics, `wasmcustom.plimsoll_….cluster.<name>`. Each tick adds what the VM
//! has counted, so that requests do not pay for it.

use envoy_policy::{
    config::Settings,
    statistics::{
        CLASS_COUNTERS, COUNTERS, GAUGES, HandedOver, RING_APPLIED, counted, counted_by_class,
        gauges,
    },
};
use plimsoll_core::dispatch::DispatchCounts;
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
    pub fn new<Name: AsRef<str>>(names: [Name; 4], cluster: &str) -> Self {
        Counters {
            metrics: names.map(|name| define(MetricType::Counter, name.as_ref(), cluster)),
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
    counters: Counters,
    /// Where the settings have classes, in the order of [`CLASS_COUNTERS`].
    by_class: Option<[Counters; 2]>,
    gauges: [Option<u32>; 3],
    ring_applied: Option<u32>,
}

impl Metrics {
    pub fn new(settings: &Settings) -> Self {
        let cluster = settings.cluster.as_str();
        let gauge = |name| define(MetricType::Gauge, name, cluster);
        let mut metrics = Metrics {
            counters: Counters::new(COUNTERS, cluster),
            by_class: None,
            gauges: GAUGES.map(gauge),
            ring_applied: gauge(RING_APPLIED),
        };
        metrics.set(settings);
        metrics
    }

    /// Adds what the settings need.
    pub fn set(&mut self, settings: &Settings) {
        if settings.class.is_none() || self.by_class.is_some() {
            return;
        }
        self.by_class = Some(CLASS_COUNTERS.map(|name| {
            let names = std::array::from_fn(|class| format!("{name}.class.{class}"));
            Counters::new::<String>(names, &settings.cluster)
        }));
    }

    /// Adds the increase of each count since the last call.
    pub fn count(&mut self, counts: DispatchCounts) {
        self.counters.count(counted(counts));
        let by_class = self.by_class.iter_mut().flatten();
        for (counters, counts) in by_class.zip(counted_by_class(counts)) {
            counters.count(counts);
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
