//! `GET /v1/node`: what an agent knows of its node and decided last. Other agents and the command line read it.

use std::{collections::BTreeMap, net::IpAddr};

use plimsoll_core::{Flow, ServiceMode};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The answer. Readers take each service as JSON, so that one that they do not ask about cannot spoil it:
/// [`NodeService::parse`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeView<S = Value> {
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// Seconds since its start.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// The node's clock, Unix time in seconds.
    pub unix_time: Option<f64>,
    /// By configuration key.
    #[serde(default)]
    pub listeners: BTreeMap<String, Listener>,
    /// By service name; a service appears with its first step.
    pub services: BTreeMap<String, S>,
}

/// A port that proxies or people ask.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Listener {
    /// Address and port.
    pub address: String,
    /// Networks that may connect; null: all.
    pub allow: Option<Vec<String>>,
}

/// One service. What agents before it did not say may be absent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeService {
    /// "host:port" that proxies connect to, where it is configured.
    pub address: Option<String>,
    /// The settings in force.
    #[serde(default)]
    pub settings: ServiceSettings,
    /// The last decision of its controller.
    pub decision: NodeDecision,
    /// Weight for the bound, in percent of the configured weight, 1..=256.
    #[serde(default)]
    pub weight_percent: u16,
    /// What weights and shares of keys go by, in cost units; null while it is not known. Agents that do not say it
    /// know it.
    #[serde(default, deserialize_with = "said")]
    pub capacity: Option<Option<f64>>,
    /// The capacity that stands for its weight among other nodes, in cost units.
    pub weight_bound: f64,
    /// What went through in the last period; null while the source fails.
    pub flow: Option<Flow>,
    /// Cost a second that would have been refused in the last period, of a service that is only observed.
    pub would_refuse: Option<f64>,
    /// Whether it may be asked to read.
    pub health: Health,
    /// Why it is down, in a few words.
    pub health_detail: Option<String>,
    /// What an operator set.
    #[serde(rename = "override")]
    pub set: Override,
    /// Requests finished well in the last period.
    #[serde(default)]
    pub finished: u64,
    /// Requests that failed in the last period.
    #[serde(default)]
    pub failed: u64,
    /// Jobs in the node at the end of the last period.
    pub jobs: Option<f64>,
    /// What schedulers are told is the node's load.
    #[serde(default)]
    pub load: f64,
    /// Jobs times mean cost, in cost units.
    pub backlog: Option<f64>,
    /// Unix time of the last step, in seconds.
    #[serde(default)]
    pub stepped_at: f64,
    /// Length of the last period in seconds; null while the source fails.
    pub observed_seconds: Option<f64>,
    /// Unix time of the last good observation, in seconds.
    pub observed_at: Option<f64>,
    /// What the source said when it last failed; null while it works.
    pub source_error: Option<String>,
    /// How the source's delays compare with jobs over throughput, where both are known.
    pub sight: Option<SourceSight>,
    /// What its load line learned.
    pub learned: Option<NodeLearned>,
    /// What Envoy is told to shed.
    pub shed: Shed,
    /// Who shares the bound.
    #[serde(default)]
    pub proxies: Vec<ProxyView>,
    /// What people alone read: the delay's distribution, the host's load, the database's role, updates.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Settings of a controller, as far as programs read them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ServiceSettings {
    /// What was promised.
    #[serde(default)]
    pub sla: SlaView,
    /// Whether proxies are told; agents that do not say it tell them.
    #[serde(default)]
    pub mode: ServiceMode,
    /// What people alone read.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A promise, as far as programs read it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct SlaView {
    /// The service delay promised, in seconds.
    #[serde(default)]
    pub delay: f64,
    /// What people alone read.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A decision, as far as programs read it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeDecision {
    /// The most backlog the node may hold, in cost units.
    pub bound: f64,
    /// The same in jobs.
    #[serde(default)]
    pub bound_jobs: f64,
    /// The rule that set it.
    #[serde(default)]
    pub reason: String,
    /// The objective measured on what finished, in seconds.
    pub measured_delay: Option<f64>,
    /// What people alone read.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How a service's node is, apart from its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No probe is configured, or it passes; and the database, where there is one, is fresh.
    Up,
    /// The local probe fails, or the database may not be read from.
    Down,
}

/// Health as an operator sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedHealth {
    /// Up, whatever the probe says.
    Up,
    /// Down.
    Down,
}

/// What an operator set for one service.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Override {
    /// Proxies are told to drain.
    pub drain: bool,
    /// Health instead of the probe's.
    pub health: Option<ForcedHealth>,
    /// Weight instead of the bound's, 1..=256 percent.
    pub weight_percent: Option<u16>,
    /// Bound instead of the controller's, in cost units.
    pub bound: Option<f64>,
}

/// What a source sees.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SourceSight {
    /// Delay by jobs over throughput, over delay by the source: 1 where it sees all.
    pub ratio: f64,
    /// Mean delay that the source does not see, in seconds; null where it is not blind.
    pub unseen: Option<f64>,
}

/// What a load line learned, as far as programs read it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeLearned {
    /// How long ago the rate was learned.
    pub age_seconds: f64,
    /// Whether it is of a run before this one.
    pub earlier_run: bool,
    /// What people alone read: the figures.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The fraction of a service's traffic that an agent wants shed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shed {
    /// 0 to 0.98.
    pub fraction: f64,
    /// A proxy asked of late, so that it is in force there.
    pub asked: bool,
}

/// A proxy that asks for the agent-check.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProxyView {
    /// Identity it asks under.
    pub identity: String,
    /// Its name, else its address.
    pub proxy: String,
    /// Where it last came from.
    pub address: IpAddr,
    /// Seconds since it last asked.
    pub polled_seconds_ago: f64,
    /// Its part of the bound in jobs.
    pub share_jobs: u32,
    /// The line it was told last.
    pub told: String,
}

impl NodeView {
    /// Reads an answer; what is wrong with it otherwise.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|problem| problem.to_string())
    }
}

impl NodeService {
    /// Reads one of the answer's services; what is wrong with it otherwise.
    pub fn parse(service: Value) -> Result<Self, String> {
        serde_json::from_value(service).map_err(|problem| problem.to_string())
    }
}

/// Tells what is said to be unknown from what is not said.
fn said<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(value).map(Some)
}
