//! Counters of the agent-check server.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::metrics::forget;

/// Why a check got no answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// No such identity, or none sent and several services.
    UnknownIdentity,
    /// No line end within the longest line.
    LineTooLong,
    /// Not one or two words of text.
    BadLine,
    /// Closed to make room for a newer connection.
    ConnectionLimit,
    /// More proxies than a bound is shared by.
    ProxyLimit,
    /// The answer could not be written in time.
    Timeout,
}

impl Rejected {
    /// The value of the `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejected::UnknownIdentity => "unknown_identity",
            Rejected::LineTooLong => "line_too_long",
            Rejected::BadLine => "bad_line",
            Rejected::ConnectionLimit => "connection_limit",
            Rejected::ProxyLimit => "proxy_limit",
            Rejected::Timeout => "timeout",
        }
    }
}

/// The server's metrics.
#[derive(Clone, Debug)]
pub struct AgentCheckMetrics {
    /// Answers by service and kind.
    pub checks: IntCounterVec,
    /// Checks that got an empty line or none.
    pub rejected: IntCounterVec,
    /// Proxies with a lease.
    pub proxies: IntGaugeVec,
}

impl AgentCheckMetrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = AgentCheckMetrics {
            checks: IntCounterVec::new(
                Opts::new(
                    "plimsoll_agent_checks_total",
                    "Agent checks answered, by the kind of answer.",
                ),
                &["service", "answer"],
            )?,
            rejected: IntCounterVec::new(
                Opts::new(
                    "plimsoll_agent_check_rejected_total",
                    "Agent-check connections that got an empty answer or none, by reason.",
                ),
                &["reason"],
            )?,
            proxies: IntGaugeVec::new(
                Opts::new(
                    "plimsoll_proxies",
                    "Proxies that share the bound: those that polled within their lease.",
                ),
                &["service"],
            )?,
        };
        registry.register(Box::new(metrics.checks.clone()))?;
        registry.register(Box::new(metrics.rejected.clone()))?;
        registry.register(Box::new(metrics.proxies.clone()))?;
        Ok(metrics)
    }

    /// Takes out all of a service that was removed.
    pub fn forget(&self, service: &str) {
        forget(&self.checks, service);
        forget(&self.proxies, service);
    }
}
