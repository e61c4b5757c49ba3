//! The node as `/v1/node` and `plimsoll node status` show it.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};

use ipnet::IpNet;
use plimsoll_core::{Cost, Seconds};
use plimsoll_node::{
    learned::{LearnedStore, LearnedView},
    overrides::Overrides,
    state::{ServiceState, SharedState, unix_now},
};
use plimsoll_wire::{
    Listener, NodeDecision, NodeLearned, NodeService, NodeView, Override, ServiceSettings, Shed,
    SlaView, SourceSight,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    agent_check::{OutputSettings, Proxies, SharedOutputSettings},
    envoy::EnvoyBoard,
};

/// State behind `/v1/node`, the health checks and the control socket.
#[derive(Clone)]
pub struct NodeContext {
    /// The last decisions.
    pub state: SharedState,
    /// Services and limits.
    pub settings: SharedOutputSettings,
    /// Operators' overrides.
    pub overrides: Arc<Overrides>,
    /// Learned capacity and settings of the node.
    pub learned: Arc<LearnedStore>,
    /// Proxies that poll.
    pub proxies: Arc<Proxies>,
    /// Endpoints as Envoy gets them.
    pub envoy: Arc<EnvoyBoard>,
    /// When the agent started.
    pub started: Instant,
}

/// The node now.
pub fn node_view(context: &NodeContext) -> NodeView<NodeService> {
    let settings = context.settings.load();
    let now = Instant::now();
    let state = context.state.load();
    let service = |(name, state): (&String, &Arc<ServiceState>)| {
        (name.clone(), service_view(context, &settings, state, now))
    };
    let listener =
        |key: &str, address: SocketAddr, allow: &Option<Vec<IpNet>>, requires: &[&str]| {
            let networks = allow
                .as_ref()
                .map(|it| it.iter().map(IpNet::to_string).collect());
            let listener = Listener {
                address: address.to_string(),
                allow: networks,
                requires: requires.iter().map(|&it| it.to_owned()).collect(),
            };
            (key.to_owned(), listener)
        };
    let agent_check = &settings.agent_check;
    NodeView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        unix_time: Some(unix_now()),
        listeners: BTreeMap::from([
            listener(
                "agent_check.listen",
                agent_check.listen,
                &agent_check.allow,
                &[],
            ),
            listener(
                "http.listen",
                settings.http_listen,
                &settings.http_allow,
                &settings.http_requires,
            ),
        ]),
        uptime_seconds: now.saturating_duration_since(context.started).as_secs_f64(),
        services: state.services.iter().map(service).collect(),
    }
}

/// One service now.
pub(super) fn service_view(
    context: &NodeContext,
    settings: &OutputSettings,
    state: &ServiceState,
    now: Instant,
) -> NodeService {
    let (name, jobs) = (&state.service, state.decision.bound_jobs);
    let lease = settings.agent_check.proxy_lease;
    NodeService {
        learned: context.learned.view(name, now).map(learned),
        shed: context.envoy.shed(name, settings.period),
        set: context.overrides.of(name).into(),
        proxies: context.proxies.view(name, jobs, now, lease),
        ..service(state)
    }
}

/// View of a service's state.
pub(super) fn service(state: &ServiceState) -> NodeService {
    let (sla, decision) = (&state.settings.sla, &state.decision);
    NodeService {
        address: state.address.clone(),
        settings: ServiceSettings {
            sla: SlaView {
                delay: sla.delay.get(),
                more: without(sla, &["delay"]),
            },
            mode: state.settings.mode,
            more: without(&state.settings, &["sla", "mode"]),
        },
        decision: NodeDecision {
            bound: decision.bound.get(),
            bound_jobs: decision.bound_jobs,
            reason: decision.reason.as_str().to_owned(),
            measured_delay: decision.measured_delay.map(Seconds::get),
            more: without(
                decision,
                &["bound", "bound_jobs", "reason", "measured_delay"],
            ),
        },
        weight_percent: state.weight_percent,
        capacity: Some(state.capacity.map(Cost::get)),
        weight_bound: state.weight_bound.get(),
        flow: state.flow,
        would_refuse: state.would_refuse,
        health: state.health,
        health_detail: state.health_detail.clone(),
        set: Override::default(),
        finished: state.finished,
        failed: state.failed,
        jobs: state.jobs,
        load: state.load,
        backlog: state.backlog.map(Cost::get),
        stepped_at: state.stepped_at,
        observed_seconds: state.observed_seconds,
        observed_at: state.observed_at,
        source_error: state.source_error.clone(),
        sight: state.sight.map(|sight| SourceSight {
            ratio: sight.ratio,
            unseen: sight.unseen.map(Seconds::get),
        }),
        learned: None,
        shed: Shed::default(),
        proxies: Vec::new(),
        more: without(
            &json!({
                "service": state.service,
                "role": state.role,
                "delay": state.delay,
                "host_load": state.host_load,
                "updates": state.updates,
                "listen_backlog": state.listen_backlog,
            }),
            &[],
        ),
    }
}

fn learned(view: LearnedView) -> NodeLearned {
    NodeLearned {
        age_seconds: view.age_seconds,
        earlier_run: view.earlier_run,
        more: without(&view.figures, &[]),
    }
}

/// Its fields, without those that have a place of their own.
fn without(shown: &impl Serialize, typed: &[&str]) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(shown) else {
        return Map::new();
    };
    fields.retain(|key, _| !typed.contains(&key.as_str()));
    fields
}
