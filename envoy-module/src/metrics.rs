//! A configuration's counters and gauges in Envoy's own statistics: `plimsoll_<name>`, with the cluster as a label. A
//! timer writes them ten times a second, so that requests do not pay for it.

use std::sync::atomic::{AtomicU64, Ordering};

use envoy_abi::{Configuration, Counter, Gauge, panics};
use envoy_policy::{
    config::Settings,
    statistics::{CLASS_COUNTERS, COUNTERS, GAUGES, RING_APPLIED},
};

const LABEL: &str = "plimsoll_cluster";
const CLASS_LABEL: &str = "class";
const CLASSES: [&str; 4] = ["0", "1", "2", "3"];

/// One configuration's counters.
#[derive(Debug)]
pub struct Counters {
    cluster: String,
    counters: [Option<Counter>; 4],
    panics: Option<Counter>,
}

impl Counters {
    pub fn new(configuration: &Configuration, names: [&str; 4], cluster: &str) -> Self {
        let counter = |name| {
            let counter = configuration.define_counter(&format!("plimsoll_{name}"), &[LABEL])?;
            // Makes the counter visible from the start, at 0.
            configuration.add(counter, &[cluster], 0);
            Some(counter)
        };
        Counters {
            cluster: cluster.to_owned(),
            counters: names.map(counter),
            panics: counter("panics_total"),
        }
    }

    /// Adds the increases `more` to the counters, in the order of their names.
    pub fn count(&self, configuration: &Configuration, more: [u64; 4]) {
        for (counter, more) in self.counters.into_iter().zip(more) {
            if let Some(counter) = counter.filter(|_| more > 0) {
                configuration.add(counter, &[&self.cluster], more);
            }
        }
        // Panics are counted for the process: each goes to the cluster whose turn comes first.
        static SHOWN: AtomicU64 = AtomicU64::new(0);
        let now = panics();
        let more = now - SHOWN.swap(now, Ordering::Relaxed);
        if let Some(counter) = self.panics.filter(|_| more > 0) {
            configuration.add(counter, &[&self.cluster], more);
        }
    }
}

/// Counters and gauges of one configuration that admits requests.
#[derive(Debug)]
pub struct Metrics {
    counters: Counters,
    /// In the order of [`CLASS_COUNTERS`], where the settings have classes.
    by_class: Option<[Option<Counter>; 2]>,
    gauges: [Option<Gauge>; 3],
    ring_applied: Option<Gauge>,
}

impl Metrics {
    pub fn new(configuration: &Configuration, settings: &Settings) -> Self {
        let cluster = settings.cluster.as_str();
        let of_classes = |name| {
            let name = format!("plimsoll_{name}");
            let counter = configuration.define_counter(&name, &[LABEL, CLASS_LABEL])?;
            for class in CLASSES {
                configuration.add(counter, &[cluster, class], 0);
            }
            Some(counter)
        };
        let has_classes = settings.class.is_some();
        let gauge = |name| configuration.define_gauge(&format!("plimsoll_{name}"), &[LABEL]);
        Metrics {
            counters: Counters::new(configuration, COUNTERS, cluster),
            by_class: has_classes.then(|| CLASS_COUNTERS.map(of_classes)),
            gauges: GAUGES.map(gauge),
            ring_applied: gauge(RING_APPLIED),
        }
    }

    /// Adds the increases `more` to the counters, in the order of [`COUNTERS`].
    pub fn count(&self, configuration: &Configuration, more: [u64; 4]) {
        self.counters.count(configuration, more);
    }

    /// Adds the increases `more` to the counters of each class, in the order of [`CLASS_COUNTERS`].
    pub fn count_by_class(&self, configuration: &Configuration, more: [[u64; 4]; 2]) {
        let cluster = self.counters.cluster.as_str();
        for (counter, more) in self.by_class.into_iter().flatten().zip(more) {
            for (class, more) in CLASSES.into_iter().zip(more) {
                if let Some(counter) = counter.filter(|_| more > 0) {
                    configuration.add(counter, &[cluster, class], more);
                }
            }
        }
    }

    /// Sets the gauges, in the order of [`GAUGES`]. `ring_applied` is the time that the last ring took to reach all
    /// workers, seconds; 0 if there was none.
    pub fn show(&self, configuration: &Configuration, values: [u64; 3], ring_applied: f64) {
        let cluster = &self.counters.cluster;
        for (gauge, value) in self.gauges.into_iter().zip(values) {
            if let Some(gauge) = gauge {
                configuration.set(gauge, &[cluster], value);
            }
        }
        if let Some(gauge) = self.ring_applied.filter(|_| ring_applied > 0.0) {
            configuration.set(gauge, &[cluster], (1e6 * ring_applied) as u64);
        }
    }
}
