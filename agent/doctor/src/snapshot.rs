//! What was asked of a set-up, as it was answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::haproxy_config::HaproxyConfig;

/// All that was heard.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The version of this program.
    pub own_version: String,
    /// HAProxys.
    pub haproxys: Vec<Haproxy>,
    /// Their configuration, where it was given.
    pub haproxy_config: Option<HaproxyConfig>,
    /// Envoys.
    pub envoys: Vec<Envoy>,
    /// Agents.
    pub agents: Vec<Agent>,
    /// Redis.
    pub redis: Option<Redis>,
}

/// A clock beside that of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    /// So much it is ahead, seconds.
    pub ahead: f64,
    /// The most that this is wrong by: how long the answer took, and the grain of what it said.
    pub error: f64,
}

/// One HAProxy process.
#[derive(Clone, Debug, Default)]
pub struct Haproxy {
    /// Its socket.
    pub at: String,
    /// As it writes it.
    pub version: String,
    /// `None`: it did not tell.
    pub clock: Option<Clock>,
    /// Its command sockets on TCP, and what they may.
    pub open_sockets: Vec<(String, String)>,
    /// Algorithms by backend; none where the socket may not tell.
    pub algorithms: BTreeMap<String, String>,
    /// Servers of all backends.
    pub servers: Vec<Server>,
}

/// A server, as HAProxy has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// Its backend.
    pub backend: String,
    /// Its name.
    pub name: String,
    /// Address and port.
    pub address: String,
    /// The weight that percentages are of.
    pub weight: u32,
    /// Whether it is asked an agent, and whether that is on.
    pub agent: AgentCheck,
    /// By hand, or for want of an address.
    pub is_in_maintenance: bool,
    /// What came of the last question, such as `L7OK`; without the mark of one under way.
    pub status: String,
    /// How long that took, ms.
    pub duration_millis: Option<u64>,
    /// What the agent said last, or why it said nothing.
    pub last_said: String,
    /// `maxconn` in force, look by look.
    pub limits: Vec<Option<u32>>,
}

impl Server {
    /// As `agent-send` names it by convention.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.backend, self.name)
    }
}

/// Of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentCheck {
    /// Not configured.
    #[default]
    None,
    /// Configured, and switched off by hand.
    Off,
    /// HAProxy asks.
    On,
}

/// One Envoy process.
#[derive(Clone, Debug, Default)]
pub struct Envoy {
    /// Its admin address.
    pub at: String,
    /// Such as 1.40.0.
    pub version: String,
    /// Where its admin listens.
    pub admin: Option<String>,
    /// Clusters by endpoint discovery over REST, as agents speak it.
    pub clusters: Vec<Cluster>,
}

/// A cluster by endpoint discovery.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// In Envoy.
    pub name: String,
    /// What agents are asked for.
    pub service: String,
    /// Hosts it has.
    pub hosts: usize,
    /// Answers taken, look by look.
    pub updates: Vec<u64>,
    /// Questions without an answer that could be taken, look by look.
    pub failures: Vec<u64>,
    /// The smallest of its limits on connections and requests, and its name.
    pub breaker: Option<(String, u64)>,
}

/// One agent.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// Its HTTP address.
    pub at: String,
    /// Its version.
    pub version: String,
    /// Its clock, where it tells.
    pub clock: Option<Clock>,
    /// Ports that anybody may connect to, by key.
    pub unlimited: BTreeMap<String, String>,
    /// By name.
    pub services: BTreeMap<String, Service>,
    /// Of its placement: `when_lost` is `hold`, and the lease.
    pub hold: Option<Duration>,
}

/// A service of an agent.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Where proxies connect to, if the agent knows.
    pub address: Option<String>,
    /// What its source said when it last failed.
    pub source_error: Option<String>,
    /// By so much is the delay larger than its source shows, where that is clear.
    pub blind: Option<f64>,
    /// Identities that proxies ask under.
    pub identities: BTreeSet<String>,
    /// What those were told last: `maxconn` by identity, look by look.
    pub told: Vec<BTreeMap<String, BTreeSet<u32>>>,
}

/// The Redis that agents share.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    /// Its URL.
    pub at: String,
    /// Its version.
    pub version: String,
    /// Its clock.
    pub clock: Option<Clock>,
    /// Versions of the libraries: there, and known to this program. 0: none.
    pub libraries: Vec<(String, i64, i64)>,
    /// Its replicas.
    pub replicas: u64,
    /// A replica may be, or has been, put in its place.
    pub is_replaceable: bool,
    /// `min-replicas-to-write` and `min-replicas-max-lag`, where it may be asked.
    pub min_replicas: Option<(u64, u64)>,
    /// It asked for no password.
    pub is_without_password: bool,
    /// `bind` as configured, where `protected-mode` is off and it may be asked.
    pub bind: Option<String>,
}
