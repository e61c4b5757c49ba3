//! The state of an installation, as its parts reported it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::haproxy_config::HaproxyConfig;

/// All answers.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Version of this program.
    pub own_version: String,
    /// HAProxy processes.
    pub haproxys: Vec<Haproxy>,
    /// HAProxy's configuration, if given.
    pub haproxy_config: Option<HaproxyConfig>,
    /// Envoys.
    pub envoys: Vec<Envoy>,
    /// Agents.
    pub agents: Vec<Agent>,
    /// Redis.
    pub redis: Option<Redis>,
}

/// A clock relative to that of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    /// Seconds by which it is ahead.
    pub ahead: f64,
    /// Maximum error in seconds: the duration of the query plus the resolution of the answer.
    pub error: f64,
}

/// An HAProxy process.
#[derive(Clone, Debug, Default)]
pub struct Haproxy {
    /// Its socket.
    pub at: String,
    /// Version as reported.
    pub version: String,
    /// `None` if it does not report its time.
    pub clock: Option<Clock>,
    /// Its command sockets on TCP, with their levels.
    pub open_sockets: Vec<(String, String)>,
    /// Algorithms by backend; empty texts if the socket's level is too low.
    pub algorithms: BTreeMap<String, String>,
    /// Servers of all backends.
    pub servers: Vec<Server>,
}

/// A server in HAProxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// Its backend.
    pub backend: String,
    /// Its name.
    pub name: String,
    /// Address and port.
    pub address: String,
    /// The weight that percentages refer to.
    pub weight: u32,
    /// State of its agent check.
    pub agent: AgentCheck,
    /// In maintenance by an operator, or because it has no address.
    pub is_in_maintenance: bool,
    /// Result of the last agent check, such as `L7OK`, without the mark of a check in progress.
    pub status: String,
    /// Duration of that check in ms.
    pub duration_millis: Option<u64>,
    /// Last answer of the agent, or why there was none.
    pub last_said: String,
    /// `maxconn` in force, by sample.
    pub limits: Vec<Option<u32>>,
}

impl Server {
    /// Its `agent-send` identity by convention.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.backend, self.name)
    }
}

/// State of a server's agent check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentCheck {
    /// Not configured.
    #[default]
    None,
    /// Configured but disabled by an operator.
    Off,
    /// Enabled.
    On,
}

/// An Envoy process.
#[derive(Clone, Debug, Default)]
pub struct Envoy {
    /// Address of its admin interface.
    pub at: String,
    /// Version, such as 1.40.0.
    pub version: String,
    /// Address on which its admin interface listens.
    pub admin: Option<String>,
    /// Clusters with endpoint discovery over REST, the protocol of agents.
    pub clusters: Vec<Cluster>,
}

/// A cluster with endpoint discovery.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Name in Envoy.
    pub name: String,
    /// Name requested from agents.
    pub service: String,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of accepted answers, by sample.
    pub updates: Vec<u64>,
    /// Number of failed requests, by sample.
    pub failures: Vec<u64>,
    /// The smallest of its limits on connections and requests, with its name.
    pub breaker: Option<(String, u64)>,
}

/// An agent.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// Its HTTP address.
    pub at: String,
    /// Its version.
    pub version: String,
    /// Its clock, if reported.
    pub clock: Option<Clock>,
    /// Ports open to all networks that require neither a token nor a certificate, by key.
    pub unlimited: BTreeMap<String, String>,
    /// Services by name.
    pub services: BTreeMap<String, Service>,
    /// The lease, if its placement has `when_lost = "hold"`.
    pub hold: Option<Duration>,
}

/// A service of an agent.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Address that proxies connect to, if the agent knows it.
    pub address: Option<String>,
    /// Last error of its source.
    pub source_error: Option<String>,
    /// Factor by which the delay exceeds the source's figure, if clear.
    pub blind: Option<f64>,
    /// Identities that proxies poll under.
    pub identities: BTreeSet<String>,
    /// `maxconn` in the last answers, by identity and sample.
    pub told: Vec<BTreeMap<String, BTreeSet<u32>>>,
}

/// The Redis shared by agents.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    /// Its URL.
    pub at: String,
    /// Its version.
    pub version: String,
    /// Its clock.
    pub clock: Option<Clock>,
    /// Function libraries: name, loaded version, version known to this program. 0 means none.
    pub libraries: Vec<(String, i64, i64)>,
    /// Its replicas.
    pub replicas: u64,
    /// Whether a replica may take its place, or has.
    pub is_replaceable: bool,
    /// `min-replicas-to-write` and `min-replicas-max-lag`, if readable.
    pub min_replicas: Option<(u64, u64)>,
    /// Whether it requires no password.
    pub is_without_password: bool,
    /// `bind` as configured, if `protected-mode` is off and it is readable.
    pub bind: Option<String>,
}
