//! Counters of the agent-check server.

use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{GaugeVec, IntCounterVec, Result};

use super::answer::Kind;

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
    /// More proxies than a bound is shared by, or of one address.
    ProxyLimit,
    /// The answer could not be written in time.
    Timeout,
    /// From an address that may not ask.
    NotAllowed,
}

impl Rejected {
    /// Every one of them.
    pub const ALL: [Rejected; 7] = [
        Rejected::UnknownIdentity,
        Rejected::LineTooLong,
        Rejected::BadLine,
        Rejected::ConnectionLimit,
        Rejected::ProxyLimit,
        Rejected::Timeout,
        Rejected::NotAllowed,
    ];

    /// The value of the `reason` label.
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
    /// Checks that got an empty line or none.
    pub rejected: IntCounterVec,
    /// Proxies with a lease.
    pub proxies: GaugeVec,
    services: Services,
}

impl AgentCheckMetrics {
    /// Registers them.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Agent checks (HAProxy)");
        let answers = Kind::ALL.map(Kind::as_str);
        let reasons = Rejected::ALL.map(Rejected::as_str);
        Ok(AgentCheckMetrics {
            checks: catalogue.counters(
                "plimsoll_agent_checks_total",
                "checks",
                "Agent checks answered, by the kind of answer.",
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
                "Proxies that share the bound: those that polled within their lease.",
                &[Label::service()],
            )?,
            services: catalogue.services(),
        })
    }

    /// Takes out all of a service that was removed.
    pub fn forget(&self, service: &str) {
        self.services.forget(service);
    }
}
