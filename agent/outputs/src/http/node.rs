//! The node as `/v1/node` and `plimsoll node status` show it.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use plimsoll_node::{learned::LearnedView, overrides::ServiceOverride, state::ServiceState};
use serde::Serialize;

use super::HttpContext;
use crate::{agent_check::ProxyView, envoy::Shed};

/// The whole node.
#[derive(Debug, Serialize)]
pub struct NodeView {
    /// The agent's version.
    pub version: &'static str,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// By service name; a service appears with its first step.
    pub services: BTreeMap<String, ServiceView>,
}

/// One service.
#[derive(Debug, Serialize)]
pub struct ServiceView {
    /// What was known and decided last.
    #[serde(flatten)]
    pub state: ServiceState,
    /// What its load line learned, and how long ago.
    pub learned: Option<LearnedView>,
    /// What Envoy is told to shed.
    pub shed: Shed,
    /// What an operator set.
    #[serde(rename = "override")]
    pub set: ServiceOverride,
    /// Who shares the bound.
    pub proxies: Vec<ProxyView>,
}

/// The node now.
pub fn node_view(context: &HttpContext) -> NodeView {
    let settings = context.settings.load();
    let now = Instant::now();
    let state = context.state.load();
    let service = |(name, state): (&String, &Arc<ServiceState>)| {
        let jobs = state.decision.bound_jobs;
        let view = ServiceView {
            state: ServiceState::clone(state),
            learned: context.learned.view(name, now),
            shed: context.envoy.shed(name, settings.period),
            set: context.overrides.of(name),
            proxies: context.proxies.view(name, jobs, now, settings.proxy_lease),
        };
        (name.clone(), view)
    };
    NodeView {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: now.saturating_duration_since(context.started).as_secs_f64(),
        services: state.services.iter().map(service).collect(),
    }
}
