//! Cumulative counters of requests and their delays over all periods, from which Prometheus derives rates.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use plimsoll_core::{DelayHistogram, Observation, Seconds};
use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{
    CounterVec, IntCounterVec, Opts, Result,
    core::{Collector, Desc, Describer},
    proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

const DELAYS: &str = "plimsoll_service_delay_seconds";
const DELAYS_HELP: &str = "Service delay of the successful requests. The buckets end at 0.05, 0.1 to 1 by tenths, 1.1, 1.25, 1.5, 2, 3, 5 and 10 times the SLA's delay; a bucket of the source that spans an end is split proportionally.";
/// Upper bounds of the buckets, relative to the SLA's delay. Finest around 1, the range of interest.
const PARTS: [f64; 18] = [
    0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0,
];

/// Metrics of requests that ended.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    requests: IntCounterVec,
    left: IntCounterVec,
    cost: CounterVec,
    delays: Delays,
    services: Services,
}

impl RequestMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Requests");
        let results = [
            Label::service(),
            Label::one_of("result", ["timely", "late", "failed"]),
        ];
        let requests = catalogue.counters(
            "plimsoll_requests_total",
            "requests",
            "Requests that ended: within the SLA's delay, above it, or with an error or timeout. Requests refused by a proxy do not count. If the SLA's delay falls inside one of the source's buckets, the bucket is split proportionally; requests above the last bucket are late.",
            &results,
        )?;
        let left = catalogue.counters(
            "plimsoll_requests_left_total",
            "requests",
            "Requests whose client left, or whose deadline passed, before an answer; not part of `plimsoll_requests_total`. For the controller, those older than the SLA's target count as late, and the others do not count.",
            &[Label::service()],
        )?;
        let cost = catalogue.amounts(
            "plimsoll_finished_cost_total",
            "cost units",
            "Cost of the finished requests; absent if the source does not report costs.",
            &[Label::service()],
        )?;
        let delays = Delays::new()?;
        let labels = [Label::service()];
        catalogue.register(
            DELAYS,
            "histogram",
            "seconds",
            DELAYS_HELP,
            &labels,
            delays.clone(),
        )?;
        Ok(RequestMetrics {
            requests,
            left,
            cost,
            delays,
            services: catalogue.services(),
        })
    }

    /// Creates the counters of a service with value 0.
    pub fn announce(&self, service: &str) {
        for result in ["timely", "late", "failed"] {
            self.requests.with_label_values(&[service, result]);
        }
        self.left.with_label_values(&[service]);
    }

    /// Removes all series of a service.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
        self.delays.locked().remove(service);
    }

    /// Adds the requests of a period.
    pub fn ended(&self, service: &str, sla: Seconds, observation: &Observation) {
        let timely = self.delays.add(service, sla, observation);
        let late = observation.delays.count().saturating_sub(timely);
        for (result, count) in [
            ("timely", timely),
            ("late", late),
            ("failed", observation.failed),
        ] {
            let labels = [service, result];
            self.requests.with_label_values(&labels).inc_by(count);
        }
        let left = observation.left.as_ref();
        let left = left.map_or(0, DelayHistogram::count);
        self.left.with_label_values(&[service]).inc_by(left);
        if let Some(cost) = observation.finished_cost.filter(|cost| cost.get() >= 0.0) {
            self.cost.with_label_values(&[service]).inc_by(cost.get());
        }
    }
}

/// Histograms whose buckets differ from those of the observations.
#[derive(Clone, Debug)]
struct Delays {
    described: Desc,
    totals: Arc<Mutex<BTreeMap<String, Totals>>>,
}

/// Histogram of one service.
#[derive(Debug)]
struct Totals {
    sla: Seconds,
    /// Upper bound of each bucket in seconds, and the number of requests within it; fractional, as buckets are split.
    within: [(f64, f64); PARTS.len()],
    count: u64,
    sum: f64,
    /// Fraction of a timely request not counted yet, carried over to the next period.
    rest: f64,
}

impl Totals {
    fn new(sla: Seconds) -> Self {
        Totals {
            sla,
            within: PARTS.map(|part| (rounded(part * sla.get()), 0.0)),
            count: 0,
            sum: 0.0,
            rest: 0.0,
        }
    }
}

/// Rounds to 13 significant digits, which removes binary rounding errors.
fn rounded(bound: f64) -> f64 {
    format!("{bound:.12e}").parse().unwrap_or(bound)
}

impl Delays {
    fn new() -> Result<Self> {
        let described = Opts::new(DELAYS, DELAYS_HELP)
            .variable_label("service")
            .describe()?;
        Ok(Delays {
            described,
            totals: Arc::default(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Totals>> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an observation; returns the number of timely requests.
    fn add(&self, service: &str, sla: Seconds, observation: &Observation) -> u64 {
        let mut all = self.locked();
        let totals = all
            .entry(service.to_owned())
            .or_insert_with(|| Totals::new(sla));
        if totals.sla != sla {
            // Other buckets: reset, as after a restart.
            *totals = Totals::new(sla);
        }
        let delays = &observation.delays;
        for (bound, within) in &mut totals.within {
            *within += delays.within(Seconds(*bound));
        }
        totals.count = totals.count.saturating_add(delays.count());
        totals.sum += delays.sum().get();
        let timely = totals.rest + delays.within(sla);
        totals.rest = timely.fract();
        timely as u64
    }
}

impl Collector for Delays {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.described]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let all = self.locked();
        let metrics = all.iter().map(|(service, totals)| {
            let buckets = totals.within.iter().map(|(bound, within)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*bound);
                bucket.set_cumulative_count(*within as u64);
                bucket
            });
            let mut histogram = Histogram::default();
            histogram.set_bucket(buckets.collect());
            histogram.set_sample_count(totals.count);
            histogram.set_sample_sum(totals.sum);
            let mut label = LabelPair::default();
            label.set_name("service".into());
            label.set_value(service.clone());
            let mut metric = Metric::from_label(vec![label]);
            metric.set_histogram(histogram);
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(DELAYS.into());
        family.set_help(DELAYS_HELP.into());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plimsoll_core::{Cost, DelayHistogram};
    use prometheus::{Registry, TextEncoder};

    use super::*;

    fn period(bounds: &[f64], counts: &[u64], sum: f64) -> Observation {
        let delays = DelayHistogram::from_counts(bounds.into(), counts.to_vec(), sum).unwrap();
        Observation {
            failed: 1,
            finished_cost: Some(Cost(80.0)),
            ..Observation::new(Seconds(1.0), delays)
        }
    }

    fn lines(registry: &Registry) -> Vec<String> {
        let text = TextEncoder::new().encode_to_string(&registry.gather());
        text.unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn periods_are_added_up() {
        let registry = Registry::new();
        let metrics = RequestMetrics::new(&mut Catalogue::new(&registry)).unwrap();
        metrics.announce("a");
        let has = |line: &str| {
            let lines = lines(&registry);
            assert!(lines.iter().any(|l| l == line), "{line} in {lines:#?}");
        };
        has("plimsoll_requests_total{result=\"late\",service=\"a\"} 0");
        // The SLA's delay is in the middle of the second bucket.
        for _ in 0..3 {
            metrics.ended("a", Seconds(0.3), &period(&[0.2, 0.4], &[4, 3, 1], 2.5));
        }
        has("plimsoll_requests_total{result=\"timely\",service=\"a\"} 16");
        has("plimsoll_requests_total{result=\"late\",service=\"a\"} 8");
        has("plimsoll_requests_total{result=\"failed\",service=\"a\"} 3");
        has("plimsoll_finished_cost_total{service=\"a\"} 240");
        has("plimsoll_service_delay_seconds_bucket{service=\"a\",le=\"0.06\"} 3");
        has("plimsoll_service_delay_seconds_bucket{service=\"a\",le=\"0.3\"} 16");
        has("plimsoll_service_delay_seconds_bucket{service=\"a\",le=\"3\"} 21");
        has("plimsoll_service_delay_seconds_bucket{service=\"a\",le=\"+Inf\"} 24");
        has("plimsoll_service_delay_seconds_count{service=\"a\"} 24");
        has("plimsoll_service_delay_seconds_sum{service=\"a\"} 7.5");

        metrics.ended("a", Seconds(0.4), &period(&[0.2, 0.4], &[4, 3, 1], 2.5));
        has("plimsoll_requests_total{result=\"timely\",service=\"a\"} 23");
        has("plimsoll_service_delay_seconds_bucket{service=\"a\",le=\"0.4\"} 7");
        has("plimsoll_service_delay_seconds_count{service=\"a\"} 8");

        metrics.forget("a");
        assert_eq!(lines(&registry), [""; 0]);
    }
}
