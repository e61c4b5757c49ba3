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
                "Observations that failed, by kind; `jobs`, `load`, `role`: only the jobs, the host's load, or the database's role, are unknown.",
                &[Label::service(), kinds],
            )?,
            last_success: catalogue.gauges(
                "plimsoll_source_last_success_timestamp_seconds",
                "seconds since 1970",
                "When the source last gave an observation; 0 before the first.",
                &service,
            )?,
            proxies: catalogue.gauges(
                "plimsoll_source_proxies",
                "proxy threads or workers",
                "Source `proxies`: those whose counters of this node were in Redis, by whether they could be read.",
                &[Label::service(), states],
            )?,
            mean_jobs: catalogue.gauges(
                "plimsoll_source_mean_jobs",
                "jobs",
                "Jobs in the node on average over the last period, without those that waited in a proxy; absent where the source does not tell it or nothing ended.",
                &service,
            )?,
            refused_share: catalogue.gauges(
                "plimsoll_source_refused_share",
                "fraction",
                "Of all requests that asked for the service in the last period, at whatever node, those that proxies refused for want of room, from 0 to 1; absent where the source does not tell it or nothing was asked.",
                &service,
            )?,
            blind: catalogue.gauges(
                "plimsoll_source_blind_ratio",
                "ratio",
                "Source `prometheus`: mean delay by jobs over throughput, those in the listen backlog with them, over the mean delay that the service's histogram shows, pooled over some periods; 1 where it sees all. Absent where neither the backlog nor a gauge of jobs is known.",
                &service,
            )?,
            unseen: catalogue.gauges(
                "plimsoll_source_unseen_seconds",
                "seconds",
                "Mean delay that the source does not see, where that is clear and goes on; else 0.",
                &service,
            )?,
            listen_backlog: catalogue.gauges(
                "plimsoll_listen_backlog_connections",
                "connections",
                "Connections that wait for the service to accept them, on average over the last period; absent where that is not known.",
                &service,
            )?,
            services: catalogue.services(),
            lines: catalogue.counters(
                "plimsoll_source_lines_total",
                "lines",
                "Source `haproxy-log`: lines received, by what became of them. `refused` are requests that HAProxy refused before they reached the node, `excluded` those that the operator's rule leaves out; `late` came over 10 s after they were written, `repeated` more than once.",
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
