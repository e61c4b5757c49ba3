//! The shared ring, and Redis.

use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{GaugeVec, IntCounterVec, Result};

use plimsoll_wire::Ring;

use crate::ring::{RingNodes, RingSettings};

/// Of the shared rings.
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
    /// Registers them.
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
                "Without a report for this long the node leaves the ring.",
            )?,
            gauge(
                "plimsoll_redis_last_report_timestamp_seconds",
                "seconds since 1970",
                "When Redis last took a report; 0 before the first.",
            )?,
            gauge(
                "plimsoll_ring_version",
                "version",
                "Version of the ring in Redis at the last report; 0 while there is none.",
            )?,
            gauge(
                "plimsoll_ring_slots",
                "slots",
                "Slots of the ring as this agent knows it.",
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
                "This node's bound over the sum of the live nodes' bounds, at most 10 s old.",
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
                "Slots that changed owner, in the versions of the ring this agent saw.",
                &service,
            )?,
            reports: catalogue.counters(
                "plimsoll_redis_reports_total",
                "reports",
                "Reports that Redis took.",
                &service,
            )?,
            failures: catalogue.counters(
                "plimsoll_redis_failures_total",
                "failures",
                "Times Redis could not be reached or refused a report.",
                &service,
            )?,
            services: catalogue.services(),
        })
    }

    /// A service has this place in a ring from now on.
    pub fn placed(&self, service: &str, ring: &RingSettings) {
        self.services.announce(service);
        self.last_report.with_label_values(&[service]);
        let lease = self.lease.with_label_values(&[service]);
        lease.set(ring.lease.as_secs_f64());
        plimsoll_exposition::forget(&self.info, service);
        let labels = [service, &ring.cluster, &ring.node];
        self.info.with_label_values(&labels).set(1.0);
    }

    /// Takes out all of a service.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
    }

    /// Redis took a report at this Unix time and told its ring's version.
    pub fn reported(&self, service: &str, at: f64, version: u64) {
        self.reports.with_label_values(&[service]).inc();
        self.last_report.with_label_values(&[service]).set(at);
        let gauge = self.version.with_label_values(&[service]);
        gauge.set(version as f64);
    }

    /// Redis was lost, or refused.
    pub fn failed(&self, service: &str) {
        self.failures.with_label_values(&[service]).inc();
    }

    /// The live nodes, as Redis has them.
    pub fn show_nodes(&self, service: &str, own: &str, nodes: &RingNodes) {
        let sum: f64 = nodes.values().map(|node| node.bound).sum();
        let bound = nodes.get(own).map_or(0.0, |node| node.bound);
        // With every node out, nobody wants anything.
        let wanted = if sum > 0.0 { bound / sum } else { 0.0 };
        for (gauge, value) in [
            (&self.wanted, wanted),
            (&self.nodes, nodes.len() as f64),
            (&self.cluster_bound, sum),
        ] {
            gauge.with_label_values(&[service]).set(value);
        }
    }

    /// So many slots changed owner.
    pub fn moved(&self, service: &str, slots: usize) {
        let counter = self.moved.with_label_values(&[service]);
        counter.inc_by(slots as u64);
    }

    /// The ring in force.
    pub fn show_ring(&self, service: &str, own: &str, ring: &Ring) {
        let slots = f64::from(ring.table.slots());
        let index = ring.names.iter().position(|name| name == own);
        let size = index.and_then(|index| ring.table.sizes().get(index).copied());
        let realised = f64::from(size.unwrap_or(0)) / slots;
        self.slots.with_label_values(&[service]).set(slots);
        self.realised.with_label_values(&[service]).set(realised);
    }
}
