//! Metrics of the control loops and of the agent itself.

use std::collections::HashMap;

use plimsoll_core::Reason;
use prometheus::{
    GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::{Collector, MetricVec, MetricVecBuilder},
};

use crate::state::ServiceState;

/// All of them; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    sla_delay: GaugeVec,
    delay: GaugeVec,
    mean_delay: GaugeVec,
    error: GaugeVec,
    bound: GaugeVec,
    bound_jobs: GaugeVec,
    backlog: GaugeVec,
    jobs: GaugeVec,
    weight: IntGaugeVec,
    bound_changes: IntCounterVec,
    steps: IntCounterVec,
    /// Observations that failed, by kind.
    pub source_failures: IntCounterVec,
    /// HAProxy log lines, by what became of them.
    pub source_lines: IntCounterVec,
    /// Log connections closed to make room for newer ones.
    pub source_connections_closed: IntCounterVec,
    /// Tasks started again after a panic.
    pub task_restarts: IntCounterVec,
    /// Reloads, by result.
    pub reloads: IntCounterVec,
    /// Questions to other agents, by result.
    pub peer_asked: IntCounterVec,
    /// Envoy's discovery requests, by result.
    pub discoveries: IntCounterVec,
    shed: GaugeVec,
    cluster_nodes: IntGaugeVec,
    /// Streams of load reports.
    pub orca_streams: IntGauge,
    /// HTTP connections closed at once.
    pub http_refused: IntCounter,
    /// Exchanges of proxies, by result.
    pub exchanges: IntCounterVec,
    redis_reports: IntCounterVec,
    redis_failures: IntCounterVec,
    ring_version: IntGaugeVec,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name, help, labels: &[&str]| {
            let gauge = GaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        let counter = |name, help, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry
                .register(Box::new(counter.clone()))
                .map(|()| counter)
        };
        let weight = IntGaugeVec::new(
            Opts::new(
                "plimsoll_weight_percent",
                "Weight for the bound, in percent of the configured weight.",
            ),
            &["service"],
        )?;
        registry.register(Box::new(weight.clone()))?;
        let ring_version = IntGaugeVec::new(
            Opts::new(
                "plimsoll_ring_version",
                "Version of the ring in Redis at the last report; 0 while there is none.",
            ),
            &["service"],
        )?;
        registry.register(Box::new(ring_version.clone()))?;
        let cluster_nodes = IntGaugeVec::new(
            Opts::new(
                "plimsoll_cluster_nodes",
                "Nodes that Envoy is told of, by health.",
            ),
            &["service", "health"],
        )?;
        registry.register(Box::new(cluster_nodes.clone()))?;
        let orca_streams = IntGauge::new(
            "plimsoll_orca_streams",
            "Open streams of load reports (ORCA).",
        )?;
        registry.register(Box::new(orca_streams.clone()))?;
        let build = IntGaugeVec::new(
            Opts::new("plimsoll_build_info", "Always 1; the version is a label."),
            &["version"],
        )?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let http_refused = IntCounter::new(
            "plimsoll_http_connections_refused_total",
            "HTTP connections closed at once, since there were too many.",
        )?;
        registry.register(Box::new(http_refused.clone()))?;
        let metrics = Metrics {
            http_refused,
            sla_delay: gauge(
                "plimsoll_sla_delay_seconds",
                "Service delay promised.",
                &["service"],
            )?,
            delay: gauge(
                "plimsoll_delay_seconds",
                "Delay of the requests finished in the last period that had any, by quantile.",
                &["service", "quantile"],
            )?,
            mean_delay: gauge(
                "plimsoll_mean_delay_seconds",
                "Mean delay of the requests finished in the last period that had any.",
                &["service"],
            )?,
            error: gauge(
                "plimsoll_error_ratio",
                "Error the law last worked on, relative to the target: positive when there is room.",
                &["service"],
            )?,
            bound: gauge(
                "plimsoll_bound",
                "Backlog bound in cost units.",
                &["service"],
            )?,
            bound_jobs: gauge(
                "plimsoll_bound_jobs",
                "Backlog bound in jobs.",
                &["service"],
            )?,
            backlog: gauge(
                "plimsoll_backlog",
                "Backlog in cost units: jobs times mean cost.",
                &["service"],
            )?,
            jobs: gauge("plimsoll_jobs", "Jobs in the node.", &["service"])?,
            weight,
            bound_changes: counter(
                "plimsoll_bound_changes_total",
                "Steps that moved the bound, by reason.",
                &["service", "reason"],
            )?,
            steps: counter(
                "plimsoll_steps_total",
                "Controller steps, by reason.",
                &["service", "reason"],
            )?,
            source_failures: counter(
                "plimsoll_source_failures_total",
                "Observations that failed, by kind.",
                &["service", "kind"],
            )?,
            source_lines: counter(
                "plimsoll_source_lines_total",
                "HAProxy log lines received, by what became of them.",
                &["service", "result"],
            )?,
            source_connections_closed: counter(
                "plimsoll_source_connections_closed_total",
                "Connections for HAProxy log lines closed to make room for newer ones.",
                &["service"],
            )?,
            task_restarts: counter(
                "plimsoll_task_restarts_total",
                "Tasks started again after a panic.",
                &["task"],
            )?,
            reloads: counter(
                "plimsoll_config_reloads_total",
                "Configuration reloads, by result.",
                &["result"],
            )?,
            peer_asked: counter(
                "plimsoll_peer_requests_total",
                "Questions to other agents, by result.",
                &["result"],
            )?,
            discoveries: counter(
                "plimsoll_discovery_requests_total",
                "Requests of Envoy for endpoints, by result.",
                &["result"],
            )?,
            shed: gauge(
                "plimsoll_shed_ratio",
                "Share of the cluster's traffic that Envoy is told to refuse.",
                &["service"],
            )?,
            cluster_nodes,
            orca_streams,
            exchanges: counter(
                "plimsoll_exchanges_total",
                "Times a proxy asked for shares through this agent, by result.",
                &["result"],
            )?,
            redis_reports: counter(
                "plimsoll_redis_reports_total",
                "Reports that Redis took.",
                &["service"],
            )?,
            redis_failures: counter(
                "plimsoll_redis_failures_total",
                "Times Redis could not be reached or refused a report.",
                &["service"],
            )?,
            ring_version,
        };
        for result in ["applied", "refused"] {
            metrics.reloads.with_label_values(&[result]);
        }
        for result in ["answered", "unchanged", "unready", "refused"] {
            metrics.discoveries.with_label_values(&[result]);
        }
        for result in ["carried", "refused", "unauthorized", "busy", "redis"] {
            metrics.exchanges.with_label_values(&[result]);
        }
        Ok(metrics)
    }

    /// Makes a service's counters appear with zero.
    pub fn announce(&self, service: &str) {
        for reason in Reason::ALL {
            self.bound_changes
                .with_label_values(&[service, reason.as_str()]);
            self.steps.with_label_values(&[service, reason.as_str()]);
        }
    }

    /// Redis took a report and told its ring's version.
    pub fn reported(&self, service: &str, version: u64) {
        self.redis_reports.with_label_values(&[service]).inc();
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        self.ring_version.with_label_values(&[service]).set(version);
    }

    /// What Envoy is told of a service's cluster.
    pub fn show_cluster(&self, service: &str, shed: f64, nodes: [(&str, usize); 3]) {
        self.shed.with_label_values(&[service]).set(shed);
        for (health, count) in nodes {
            let gauge = self.cluster_nodes.with_label_values(&[service, health]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Redis was lost, or refused.
    pub fn redis_failed(&self, service: &str) {
        self.redis_failures.with_label_values(&[service]).inc();
    }

    /// After a step.
    pub fn stepped(&self, state: &ServiceState) {
        let labels = [state.service.as_str(), state.decision.reason.as_str()];
        self.steps.with_label_values(&labels).inc();
        if state.decision.bound != state.decision.previous {
            self.bound_changes.with_label_values(&labels).inc();
        }
    }

    /// Brings the gauges up to date.
    pub fn show(&self, state: &ServiceState) {
        let service = [state.service.as_str()];
        let decision = &state.decision;
        self.sla_delay
            .with_label_values(&service)
            .set(state.settings.sla.delay.get());
        self.bound
            .with_label_values(&service)
            .set(decision.bound.get());
        self.bound_jobs
            .with_label_values(&service)
            .set(decision.bound_jobs);
        self.weight
            .with_label_values(&service)
            .set(state.weight_percent.into());
        if let Some(error) = decision.error {
            self.error.with_label_values(&service).set(error);
        }
        if let Some(delay) = &state.delay {
            self.mean_delay
                .with_label_values(&service)
                .set(delay.mean.get());
            for (quantile, value) in [("0.5", delay.p50), ("0.95", delay.p95), ("0.99", delay.p99)]
            {
                self.delay
                    .with_label_values(&[service[0], quantile])
                    .set(value.get());
            }
        }
        for (gauge, value) in [
            (&self.jobs, state.jobs),
            (&self.backlog, state.backlog.map(|backlog| backlog.get())),
        ] {
            match value {
                Some(value) => gauge.with_label_values(&service).set(value),
                // The count of a while ago would pass for the one of now. Absent already is as good.
                None => drop(gauge.remove_label_values(&service)),
            }
        }
    }

    /// Takes out all of a service that was removed.
    pub fn forget(&self, service: &str) {
        for gauge in [
            &self.sla_delay,
            &self.delay,
            &self.mean_delay,
            &self.error,
            &self.bound,
            &self.bound_jobs,
            &self.backlog,
            &self.jobs,
            &self.shed,
        ] {
            forget(gauge, service);
        }
        forget(&self.weight, service);
        forget(&self.ring_version, service);
        forget(&self.cluster_nodes, service);
        for counter in [
            &self.bound_changes,
            &self.steps,
            &self.source_failures,
            &self.source_lines,
            &self.source_connections_closed,
            &self.redis_reports,
            &self.redis_failures,
        ] {
            forget(counter, service);
        }
    }
}

/// Removes every series with this `service` label.
pub fn forget<T: MetricVecBuilder>(metrics: &MetricVec<T>, service: &str) {
    for family in metrics.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> = metric
                .get_label()
                .iter()
                .map(|label| (label.name(), label.value()))
                .collect();
            if labels.get("service") == Some(&service) {
                // Gone already is as good.
                let _ = metrics.remove(&labels);
            }
        }
    }
}
