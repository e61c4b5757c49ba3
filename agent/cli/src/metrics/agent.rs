//! The agent itself.

use plimsoll_exposition::{Catalogue, Label};
use plimsoll_net::{CLOSED, REFUSED};
use prometheus::{Gauge, IntCounterVec, Result};

use crate::build;

/// Of any process.
#[derive(Clone, Debug)]
pub struct ProcessMetrics {
    reloads: IntCounterVec,
    last_reload: Gauge,
    /// HTTP connections closed by us, by reason.
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
            "What the program was built from.",
            &[
                Label::are("version", "the program's"),
                Label::are("commit", "of the source, `unknown` unless packaged"),
                Label::are("license", "an SPDX expression"),
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
                "Whether the configuration file was in order when it was last read.",
            )?,
            http_closed: catalogue.counters(
                "plimsoll_http_connections_closed_total",
                "connections",
                "HTTP and gRPC connections that were closed, by reason (docs/http-api.md).",
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

    /// The configuration was read again.
    pub fn reloaded(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "refused" };
        self.reloads.with_label_values(&[result]).inc();
        self.last_reload.set(f64::from(u8::from(is_applied)));
    }
}

/// Of the agent.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    /// Of its process.
    pub process: ProcessMetrics,
    /// Tasks started again after a panic.
    pub task_restarts: IntCounterVec,
    /// Exchanges of proxies, by result.
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
                "Tasks started again after a panic.",
                &[Label::one_of(
                    "task",
                    ["control_loop", "ring", "envoy", "placement"],
                )],
            )?,
            exchanges: catalogue.counters(
                "plimsoll_exchanges_total",
                "requests",
                "Times a proxy asked for shares through this agent, by result (docs/http-api.md).",
                &[Label::one_of(
                    "result",
                    ["carried", "refused", "unauthorized", "busy", "redis"],
                )],
            )?,
        })
    }
}
