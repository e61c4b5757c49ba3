//! Metrics of the agent itself.

use plimsoll_exposition::{Catalogue, Label};
use plimsoll_net::{CLOSED, REFUSED};
use prometheus::{Gauge, IntCounterVec, Result};

use crate::build;

/// Metrics of every Plimsoll process.
#[derive(Clone, Debug)]
pub struct ProcessMetrics {
    reloads: IntCounterVec,
    last_reload: Gauge,
    /// HTTP connections closed by the server, by reason.
    pub http_closed: IntCounterVec,
    /// HTTP requests refused for their token, by status.
    pub http_refused: IntCounterVec,
}

impl ProcessMetrics {
    /// Registers them.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        let build = catalogue.gauges(
            "plimsoll_build_info",
            "always 1",
            "Build information.",
            &[
                Label::are("version", "program version"),
                Label::are("commit", "source commit, `unknown` unless packaged"),
                Label::are("license", "SPDX expression"),
            ],
        )?;
        build
            .with_label_values(&[build::VERSION, build::COMMIT, build::LICENSE])
            .set(1.0);
        let metrics = ProcessMetrics {
            reloads: catalogue.counters(
                "plimsoll_config_reloads_total",
                "reloads",
                "Configuration reloads, by result.",
                &[Label::one_of("result", ["applied", "refused"])],
            )?,
            last_reload: catalogue.gauge(
                "plimsoll_config_last_reload_successful",
                "1 or 0",
                "Whether the last read of the configuration file succeeded.",
            )?,
            http_closed: catalogue.counters(
                "plimsoll_http_connections_closed_total",
                "connections",
                "HTTP and gRPC connections closed by the server, by reason (docs/http-api.md).",
                &[Label::one_of("reason", CLOSED)],
            )?,
            http_refused: catalogue.counters(
                "plimsoll_http_requests_refused_total",
                "requests",
                "HTTP requests that were refused for their token, by status: none that is valid, or one of a lesser role (docs/http-api.md).",
                &[Label::one_of("status", REFUSED)],
            )?,
        };
        metrics.last_reload.set(1.0);
        Ok(metrics)
    }

    /// Counts a reload of the configuration.
    pub fn reloaded(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "refused" };
        self.reloads.with_label_values(&[result]).inc();
        self.last_reload.set(f64::from(u8::from(is_applied)));
    }
}

/// Metrics of the agent process.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    /// Metrics of every Plimsoll process.
    pub process: ProcessMetrics,
    /// Tasks started again after a panic.
    pub task_restarts: IntCounterVec,
    /// Proxies' exchanges, by result.
    pub exchanges: IntCounterVec,
}

impl AgentMetrics {
    /// Registers them.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Agent");
        Ok(AgentMetrics {
            process: ProcessMetrics::new(catalogue)?,
            task_restarts: catalogue.counters(
                "plimsoll_task_restarts_total",
                "restarts",
                "Tasks restarted after a panic.",
                &[Label::one_of(
                    "task",
                    ["control_loop", "ring", "envoy", "placement"],
                )],
            )?,
            exchanges: catalogue.counters(
                "plimsoll_exchanges_total",
                "requests",
                "Proxies' requests for shares through this agent, by result (docs/http-api.md).",
                &[Label::one_of(
                    "result",
                    ["carried", "refused", "unauthorized", "busy", "redis"],
                )],
            )?,
        })
    }
}
