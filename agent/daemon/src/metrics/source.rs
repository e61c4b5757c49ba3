//! Where observations come from.

use prometheus::{GaugeVec, IntCounterVec, Result};

use super::{
    Label,
    catalogue::{Catalogue, Services},
};
use crate::sources;

/// Of the sources.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    /// Observations that failed, by kind.
    pub failures: IntCounterVec,
    last_success: GaugeVec,
    proxies: GaugeVec,
    pub(super) services: Services,
    /// HAProxy log lines, by what became of them.
    pub lines: IntCounterVec,
    /// Log connections closed to make room for newer ones.
    pub connections_closed: IntCounterVec,
    /// Those of log lines only.
    logged: Services,
}

impl SourceMetrics {
    /// Registers them.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Sources");
        let service = [Label::service()];
        let kinds = Label::one_of("kind", sources::KINDS);
        let states = Label::one_of("state", ["read", "unreadable"]);
        let results = Label::one_of("result", sources::LINE_RESULTS);
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
            services: catalogue.services(),
            lines: catalogue.counters(
                "plimsoll_source_lines_total",
                "lines",
                "Source `haproxy-log`: lines received, by what became of them. `refused` are requests that HAProxy refused before they reached the node.",
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

    /// Makes a service's series appear with zero; those of log lines where they are the source.
    pub fn announce(&self, service: &str, from_log: bool) {
        self.services.announce(service);
        self.last_success.with_label_values(&[service]);
        if from_log {
            self.logged.announce(service);
        }
    }

    /// Takes out all of a service.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
        self.logged.forget(service);
    }

    /// An observation failed.
    pub fn failed(&self, service: &str, kind: &str) {
        self.failures.with_label_values(&[service, kind]).inc();
    }

    /// There was one, at this Unix time.
    pub fn succeeded(&self, service: &str, at: f64) {
        self.last_success.with_label_values(&[service]).set(at);
    }

    /// How many proxies told of this node, and of how many that could not be read.
    pub fn show_proxies(&self, service: &str, read: usize, unreadable: usize) {
        for (state, count) in [("read", read), ("unreadable", unreadable)] {
            let labels = [service, state];
            self.proxies.with_label_values(&labels).set(count as f64);
        }
    }
}
