//! Scenario files.

mod check;
mod updates;

use std::path::Path;

use serde::Deserialize;

pub use updates::{UpdateLoad, Updates};

use crate::names;

/// The scenarios that come with the program, with their texts.
macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

const BUILT_IN: &[(&str, &str)] = built_in![
    "chronos",
    "chronos-c",
    "chronos-c-1",
    "chronos-c-2",
    "chronos-c-3",
    "chronos-c-4",
    "chronos-c-removal",
    "middle-r-mpl",
    "middle-r-placement",
    "thesis-equal-3",
    "thesis-equal",
    "thesis-equal-100",
    "thesis-slow-node-3",
    "thesis-slow-node",
    "thesis-slow-node-100",
    "overload",
    "step",
    "spike",
    "drift",
    "black-hole",
    "slowdown",
    "fast-errors",
    "retry-storm",
    "updates",
    "varying",
    "contention",
    "stale-news-1",
    "stale-news-2",
    "stale-news-5",
    "stale-news-10",
    "large",
];
/// Their names.
pub const NAMES: [&str; BUILT_IN.len()] = {
    let mut names = [""; BUILT_IN.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = BUILT_IN[i].0;
        i += 1;
    }
    names
};

const MAX_NODES: usize = 10_000;
const MAX_CLIENTS: u32 = 1_000_000;
const MAX_SECONDS: f64 = 86_400.0;
/// Items that are updated, in a node and in all.
const MAX_UPDATED: u32 = 100_000;
const MAX_UPDATED_IN_ALL: u64 = 1_000_000;
const MAX_KEYS: u32 = 1_000_000;
/// Maximum nodes in scenarios with `writes`, where each transaction is work for all nodes.
const MAX_WRITTEN: usize = 100;
/// Memory is set aside for as many.
const MAX_CACHED: u64 = 10_000_000;

/// Reason for which a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read or parsed.
    #[error("{file}: {problem}")]
    Read {
        /// Name of the file.
        file: String,
        /// Reason.
        problem: String,
    },
    /// A value is invalid.
    #[error("{file}: {key}: {problem}")]
    Value {
        /// Name of the scenario.
        file: String,
        /// The key.
        key: String,
        /// Requirement.
        problem: String,
    },
}

/// One scenario: the work, the nodes, the proxies and what happens to them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the scenario; the file's if it is read from one.
    #[serde(skip)]
    pub name: String,
    /// Purpose, with every assumption behind its numbers.
    pub about: String,
    /// `S_t`.
    pub sla_seconds: f64,
    /// Length of a run, in seconds.
    pub seconds: f64,
    /// Begin of the measured time, in seconds.
    #[serde(default)]
    pub measured_from: f64,
    /// Time from which overshoot and settling are counted, in seconds.
    pub event: Option<f64>,
    /// Default number of seeds: 1, 2, …
    #[serde(default = "one")]
    pub seeds: u32,
    /// Policies in the order of the report.
    pub policies: Vec<String>,
    /// Sampling period of agents and exchange period of proxies, in seconds.
    #[serde(default = "one_second")]
    pub period: f64,
    /// One-way delay between any two programs, in seconds.
    #[serde(default)]
    pub network_seconds: f64,
    /// Number of proxies, over which clients are spread.
    #[serde(default = "one")]
    pub proxies: u32,
    /// The clients.
    pub clients: Clients,
    /// Transactions that run at the nodes, with work for all of them; without this they run at a master.
    pub writes: Option<Writes>,
    /// Groups of equal nodes.
    pub nodes: Vec<NodeSettings>,
    /// Temporal data that each node updates with priority.
    pub updates: Option<Updates>,
    /// Changes of nodes during the run.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Settings of the policies.
    #[serde(default)]
    pub tuning: Tuning,
}

fn one() -> u32 {
    1
}

fn one_second() -> f64 {
    1.0
}

/// Clients and their requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Number of closed-loop clients; 0 for open arrivals.
    #[serde(default)]
    pub count: u32,
    /// Range of a request's items, uniform.
    pub items: [f64; 2],
    /// Share of long requests, and their items.
    pub long: Option<Long>,
    /// Number of keys, drawn uniformly.
    #[serde(default = "one")]
    pub keys: u32,
    /// Share of queries among the requests; the others go to a master with unlimited capacity.
    #[serde(default = "whole")]
    pub queries: f64,
    /// Delay of the master, in seconds.
    #[serde(default)]
    pub transaction_seconds: f64,
    /// Phases of think time (closed loop) or load (open).
    pub phases: Vec<Phase>,
    /// Timeout of a request in seconds, after which it has failed.
    pub patience: Option<f64>,
    /// Maximum retries after a failure, a refusal or a timeout.
    #[serde(default)]
    pub retries: u32,
    /// Range of the backoff before a retry in seconds, uniform, doubled each time.
    #[serde(default)]
    pub retry_wait: [f64; 2],
    /// Begin of a request's delay.
    #[serde(default)]
    pub delay_from: DelayFrom,
}

fn whole() -> f64 {
    1.0
}

/// Work of transactions at the nodes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// Share of a transaction's work that each other node does to apply it.
    pub apply: f64,
}

/// Long requests.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Long {
    /// Share of the requests.
    pub part: f64,
    /// Range of their items, uniform.
    pub items: [f64; 2],
}

/// Begin of a request's delay.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum DelayFrom {
    /// When the client sends it.
    #[default]
    Sent,
    /// When the node's kernel has accepted its connection.
    Accepted,
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Begin of the phase, in seconds.
    pub from: f64,
    /// Range of the think time between a response and the next request in seconds, uniform.
    pub think: Option<[f64; 2]>,
    /// Open Poisson arrivals, as a share of all nodes' capacity at the start.
    pub load: Option<f64>,
}

/// Group of equal nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSettings {
    /// Number of nodes.
    #[serde(default = "one")]
    pub count: u32,
    /// Jobs that run at full speed concurrently.
    pub cores: u32,
    /// Maximum jobs in service.
    pub workers: u32,
    /// Maximum waiting connections; the kernel drops further ones.
    #[serde(default = "most")]
    pub backlog: u32,
    /// Weight for schedulers that use weights.
    #[serde(default = "hundred")]
    pub weight: u32,
    /// One core's time for an item that is not cached, in seconds.
    pub item_seconds: f64,
    /// Order in which waiting requests are served.
    #[serde(default)]
    pub order: Order,
    /// Number of jobs in the node above which each further one slows all down.
    #[serde(default)]
    pub contention_from: u32,
    /// Contention: speed is divided by 1 + this times the jobs above `contention_from`.
    #[serde(default)]
    pub contention: f64,
    /// Capacity of the cache, in keys.
    #[serde(default)]
    pub cache_keys: u32,
    /// Share of the work that a cached key saves.
    #[serde(default)]
    pub cache_saves: f64,
}

fn hundred() -> u32 {
    100
}

fn most() -> u32 {
    u32::MAX
}

/// Order in which a node serves waiting requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// In order of arrival.
    #[default]
    Fifo,
    /// In random order, like threads that compete for a lock or a disk.
    Random,
}

/// Change of nodes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time of the change, in seconds.
    pub at: f64,
    /// First node that changes.
    pub node: u32,
    /// Number of nodes that change.
    #[serde(default = "one")]
    pub count: u32,
    /// New state.
    pub to: State,
    /// For `slow`, `failing` and `contended`: how fast it is, what part fails, how much jobs slow one another.
    pub value: Option<f64>,
}

/// State of a node from a change on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As configured.
    Good,
    /// Refuses connections; what was in it is lost.
    Down,
    /// Takes everything and answers nothing.
    BlackHole,
    /// At this part of its speed.
    Slow,
    /// Answers this share of the requests with an error at once.
    Failing,
    /// Has this `contention`, and otherwise stays as it is.
    Contended,
}

/// Settings of the policies that differ from Plimsoll's and the peers' defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// Initial bound, in items.
    pub nominal: f64,
    /// Minimum bound, in items.
    pub min: f64,
    /// Limit of each node for `static`, in requests.
    pub static_jobs: f64,
    /// Number of slots of the ring.
    pub slots: u32,
    /// Share of a node's room that other nodes' keys may fill.
    pub spill: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            nominal: 5120.0,
            min: 160.0,
            static_jobs: 64.0,
            slots: 16_384,
            spill: 0.5,
        }
    }
}

impl Scenario {
    /// Reads a built-in scenario, or a file.
    pub fn find(name: &str) -> Result<Self, ScenarioError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        let read = std::fs::read_to_string(path).map_err(|error| ScenarioError::Read {
            file: name.to_owned(),
            problem: if error.kind() == std::io::ErrorKind::NotFound && !name.contains(['.', '/']) {
                format!(
                    "there is no such scenario, nor such a file; there are {}",
                    NAMES.join(", ")
                )
            } else {
                error.to_string()
            },
        })?;
        Self::parse(name, &read)
    }

    /// Parses and validates TOML.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| ScenarioError::Read {
            file: file.to_owned(),
            problem: error.to_string().trim_end().to_owned(),
        })?;
        let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str());
        scenario.name = stem.unwrap_or(file).to_owned();
        scenario
            .check()
            .map_err(|(key, problem)| ScenarioError::Value {
                file: file.to_owned(),
                key,
                problem,
            })?;
        let policies = std::mem::take(&mut scenario.policies);
        scenario.choose(&policies)?;
        Ok(scenario)
    }

    /// Replaces the policies.
    pub fn choose(&mut self, policies: &[String]) -> Result<(), ScenarioError> {
        let is_unknown = |name: &&String| !names::is_known(name);
        if let Some(unknown) = policies.iter().find(is_unknown) {
            return Err(self.has_no_policy(unknown));
        }
        let of_updates = |name: &&String| name.ends_with("-updates");
        if self.updates.is_none()
            && let Some(name) = policies.iter().find(of_updates)
        {
            return Err(ScenarioError::Value {
                file: self.name.clone(),
                key: "policies".into(),
                problem: format!("{name} needs [updates], what there is to update"),
            });
        }
        self.policies = policies.to_vec();
        Ok(())
    }

    pub(crate) fn has_no_policy(&self, name: &str) -> ScenarioError {
        ScenarioError::Value {
            file: self.name.clone(),
            key: "policies".into(),
            problem: format!(
                "there is no policy {name:?}; there are {}",
                names::NAMES.join(", ")
            ),
        }
    }

    /// The settings of each node.
    pub fn each_node(&self) -> impl Iterator<Item = &NodeSettings> {
        let times = |group: &NodeSettings| group.count as usize;
        self.nodes
            .iter()
            .flat_map(move |group| std::iter::repeat_n(group, times(group)))
    }
}

fn check_updates(updates: &Updates, nodes: &[NodeSettings]) -> Result<(), (String, String)> {
    let wrong = |key: &str, problem: String| Err((format!("updates.{key}"), problem));
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let count: u64 = nodes.iter().map(|node| u64::from(node.count)).sum();
    let all = u64::from(updates.items).saturating_mul(count);
    if updates.items == 0 || updates.items > MAX_UPDATED || all > MAX_UPDATED_IN_ALL {
        return wrong(
            "items",
            format!(
                "must be within 1 and {MAX_UPDATED}, and {MAX_UPDATED_IN_ALL} in all nodes together"
            ),
        );
    }
    if !(0.01..=3600.0).contains(&updates.period) {
        return wrong("period", "must be within 0.01 and 3600 s".into());
    }
    if !(updates.period..=3600.0).contains(&updates.longest) {
        return wrong(
            "longest",
            "must not be below updates.period, and at most 3600 s".into(),
        );
    }
    let taken = updates.load().per_second * updates.update_seconds;
    let fewest = nodes.iter().map(|node| node.cores).min().unwrap_or(0);
    if !(positive(updates.update_seconds) && taken < f64::from(fewest)) {
        return wrong(
            "update_seconds",
            format!(
                "must be above 0 and leave a node something to do: updates take {taken} of its {fewest} cores"
            ),
        );
    }
    if !(positive(updates.reads) && updates.reads <= 1e6) {
        return wrong("reads", "must be above 0 and at most 1000000".into());
    }
    if !(0.0..=10.0).contains(&updates.skew) {
        return wrong("skew", "must be within 0 and 10".into());
    }
    Ok(())
}
