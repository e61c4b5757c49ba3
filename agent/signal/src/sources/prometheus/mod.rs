//! Scrapes the service's own delay histogram and takes the difference between two scrapes.

pub(super) mod settings;

use std::{collections::BTreeMap, time::Instant};

use plimsoll_core::{Cost, Observation, Seconds, Sla, advise};
use plimsoll_exposition::{CounterDelta, Delta, Exposition, HistogramDelta, Labels, Selector};
use plimsoll_net::get;
use tracing::warn;

use crate::source_error::SourceError;

pub use settings::PrometheusConfig;

/// Maximum number of requests, and of items per request, in one period. More is an error in the counters.
const MAX_ENDED: f64 = 1e9;

/// A scraped source, with the counters of the last good scrape.
#[derive(Debug)]
pub struct PrometheusSource {
    config: PrometheusConfig,
    sla: Sla,
    /// Why its buckets cannot show a delay over the SLA's; `None` if they can.
    refused: Option<String>,
    histogram: Selector,
    failed: Option<Selector>,
    cost: Option<Selector>,
    oldest_age: Option<Selector>,
    jobs: Option<Selector>,
    delays: HistogramDelta,
    failures: CounterDelta,
    costs: CounterDelta,
    last: Option<Instant>,
}

impl PrometheusSource {
    /// A source without a scrape yet. `jobs` is a gauge to read in the same scrape.
    pub fn new(config: PrometheusConfig, jobs: Option<Selector>, sla: Sla) -> Self {
        let counter = |name: &Option<String>| {
            name.as_ref()
                .map(|name| Selector::new(name, &config.labels))
        };
        PrometheusSource {
            sla,
            refused: None,
            histogram: Selector::new(&config.histogram, &config.labels),
            failed: counter(&config.failed),
            cost: counter(&config.cost),
            oldest_age: config
                .oldest_age
                .as_ref()
                .map(|name| Selector::new(name, &Labels::new())),
            jobs,
            delays: HistogramDelta::default(),
            failures: CounterDelta::default(),
            costs: CounterDelta::default(),
            last: None,
            config,
        }
    }

    /// Scrapes once; `None` for the first scrape. A failed scrape leaves the baseline unchanged, except if the counters
    /// cannot be compared with it, because of other buckets or an implausible jump: then they are the new baseline.
    pub async fn observe(&mut self) -> Result<Option<Observation>, SourceError> {
        let (status, body) =
            get(&self.config.url, self.config.timeout, self.config.max_body).await?;
        let now = Instant::now();
        if status != 200 {
            return Err(SourceError::new(
                "status",
                format!("{}: status {status}, not 200", self.config.url),
            ));
        }
        self.take(&body, now).map_err(|error| SourceError {
            message: format!("{}: {}", self.config.url, error.message),
            ..error
        })
    }

    fn take(&mut self, body: &[u8], now: Instant) -> Result<Option<Observation>, SourceError> {
        let text = Exposition::new(body)?;
        let counters = |selector: &Option<Selector>| match selector {
            Some(selector) => text.counters(selector),
            None => Ok(BTreeMap::new()),
        };
        // Parse everything before storing anything, so that a broken scrape leaves the baseline unchanged.
        let histogram = text.histogram(&self.histogram)?;
        let failed = counters(&self.failed)?;
        let cost = counters(&self.cost)?;
        let gauge = |selector: &Option<Selector>| {
            selector.as_ref().map_or(Ok(Vec::new()), |s| text.gauges(s))
        };
        let oldest_age = gauge(&self.oldest_age)?.into_iter().reduce(f64::max);
        let jobs = gauge(&self.jobs)?.into_iter().reduce(|a, b| a + b);
        let cost_known = !cost.is_empty();
        let delta = self.delays.add(histogram)?;
        if !matches!(delta, Delta::Added(_)) {
            self.judge_buckets();
        }
        let last = self.last.replace(now).unwrap_or(now);
        let period = Seconds::from(now.saturating_duration_since(last));
        let delays = match delta {
            Delta::Added(delays) => delays,
            Delta::First | Delta::OtherBuckets => {
                self.failures.rebase(failed);
                self.costs.rebase(cost);
                if let Some(refused) = &self.refused {
                    return Err(SourceError::new("buckets", refused));
                }
                if matches!(delta, Delta::First) {
                    return Ok(None);
                }
                return Err(SourceError::new(
                    "buckets",
                    "the histogram has other buckets than in the last scrape; later ones are compared with this one",
                ));
            }
        };
        if let Some(refused) = &self.refused {
            return Err(SourceError::new("buckets", refused));
        }
        let failed = self.failures.add(failed);
        let cost = self.costs.add(cost);
        let finished = delays.count() as f64;
        if finished.max(failed) > MAX_ENDED || cost > MAX_ENDED * finished.max(1.0) {
            return Err(SourceError::new(
                "garbage",
                format!(
                    "implausible since the last scrape: {finished} requests, {failed} failed, cost {cost}; at most {MAX_ENDED} requests and items per request"
                ),
            ));
        }
        Ok(Some(Observation {
            failed: failed.round() as u64,
            finished_cost: cost_known.then_some(Cost(cost)),
            oldest_age: oldest_age.map(Seconds),
            jobs,
            ..Observation::new(period, delays)
        }))
    }

    fn judge_buckets(&mut self) {
        self.refused = None;
        let Some(advice) = advise(self.delays.bounds(), &self.sla) else {
            return;
        };
        let told = format!("histogram {}: {advice}", self.config.histogram);
        match advice.is_refused {
            true => self.refused = Some(told),
            false => warn!("{}: {told}", self.config.url),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn sla(delay: f64) -> Sla {
        Sla {
            delay: Seconds(delay),
            settling: Seconds(10.0),
            objective: plimsoll_core::Objective::Quantile(0.95),
            set_point: 1.0,
        }
    }

    fn source() -> PrometheusSource {
        PrometheusSource::new(
            PrometheusConfig {
                url: plimsoll_net::HttpUrl {
                    is_tls: false,
                    connect: String::new(),
                    authority: String::new(),
                    path: String::new(),
                },
                histogram: "d".into(),
                labels: [("class".to_owned(), "query".to_owned())].into(),
                failed: Some("f_total".into()),
                cost: Some("c_total".into()),
                oldest_age: Some("age".into()),
                timeout: Duration::from_secs(1),
                max_body: 1 << 20,
            },
            Some(Selector::new("jobs", &Labels::new())),
            sla(1.0),
        )
    }

    fn text(one: u64, two: u64, all: u64, sum: f64) -> String {
        format!(
            "# TYPE d histogram\nd_bucket{{class=\"query\",le=\"0.1\"}} {one}\nd_bucket{{class=\"query\",le=\"1\"}} {two}\n\
             d_bucket{{class=\"query\",le=\"+Inf\"}} {all}\nd_sum{{class=\"query\"}} {sum}\nd_count{{class=\"query\"}} {all}\n\
             d_bucket{{class=\"other\",le=\"7\"}} 3\nf_total{{class=\"query\"}} {one}\nc_total{{class=\"query\"}} {}\nage 2.5\njobs 7\n",
            all * 80
        )
    }

    fn take(source: &mut PrometheusSource, text: &str) -> Result<Option<Observation>, SourceError> {
        source.take(text.as_bytes(), Instant::now())
    }

    #[test]
    fn the_first_scrape_is_the_base_and_the_next_ones_are_compared() {
        let mut s = source();
        assert!(take(&mut s, &text(1, 5, 9, 3.0)).unwrap().is_none());
        let seen = take(&mut s, &text(2, 8, 13, 4.5)).unwrap().unwrap();
        assert_eq!(seen.delays.counts(), [1, 2, 1]);
        assert_eq!(seen.delays.mean(), Some(Seconds(1.5 / 4.0)));
        assert_eq!(seen.failed, 1);
        assert_eq!(seen.finished_cost, Some(Cost(320.0)));
        assert_eq!(
            (seen.oldest_age, seen.jobs),
            (Some(Seconds(2.5)), Some(7.0))
        );
    }

    #[test]
    fn counters_that_start_again_are_counted_from_zero() {
        let mut s = source();
        take(&mut s, &text(10, 50, 90, 30.0)).unwrap();
        let seen = take(&mut s, &text(1, 2, 3, 0.75)).unwrap().unwrap();
        assert_eq!(seen.delays.counts(), [1, 1, 1]);
        assert_eq!(seen.delays.mean(), Some(Seconds(0.25)));
        assert_eq!(seen.failed, 1);
        assert_eq!(seen.finished_cost, Some(Cost(240.0)));
        let still = take(&mut s, &text(1, 2, 3, 0.75)).unwrap().unwrap();
        assert_eq!(still.delays.count(), 0);
    }

    #[test]
    fn new_buckets_lay_a_new_base() {
        let mut s = source();
        take(&mut s, &text(1, 2, 3, 1.0)).unwrap();
        let other = text(1, 2, 3, 1.0).replace("le=\"0.1\"", "le=\"0.2\"");
        assert_eq!(take(&mut s, &other).unwrap_err().kind, "buckets");
        let other = other.replace("} 3\n", "} 5\n");
        let seen = take(&mut s, &other).unwrap().unwrap();
        assert_eq!(seen.delays.counts(), [0, 0, 2]);
    }

    #[test]
    fn buckets_that_end_below_the_sla_are_refused_until_there_are_others() {
        let mut s = source();
        s.sla = sla(2.0);
        for _ in 0..3 {
            let error = take(&mut s, &text(1, 2, 3, 1.0)).unwrap_err();
            assert_eq!(error.kind, "buckets");
            assert!(
                error
                    .message
                    .contains("histogram d: the last bucket ends at 1 s"),
                "{error}"
            );
            assert!(error.message.contains("use buckets 0.1, 0.2,"), "{error}");
        }
        let other = |one| text(one, 2, 3, 1.0).replace("le=\"1\"", "le=\"2.5\"");
        assert_eq!(take(&mut s, &other(1)).unwrap_err().kind, "buckets");
        assert_eq!(
            take(&mut s, &other(2)).unwrap().unwrap().delays.counts(),
            [1, 0, 0]
        );
    }

    #[test]
    fn a_sum_that_went_back_is_a_restart_but_not_its_last_digits() {
        let mut s = source();
        take(&mut s, &text(10, 20, 30, 9.0)).unwrap();
        let same = take(&mut s, &text(10, 20, 30, 8.999_999_999_999)).unwrap();
        assert_eq!(same.unwrap().delays.count(), 0);
        // Restarted, with higher counts than before.
        let seen = take(&mut s, &text(11, 22, 33, 3.3)).unwrap().unwrap();
        assert_eq!(seen.delays.counts(), [11, 11, 11]);
        assert!((seen.delays.mean().unwrap().get() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_jump_that_is_no_work_is_only_a_new_base() {
        let mut s = source();
        take(&mut s, &text(1, 2, 3, 1.0)).unwrap();
        let jumped = take(&mut s, &text(1, 2, 5_000_000_000, 1.0)).unwrap_err();
        assert_eq!(jumped.kind, "garbage");
        let seen = take(&mut s, &text(2, 3, 5_000_000_001, 1.0)).unwrap();
        assert_eq!(seen.unwrap().delays.count(), 1);
    }

    #[test]
    fn broken_texts_are_refused_and_the_base_is_kept() {
        let mut s = source();
        let good = text(1, 2, 3, 1.0);
        take(&mut s, &good).unwrap();
        let broken = [
            String::new(),
            "<html>no metrics here</html>\n".into(),
            good[..good.len() - 3].into(),
            good.replace("} 2\n", "} NaN\n"),
            good.replace("} 2\n", "} -2\n"),
            good.replace("} 2\n", "} 1e300\n"),
            good.replace("} 2\n", "} +Inf\n"),
            good.replace("} 2\n", "} two\n"),
            good.replace("} 2\n", "}\n"),
            good.replace("} 2\n", "} 0\n"),
            good.replace("le=\"1\"", "le=\"NaN\""),
            good.replace("le=\"1\"", "le=\"0.1\""),
            good.replace("le=\"0.1\"", "le=\"-1\""),
            good.replace("le=\"0.1\"", "le=\"0.1"),
            good.replace("d_sum{class=\"query\"} 1", "d_sum{class=\"query\"} NaN"),
            good.replace("d_sum{class=\"query\"} 1", "d_sum{class=\"query\"} -1"),
            good.replace("d_sum", "x_sum"),
            good.replace("d_bucket", "x_bucket"),
            good.replace("age 2.5", "age NaN"),
            good.replace("f_total{class=\"query\"} 1", "f_total{class=\"query\"} -1"),
        ];
        for text in broken {
            let error = take(&mut s, &text).unwrap_err();
            assert!(!error.message.is_empty(), "{text}");
        }
        let seen = take(&mut s, &text(2, 4, 6, 2.0)).unwrap().unwrap();
        assert_eq!(
            seen.delays.counts(),
            [1, 1, 1],
            "compared with the last good scrape"
        );
    }

    #[test]
    fn a_series_without_a_bucket_the_others_have_is_refused() {
        let mut s = source();
        let second = "d_bucket{class=\"query\",x=\"y\",le=\"1\"} 1\nd_bucket{class=\"query\",x=\"y\",le=\"+Inf\"} 1\n\
                      d_sum{class=\"query\",x=\"y\"} 1\nd_count{class=\"query\",x=\"y\"} 1\n";
        let error = take(&mut s, &(text(1, 2, 3, 1.0) + second)).unwrap_err();
        assert!(error.message.contains("missing"), "{error}");
    }
}
