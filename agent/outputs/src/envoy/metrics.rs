//! Metrics of the outputs to stock Envoy.

use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{Gauge, GaugeVec, IntCounterVec, Result};

/// Metrics of endpoint discovery and load reports.
#[derive(Clone, Debug)]
pub struct EnvoyMetrics {
    /// Requests to other agents, by result.
    pub peer_asked: IntCounterVec,
    /// Envoy's discovery requests, by result.
    pub discoveries: IntCounterVec,
    shed: GaugeVec,
    nodes: GaugeVec,
    /// Open streams of load reports.
    pub orca_streams: Gauge,
    services: Services,
}

impl EnvoyMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Stock Envoy");
        let healths = ["healthy", "draining", "unhealthy"];
        let peer_results = [
            "answered",
            "garbage",
            "status",
            "timeout",
            "too_large",
            "truncated",
            "unreachable",
        ];
        Ok(EnvoyMetrics {
            discoveries: catalogue.counters(
                "plimsoll_discovery_requests_total",
                "requests",
                "Envoy's requests for endpoints, by result (docs/http-api.md).",
                &[Label::one_of(
                    "result",
                    ["answered", "unchanged", "unready", "refused"],
                )],
            )?,
            peer_asked: catalogue.counters(
                "plimsoll_peer_requests_total",
                "requests",
                "Requests to the agents of `envoy.peers`, by result.",
                &[Label::one_of("result", peer_results)],
            )?,
            shed: catalogue.gauges(
                "plimsoll_shed_ratio",
                "ratio",
                "Fraction of the cluster's traffic that Envoy is told to refuse.",
                &[Label::service()],
            )?,
            nodes: catalogue.gauges(
                "plimsoll_cluster_nodes",
                "nodes",
                "Nodes in Envoy's endpoints, by health.",
                &[Label::service(), Label::one_of("health", healths)],
            )?,
            orca_streams: catalogue.gauge(
                "plimsoll_orca_streams",
                "streams",
                "Open streams of load reports (ORCA).",
            )?,
            services: catalogue.services(),
        })
    }

    /// Sets the gauges of a service's cluster.
    pub fn show_cluster(&self, service: &str, shed: f64, nodes: [(&str, usize); 3]) {
        self.shed.with_label_values(&[service]).set(shed);
        for (health, count) in nodes {
            let gauge = self.nodes.with_label_values(&[service, health]);
            gauge.set(count as f64);
        }
    }

    /// Removes all series of a service that is no longer served.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
    }
}
