//! Metrics in Prometheus' text format; names and labels are listed in the README.

use std::time::Duration;

use anyhow::Result;
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    Opts, Registry, TextEncoder, exponential_buckets,
};

use crate::inflight::Inflight;

#[derive(Clone, Copy)]
pub enum Class {
    Query,
    Transaction,
}

impl Class {
    pub fn label(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Transaction => "transaction",
        }
    }
}

pub struct Metrics {
    registry: Registry,
    duration: HistogramVec,
    failed: IntCounterVec,
    items: IntCounterVec,
    jobs: IntGauge,
    backlog: IntGauge,
    oldest: Gauge,
    pub cache_hits: IntCounter,
    pub cache_misses: IntCounter,
    pub price_updates: IntCounter,
    pub price_updates_skipped: IntCounter,
    price_updates_off_period: IntCounterVec,
    quote_age: Histogram,
    feed_asked: IntCounterVec,
    pub feed_relaxed: IntGauge,
    pub sequence: IntGauge,
    pub slaves: IntGauge,
    pub slaves_dropped: IntCounter,
    pub snapshots: IntCounter,
    pub primary_claims: IntCounter,
    pub primary_violations: IntCounter,
    pub primary_late: IntCounter,
    pub replication_ready: IntGauge,
}

impl Metrics {
    pub fn new() -> Result<Self> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| -> Result<IntCounter> {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge> {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let by = |name: &str, label: &str, values: &[&str], help: &str| -> Result<IntCounterVec> {
            let metric = IntCounterVec::new(Opts::new(name, help), &[label])?;
            for value in values {
                metric.with_label_values(&[value]);
            }
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let quote_age = Histogram::with_opts(
            HistogramOpts::new(
                "stocks_quote_age_seconds",
                "Age of each quote when it was read.",
            )
            // 10 ms to 20 s.
            .buckets(exponential_buckets(0.01, 1.3, 30)?),
        )?;
        registry.register(Box::new(quote_age.clone()))?;
        let by_class = |name: &str, help: &str| -> Result<IntCounterVec> {
            let metric = IntCounterVec::new(Opts::new(name, help), &["class"])?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "stocks_request_duration_seconds",
                "From accepting a request to its answer, of requests that were answered.",
            )
            // 1 ms to 22.6 s.
            .buckets(exponential_buckets(0.001, 1.2, 56)?),
            &["class"],
        )?;
        registry.register(Box::new(duration.clone()))?;
        let oldest = Gauge::new(
            "stocks_oldest_request_age_seconds",
            "Age of the oldest unfinished request; 0 when there is none.",
        )?;
        registry.register(Box::new(oldest.clone()))?;
        let metrics = Self {
            duration,
            oldest,
            failed: by_class(
                "stocks_requests_failed_total",
                "Requests refused, ended by an error of the node, or given up by the client.",
            )?,
            items: by_class("stocks_items_total", "Rows touched by answered requests.")?,
            jobs: gauge("stocks_jobs", "Requests queued and running.")?,
            backlog: gauge(
                "stocks_backlog_items",
                "Items asked for by requests queued and running.",
            )?,
            cache_hits: counter("stocks_cache_hits_total", "Rows found in the row cache.")?,
            cache_misses: counter("stocks_cache_misses_total", "Rows read from the database.")?,
            price_updates: counter("stocks_price_updates_total", "Quotes updated.")?,
            price_updates_skipped: counter(
                "stocks_price_updates_skipped_total",
                "Updates left out, as the one before still waited for a worker.",
            )?,
            price_updates_off_period: by(
                "stocks_price_updates_off_period_total",
                "when",
                &["early", "late"],
                "Updates made too early or late by more than a tenth of the period and two gatherings.",
            )?,
            quote_age,
            feed_asked: by(
                "stocks_feed_asked_total",
                "result",
                &["changed", "unchanged", "failed"],
                "Questions to the agent for periods (--feed-periods).",
            )?,
            feed_relaxed: gauge(
                "stocks_feed_relaxed",
                "Stocks whose period is longer than their own.",
            )?,
            sequence: gauge(
                "stocks_replication_sequence",
                "Sequence number of the last transaction applied here.",
            )?,
            slaves: gauge(
                "stocks_replication_slaves",
                "On a master: slaves that transactions wait for.",
            )?,
            slaves_dropped: counter(
                "stocks_replication_slaves_dropped_total",
                "On a master: connections to slaves that ended.",
            )?,
            snapshots: counter(
                "stocks_replication_snapshots_total",
                "Snapshots sent by a master or restored by a slave.",
            )?,
            primary_claims: counter(
                "stocks_primary_claims_total",
                "Writes whose object set this node could claim for itself.",
            )?,
            primary_violations: counter(
                "stocks_primary_violations_total",
                "Writes whose object set another node had claimed: two primaries at once.",
            )?,
            primary_late: counter(
                "stocks_primary_late_total",
                "Writes refused since another node had written their object set by a newer table.",
            )?,
            replication_ready: gauge(
                "stocks_replication_ready",
                "1 on a master, and on a slave that has caught up with its master.",
            )?,
            registry,
        };
        // Series exist from the start, so that the first increase is seen.
        for class in [Class::Query, Class::Transaction] {
            metrics.duration.with_label_values(&[class.label()]);
            metrics.failed.with_label_values(&[class.label()]);
            metrics.items.with_label_values(&[class.label()]);
        }
        Ok(metrics)
    }

    pub fn answered(&self, class: Class, took: Duration, items: usize) {
        self.duration
            .with_label_values(&[class.label()])
            .observe(took.as_secs_f64());
        self.items
            .with_label_values(&[class.label()])
            .inc_by(items as u64);
    }

    pub fn quotes_read(&self, ages: &[Duration]) {
        for age in ages {
            self.quote_age.observe(age.as_secs_f64());
        }
    }

    pub fn off_period(&self, when: &str) {
        self.price_updates_off_period
            .with_label_values(&[when])
            .inc();
    }

    pub fn asked(&self, result: &str) {
        self.feed_asked.with_label_values(&[result]).inc();
    }

    pub fn failed(&self, class: Class) {
        self.failed.with_label_values(&[class.label()]).inc();
    }

    pub fn render(&self, inflight: &Inflight) -> Result<Vec<u8>> {
        let load = inflight.load();
        self.jobs.set(load.jobs as i64);
        self.backlog.set(load.items as i64);
        self.oldest.set(load.oldest.as_secs_f64());
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
