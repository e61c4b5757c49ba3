//! Metrics of the delay sources.

use plimsoll_core::{Observation, Seconds, Sight};
use plimsoll_exposition::{Catalogue, Label, Services, show};
use prometheus::{GaugeVec, IntCounterVec, Result};

use super::haproxy_log::line::LINE_RESULTS;
use crate::source_error::KINDS;

/// Metrics of the delay sources.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    /// Failed observations, by kind.
    pub failures: IntCounterVec,
    last_success: GaugeVec,
    proxies: GaugeVec,
    mean_jobs: GaugeVec,
    refused_share: GaugeVec,
    blind: GaugeVec,
    unseen: GaugeVec,
    listen_backlog: GaugeVec,
    services: Services,
    /// HAProxy log lines, by result.
    pub lines: IntCounterVec,
    /// Log connections closed to make room for newer ones.
    pub connections_closed: IntCounterVec,
    /// Registry of the series of log lines, per service.
    logged: Services,
}

impl SourceMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Sources");
        let service = [Label::service()];
        let kinds = Label::one_of("kind", KINDS);
        let states = Label::one_of("state", ["read", "unreadable"]);
        let results = Label::one_of("result", LINE_RESULTS);
        Ok(SourceMetrics {
            failures: catalogue.counters(
                "plimsoll_source_failures_total",
                "observations",
                "Failed observations, by kind. With `jobs`, `load` and `role`, only the number of jobs, the host's load or the database's role is unknown.",
                &[Label::service(), kinds],
            )?,
            last_success: catalogue.gauges(
                "plimsoll_source_last_success_timestamp_seconds",
                "seconds since 1970",
                "Time of the source's last successful observation; 0 before the first.",
                &service,
            )?,
            proxies: catalogue.gauges(
                "plimsoll_source_proxies",
                "proxy threads or workers",
                "Source `proxies`: proxies with counters of this node in Redis, by whether the counters were readable.",
                &[Label::service(), states],
            )?,
            mean_jobs: catalogue.gauges(
                "plimsoll_source_mean_jobs",
                "jobs",
                "Mean number of jobs in the node over the last period, without those waiting in a proxy; absent if the source does not report it or no request ended.",
                &service,
            )?,
            refused_share: catalogue.gauges(
                "plimsoll_source_refused_share",
                "fraction",
                "Fraction of the last period's requests for the service, on any node, that proxies refused because the nodes were full, 0 to 1; absent if the source does not report it or there were no requests.",
                &service,
            )?,
            blind: catalogue.gauges(
                "plimsoll_source_blind_ratio",
                "ratio",
                "Source `prometheus`: mean delay computed as jobs, including the listen backlog, over throughput, divided by the mean delay of the service's histogram, over several periods; 1 if the histogram sees all of the delay. Absent if neither the backlog nor a gauge of jobs is known.",
                &service,
            )?,
            unseen: catalogue.gauges(
                "plimsoll_source_unseen_seconds",
                "seconds",
                "Mean delay that the source does not see, if clear and persistent, otherwise 0.",
                &service,
            )?,
            listen_backlog: catalogue.gauges(
                "plimsoll_listen_backlog_connections",
                "connections",
                "Mean number of connections waiting to be accepted by the service, over the last period; absent if unknown.",
                &service,
            )?,
            services: catalogue.services(),
            lines: catalogue.counters(
                "plimsoll_source_lines_total",
                "lines",
                "Source `haproxy-log`: received lines, by result. `refused`: HAProxy refused the request before it reached the node; `excluded`: excluded by the operator's rule; `late`: received over 10 s after it was written; `repeated`: received more than once.",
                &[Label::service(), results],
            )?,
            connections_closed: catalogue.counters(
                "plimsoll_source_connections_closed_total",
                "connections",
                "Source `haproxy-log`: connections closed to make room for newer ones.",
                &service,
            )?,
            logged: catalogue.services(),
        })
    }

    /// Creates the series of a service with value 0; `from_log` adds those of log lines.
    pub fn announce(&self, service: &str, from_log: bool) {
        self.services.announce(service);
        self.last_success.with_label_values(&[service]);
        if from_log {
            self.logged.announce(service);
        }
    }

    /// Removes all series of a service.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
        self.logged.forget(service);
    }

    /// Counts a failed observation of this kind.
    pub fn failed(&self, service: &str, kind: &str) {
        self.failures.with_label_values(&[service, kind]).inc();
    }

    /// Records an observation, made at the Unix time `at`.
    pub fn succeeded(&self, service: &str, observation: &Observation, at: f64) {
        self.last_success.with_label_values(&[service]).set(at);
        for (gauge, figure) in [
            (&self.mean_jobs, observation.mean_jobs),
            (&self.refused_share, observation.refused_share),
        ] {
            show(gauge, &[service], figure);
        }
    }

    /// Sets the gauges of requests that the source does not see.
    pub fn show_unseen(&self, service: &str, sight: Option<Sight>, listen_backlog: Option<f64>) {
        let unseen = |sight: Sight| sight.unseen.map_or(0.0, Seconds::get);
        for (gauge, value) in [
            (&self.blind, sight.map(|sight| sight.ratio)),
            (&self.unseen, sight.map(unseen)),
            (&self.listen_backlog, listen_backlog),
        ] {
            show(gauge, &[service], value);
        }
    }

    /// Sets the number of proxies whose reports were read, and of those whose reports were malformed.
    pub fn show_proxies(&self, service: &str, read: usize, unreadable: usize) {
        for (state, count) in [("read", read), ("unreadable", unreadable)] {
            let labels = [service, state];
            self.proxies.with_label_values(&labels).set(count as f64);
        }
    }
}
