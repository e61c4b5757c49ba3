//! Metrics of the shared rings and Redis.

use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{GaugeVec, IntCounterVec, Result};

use plimsoll_wire::Ring;

use crate::ring::{RingNodes, RingSettings};

/// Metrics of the shared rings.
#[derive(Clone, Debug)]
pub struct RingMetrics {
    info: GaugeVec,
    lease: GaugeVec,
    reports: IntCounterVec,
    failures: IntCounterVec,
    last_report: GaugeVec,
    version: GaugeVec,
    slots: GaugeVec,
    wanted: GaugeVec,
    realised: GaugeVec,
    moved: IntCounterVec,
    nodes: GaugeVec,
    cluster_bound: GaugeVec,
    services: Services,
}

impl RingMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Ring and Redis (services with `[service.ring]`)");
        let service = [Label::service()];
        let names = [
            Label::service(),
            Label::are("plimsoll_cluster", "the ring's `cluster`"),
            Label::are("plimsoll_node", "the ring's `node`"),
        ];
        let mut gauge = |name, unit, help| catalogue.gauges(name, unit, help, &service);
        let (lease, last_report, version, slots) = (
            gauge(
                "plimsoll_ring_lease_seconds",
                "seconds",
                "Time without a report after which the node leaves the ring.",
            )?,
            gauge(
                "plimsoll_redis_last_report_timestamp_seconds",
                "seconds since 1970",
                "Time of the last successful report; 0 before the first.",
            )?,
            gauge(
                "plimsoll_ring_version",
                "version",
                "Version of the ring in Redis at the last report; 0 if there is none.",
            )?,
            gauge(
                "plimsoll_ring_slots",
                "slots",
                "Number of slots of the ring that this agent follows.",
            )?,
        );
        Ok(RingMetrics {
            lease,
            last_report,
            version,
            slots,
            wanted: gauge(
                "plimsoll_ring_wanted_ratio",
                "ratio",
                "This node's bound over the sum of the live nodes' bounds; at most 10 s old.",
            )?,
            realised: gauge(
                "plimsoll_ring_realised_ratio",
                "ratio",
                "This node's slots over all slots.",
            )?,
            nodes: gauge("plimsoll_ring_nodes", "nodes", "Live nodes in Redis.")?,
            cluster_bound: gauge(
                "plimsoll_cluster_bound",
                "cost units",
                "Sum of the live nodes' bounds in Redis.",
            )?,
            info: catalogue.gauges(
                "plimsoll_ring_info",
                "always 1",
                "The names of this agent's ring and node.",
                &names,
            )?,
            moved: catalogue.counters(
                "plimsoll_ring_moved_slots_total",
                "slots",
                "Slots that changed owner, in the ring versions that this agent saw.",
                &service,
            )?,
            reports: catalogue.counters(
                "plimsoll_redis_reports_total",
                "reports",
                "Successful reports to Redis.",
                &service,
            )?,
            failures: catalogue.counters(
                "plimsoll_redis_failures_total",
                "failures",
                "Reports that failed because Redis was unreachable or returned an error.",
                &service,
            )?,
            services: catalogue.services(),
        })
    }

    /// Sets the info and lease gauges of a service that joins a ring.
    pub fn placed(&self, service: &str, ring: &RingSettings) {
        self.services.announce(service);
        self.last_report.with_label_values(&[service]);
        let lease = self.lease.with_label_values(&[service]);
        lease.set(ring.lease.as_secs_f64());
        plimsoll_exposition::forget(&self.info, service);
        let labels = [service, &ring.cluster, &ring.node];
        self.info.with_label_values(&labels).set(1.0);
    }

    /// Removes all series of a service.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
    }

    /// Records a successful report at the Unix time `at`, with the ring's version.
    pub fn reported(&self, service: &str, at: f64, version: u64) {
        self.reports.with_label_values(&[service]).inc();
        self.last_report.with_label_values(&[service]).set(at);
        let gauge = self.version.with_label_values(&[service]);
        gauge.set(version as f64);
    }

    /// Counts a failure to reach or use Redis.
    pub fn failed(&self, service: &str) {
        self.failures.with_label_values(&[service]).inc();
    }

    /// Sets the gauges of the live nodes in Redis.
    pub fn show_nodes(&self, service: &str, own: &str, nodes: &RingNodes) {
        let sum: f64 = nodes.values().map(|node| node.bound).sum();
        let bound = nodes.get(own).map_or(0.0, |node| node.bound);
        // With all nodes out, none wants any share.
        let wanted = if sum > 0.0 { bound / sum } else { 0.0 };
        for (gauge, value) in [
            (&self.wanted, wanted),
            (&self.nodes, nodes.len() as f64),
            (&self.cluster_bound, sum),
        ] {
            gauge.with_label_values(&[service]).set(value);
        }
    }

    /// Counts slots that changed owner.
    pub fn moved(&self, service: &str, slots: usize) {
        let counter = self.moved.with_label_values(&[service]);
        counter.inc_by(slots as u64);
    }

    /// Sets the gauges of the current ring.
    pub fn show_ring(&self, service: &str, own: &str, ring: &Ring) {
        let slots = f64::from(ring.table.slots());
        let index = ring.names.iter().position(|name| name == own);
        let size = index.and_then(|index| ring.table.sizes().get(index).copied());
        let realised = f64::from(size.unwrap_or(0)) / slots;
        self.slots.with_label_values(&[service]).set(slots);
        self.realised.with_label_values(&[service]).set(realised);
    }
}
