//! `GET /v1/node`: an agent's view of its node and its last decisions. Read by other agents and the command line.

use std::{collections::BTreeMap, net::IpAddr};

use plimsoll_core::{Flow, ServiceMode};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The response body. Each service stays unparsed until a reader calls [`NodeService::parse`], so that a malformed
/// one does not affect the others.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeView<S = Value> {
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// Seconds since the agent's start.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// The node's clock: Unix time in seconds.
    pub unix_time: Option<f64>,
    /// Listening ports by configuration key.
    #[serde(default)]
    pub listeners: BTreeMap<String, Listener>,
    /// Services by name; a service appears with its first step.
    pub services: BTreeMap<String, S>,
}

/// A listening port.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Listener {
    /// Address and port.
    pub address: String,
    /// Networks that may connect; null allows all.
    pub allow: Option<Vec<String>>,
    /// What clients must show: `token` for all but reading, `client_certificate` for everything. Older agents do not
    /// send it.
    #[serde(default)]
    pub requires: Vec<String>,
}

/// A service. Fields that older agents do not send are optional.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeService {
    /// "host:port" that proxies connect to, if configured.
    pub address: Option<String>,
    /// Current settings.
    #[serde(default)]
    pub settings: ServiceSettings,
    /// Last decision of the controller.
    pub decision: NodeDecision,
    /// Weight derived from the bound: percent of the configured weight, 1..=256.
    #[serde(default)]
    pub weight_percent: u16,
    /// Capacity that weights and shares of keys are computed from, in cost units; null while unknown. Older agents
    /// that do not send it always know it.
    #[serde(default, deserialize_with = "said")]
    pub capacity: Option<Option<f64>>,
    /// Capacity that its weight represents among the nodes, in cost units.
    pub weight_bound: f64,
    /// Work done in the last period; null while the source fails.
    pub flow: Option<Flow>,
    /// Cost per second that would have been refused in the last period, in observe mode.
    pub would_refuse: Option<f64>,
    /// Whether the node may receive requests.
    pub health: Health,
    /// Short explanation of why it is down.
    pub health_detail: Option<String>,
    /// Overrides by an operator.
    #[serde(rename = "override")]
    pub set: Override,
    /// Requests that succeeded in the last period.
    #[serde(default)]
    pub finished: u64,
    /// Requests that failed in the last period.
    #[serde(default)]
    pub failed: u64,
    /// Jobs in the node at the end of the last period.
    pub jobs: Option<f64>,
    /// Load of the node as reported to schedulers.
    #[serde(default)]
    pub load: f64,
    /// Jobs times mean cost, in cost units.
    pub backlog: Option<f64>,
    /// Unix time of the last step, in seconds.
    #[serde(default)]
    pub stepped_at: f64,
    /// Length of the last period in seconds; null while the source fails.
    pub observed_seconds: Option<f64>,
    /// Unix time of the last successful observation, in seconds.
    pub observed_at: Option<f64>,
    /// Last error of the source; null while it works.
    pub source_error: Option<String>,
    /// How the source's delays compare with jobs over throughput, if both are known.
    pub sight: Option<SourceSight>,
    /// State learned by its load line.
    pub learned: Option<NodeLearned>,
    /// Fraction of the traffic that Envoy is told to shed.
    pub shed: Shed,
    /// Proxies that share the bound.
    #[serde(default)]
    pub proxies: Vec<ProxyView>,
    /// Fields not read by programs: the delay's distribution, the host's load, the database's role, updates.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The settings of a controller that programs read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ServiceSettings {
    /// The SLA.
    #[serde(default)]
    pub sla: SlaView,
    /// Whether proxies apply the decisions; older agents that do not send it always enforce.
    #[serde(default)]
    pub mode: ServiceMode,
    /// Fields not read by programs.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The fields of an SLA that programs read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct SlaView {
    /// Promised service delay in seconds.
    #[serde(default)]
    pub delay: f64,
    /// Fields not read by programs.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The fields of a decision that programs read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeDecision {
    /// Maximum backlog of the node, in cost units.
    pub bound: f64,
    /// The bound in jobs.
    #[serde(default)]
    pub bound_jobs: f64,
    /// The rule that determined the bound.
    #[serde(default)]
    pub reason: String,
    /// The objective, measured on finished requests, in seconds.
    pub measured_delay: Option<f64>,
    /// Fields not read by programs.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Health of a service's node, regardless of its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No probe is configured or the probe passes, and the database, if any, is fresh.
    Up,
    /// The local probe fails, or reading from the database is not allowed.
    Down,
}

/// Health set by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedHealth {
    /// Up, whatever the probe reports.
    Up,
    /// Down, whatever the probe reports.
    Down,
}

/// An operator's overrides for one service.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Override {
    /// Whether proxies are told to drain.
    pub drain: bool,
    /// Replaces the probe's result.
    pub health: Option<ForcedHealth>,
    /// Replaces the weight derived from the bound: 1..=256 percent.
    pub weight_percent: Option<u16>,
    /// Replaces the controller's bound, in cost units.
    pub bound: Option<f64>,
}

/// How much of the delay a source sees.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SourceSight {
    /// Delay computed as jobs over throughput, divided by the source's delay; 1 if the source sees all of it.
    pub ratio: f64,
    /// Mean delay that the source does not see, in seconds; null if the source is not blind.
    pub unseen: Option<f64>,
}

/// The fields of a load line's learned state that programs read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeLearned {
    /// Seconds since the rate was learned.
    pub age_seconds: f64,
    /// Whether it was learned before the agent's last start.
    pub earlier_run: bool,
    /// Fields not read by programs: the figures.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The fraction of a service's traffic that an agent wants shed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shed {
    /// Fraction from 0 to 0.98.
    pub fraction: f64,
    /// Whether a proxy has polled recently, so that the fraction is in force.
    pub asked: bool,
}

/// A proxy that polls the agent-check.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProxyView {
    /// Identity it polls under.
    pub identity: String,
    /// Its name if known, otherwise its address.
    pub proxy: String,
    /// Address it last polled from.
    pub address: IpAddr,
    /// Seconds since its last poll.
    pub polled_seconds_ago: f64,
    /// Its share of the bound, in jobs.
    pub share_jobs: u32,
    /// The last answer it received.
    pub told: String,
}

impl NodeView {
    /// Parses a response body; the error names the field.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|problem| problem.to_string())
    }
}

impl NodeService {
    /// Parses a service of the response; the error names the field.
    pub fn parse(service: Value) -> Result<Self, String> {
        serde_json::from_value(service).map_err(|problem| problem.to_string())
    }
}

/// Distinguishes null from an absent field.
fn said<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(value).map(Some)
}
