//! Metrics of the agent-check server.

use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{GaugeVec, IntCounterVec, Result};

use super::answer::Kind;

/// Why a check got an empty answer or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Unknown identity, or none although there are several services.
    UnknownIdentity,
    /// Line longer than the maximum.
    LineTooLong,
    /// Not one or two words of text.
    BadLine,
    /// Closed to make room for a newer connection.
    ConnectionLimit,
    /// Too many proxies for one bound, in total or from one address.
    ProxyLimit,
    /// The answer could not be written in time.
    Timeout,
    /// Address not allowed.
    NotAllowed,
}

impl Rejected {
    /// All reasons.
    pub const ALL: [Rejected; 7] = [
        Rejected::UnknownIdentity,
        Rejected::LineTooLong,
        Rejected::BadLine,
        Rejected::ConnectionLimit,
        Rejected::ProxyLimit,
        Rejected::Timeout,
        Rejected::NotAllowed,
    ];

    /// Value of the `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejected::UnknownIdentity => "unknown_identity",
            Rejected::LineTooLong => "line_too_long",
            Rejected::BadLine => "bad_line",
            Rejected::ConnectionLimit => "connection_limit",
            Rejected::ProxyLimit => "proxy_limit",
            Rejected::Timeout => "timeout",
            Rejected::NotAllowed => "not_allowed",
        }
    }
}

/// The server's metrics.
#[derive(Clone, Debug)]
pub struct AgentCheckMetrics {
    /// Answers by service and kind.
    pub checks: IntCounterVec,
    /// Checks that got an empty answer or none, by reason.
    pub rejected: IntCounterVec,
    /// Proxies with a lease, by service.
    pub proxies: GaugeVec,
    services: Services,
}

impl AgentCheckMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Agent checks (HAProxy)");
        let answers = Kind::ALL.map(Kind::as_str);
        let reasons = Rejected::ALL.map(Rejected::as_str);
        Ok(AgentCheckMetrics {
            checks: catalogue.counters(
                "plimsoll_agent_checks_total",
                "checks",
                "Answered agent checks, by kind of answer.",
                &[Label::service(), Label::one_of("answer", answers)],
            )?,
            rejected: catalogue.counters(
                "plimsoll_agent_check_rejected_total",
                "connections",
                "Agent-check connections that got an empty answer or none, by reason.",
                &[Label::one_of("reason", reasons)],
            )?,
            proxies: catalogue.gauges(
                "plimsoll_proxies",
                "proxies",
                "Proxies that share the bound, having polled within their lease.",
                &[Label::service()],
            )?,
            services: catalogue.services(),
        })
    }

    /// Removes all series of a service.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
    }
}
