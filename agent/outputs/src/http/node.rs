//! The node as `/v1/node` and `plimsoll node status` show it.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};

use ipnet::IpNet;

use plimsoll_node::{
    learned::{LearnedStore, LearnedView},
    overrides::{Overrides, ServiceOverride},
    state::{ServiceState, SharedState, unix_now},
};
use serde::Serialize;

use crate::{
    agent_check::{Proxies, ProxyView, SharedOutputSettings},
    envoy::{EnvoyBoard, Shed},
};

/// What `/v1/node`, the health checks and the control socket show.
#[derive(Clone)]
pub struct NodeContext {
    /// The last decisions.
    pub state: SharedState,
    /// Services and limits.
    pub settings: SharedOutputSettings,
    /// What operators set.
    pub overrides: Arc<Overrides>,
    /// What was learned of the node.
    pub learned: Arc<LearnedStore>,
    /// Who polls.
    pub proxies: Arc<Proxies>,
    /// What Envoy is told.
    pub envoy: Arc<EnvoyBoard>,
    /// When the agent started.
    pub started: Instant,
}

/// The whole node.
#[derive(Debug, Serialize)]
pub struct NodeView {
    /// The agent's version.
    pub version: &'static str,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// The node's clock, Unix time.
    pub unix_time: f64,
    /// By configuration key.
    pub listeners: BTreeMap<&'static str, ListenerView>,
    /// By service name; a service appears with its first step.
    pub services: BTreeMap<String, ServiceView>,
}

/// A port that proxies or people ask.
#[derive(Debug, Serialize)]
pub struct ListenerView {
    /// Address and port.
    pub address: SocketAddr,
    /// Networks that may connect; null: all.
    pub allow: Option<Vec<String>>,
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
pub fn node_view(context: &NodeContext) -> NodeView {
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
            proxies: context
                .proxies
                .view(name, jobs, now, settings.agent_check.proxy_lease),
        };
        (name.clone(), view)
    };
    let listener = |address, allow: &Option<Vec<IpNet>>| ListenerView {
        address,
        allow: allow
            .as_ref()
            .map(|networks| networks.iter().map(ToString::to_string).collect()),
    };
    let agent_check = &settings.agent_check;
    NodeView {
        version: env!("CARGO_PKG_VERSION"),
        unix_time: unix_now(),
        listeners: BTreeMap::from([
            (
                "agent_check.listen",
                listener(agent_check.listen, &agent_check.allow),
            ),
            (
                "http.listen",
                listener(settings.http_listen, &settings.http_allow),
            ),
        ]),
        uptime_seconds: now.saturating_duration_since(context.started).as_secs_f64(),
        services: state.services.iter().map(service).collect(),
    }
}
