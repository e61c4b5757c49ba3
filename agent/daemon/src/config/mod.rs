//! The agent's configuration: read, checked as a whole, and only then used.

mod gather;
mod jobs;
mod load;
mod partitions;
mod placement;
mod raw;
mod reference;
mod resolve;
mod role;
mod updates;
mod values;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use plimsoll_core::{Cost, Settings, freshness::FreshnessSettings, role::RoleSettings};
use plimsoll_exposition::Labels;
use plimsoll_net::{DatabaseAddress, HttpUrl};
use plimsoll_settings::{ConfigError, Level, LogFormat, Secret};

use crate::{
    agent_check::{OnShutdown, OutputSettings, SendWords, ServiceOutput},
    envoy::EnvoySettings,
    placement::PlacementSettings,
    ring::{LinkSettings, RingSettings},
};

pub use gather::{GatherConfig, NodeAddress, Served};
pub use partitions::databases;
pub use reference::markdown;
pub use values::LogListen;

/// A valid configuration with every default filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sampling period `P`.
    pub period: Duration,
    /// Share of `P` each period is moved by at random.
    pub jitter: f64,
    /// Least severe level that is logged.
    pub log_level: Level,
    /// Text or JSON.
    pub log_format: LogFormat,
    /// Where drains and overrides are remembered.
    pub state_directory: Option<PathBuf>,
    /// HTTP endpoints.
    pub http_listen: SocketAddr,
    /// Who may connect to them, and for load reports; everybody without.
    pub http_allow: Option<Vec<IpNet>>,
    /// What a proxy must show to exchange observations for shares.
    pub http_token: Option<String>,
    /// Agent checks.
    pub agent_check_listen: SocketAddr,
    /// See `OutputSettings`.
    pub agent_check_allow: Option<Vec<IpNet>>,
    /// See `OutputSettings`.
    pub max_proxies_per_address: usize,
    /// See `OutputSettings`.
    pub max_connections: usize,
    /// See `OutputSettings`.
    pub identity_wait: Duration,
    /// See `OutputSettings`.
    pub proxy_lease: Duration,
    /// See `OutputSettings`.
    pub on_shutdown: OnShutdown,
    /// See `OutputSettings`.
    pub shutdown_grace: Duration,
    /// Operators' socket.
    pub control_socket: Option<PathBuf>,
    /// How to reach Redis.
    pub redis: Option<LinkSettings>,
    /// The table of primaries.
    pub placement: Option<PlacementSettings>,
    /// What Envoy is answered.
    pub envoy: EnvoySettings,
    /// Services, in the file's order; at least one.
    pub services: Vec<ServiceConfig>,
    /// Parts of the data that are asked together with those of other nodes, in the file's order.
    pub partitions: Vec<Arc<PartitionConfig>>,
}

/// A part of the data, and what is asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionConfig {
    /// Its name.
    pub name: String,
    /// Whose bound its queries count in.
    pub service: Option<String>,
    /// Who has it.
    pub server: PartitionServer,
    /// Queries by name: in SQL, or the names that the service has for them.
    pub queries: BTreeMap<String, String>,
    /// Whether any other query that only reads is answered.
    pub free_sql: bool,
}

/// Who has a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionServer {
    /// A database.
    PostgreSql(PartitionDatabase),
    /// Another program that answers as an agent does.
    Http(PartitionService),
}

/// A PostgreSQL database with a part of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionDatabase {
    /// Where it is.
    pub address: DatabaseAddress,
    /// Who asks.
    pub user: String,
    /// Their password.
    pub password: Option<Secret>,
    /// The database's name there.
    pub name: String,
}

/// A service with a part of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionService {
    /// What is asked.
    pub url: HttpUrl,
    /// What it is shown.
    pub token: Option<Secret>,
}

/// One service on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// Further `agent-send` identities.
    pub identities: Vec<String>,
    /// "host:port" that proxies connect to.
    pub address: Option<String>,
    /// What its controller is told.
    pub settings: Settings,
    /// The bound that stands for a weight of 100 %.
    pub full_weight_bound: Option<Cost>,
    /// Relative change under which a weight stays.
    pub weight_dead_band: f64,
    /// Words in the answers.
    pub send: SendWords,
    /// Where delays come from.
    pub source: SourceConfig,
    /// Where the number of jobs comes from.
    pub jobs: JobsConfig,
    /// Where requests wait that the service has not taken in, where that can be looked at.
    pub backlog: Option<BacklogConfig>,
    /// What stands for the node's load.
    pub load: LoadConfig,
    /// The local probe.
    pub health: Option<HealthConfig>,
    /// Its place in a ring.
    pub ring: Option<RingSettings>,
    /// Its temporal data, where their update periods adapt.
    pub updates: Option<UpdatesConfig>,
    /// Whether its database may be written to, and read from.
    pub role: Option<RoleConfig>,
}

/// A database that is asked what it is among its replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleConfig {
    /// The database.
    pub database: DatabaseConfig,
    /// What answers 200 while it holds the leader's lock.
    pub lock: Option<HttpUrl>,
    /// For that answer.
    pub timeout: Duration,
    /// Limits.
    pub settings: RoleSettings,
}

/// Adaptive update periods.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdatesConfig {
    /// What lists the items.
    pub url: HttpUrl,
    /// For reading the list.
    pub timeout: Duration,
    /// `P_max` and what an update costs.
    pub settings: FreshnessSettings,
}

/// Where delays come from.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// Scrape of the service's own metrics.
    Prometheus(PrometheusConfig),
    /// HAProxy's log lines.
    HaproxyLog {
        /// Where lines arrive.
        listen: LogListen,
        /// "backend/server" of this node.
        node: String,
    },
    /// What the proxies told Redis.
    Proxies,
    /// The queries in the partitions that name the service.
    Partitions,
}

/// A scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusConfig {
    /// What is scraped.
    pub url: HttpUrl,
    /// Base name of the delay histogram, in seconds.
    pub histogram: String,
    /// Labels of histogram, `failed` and `cost`.
    pub labels: Labels,
    /// Counter of failed requests.
    pub failed: Option<String>,
    /// Counter of finished cost.
    pub cost: Option<String>,
    /// Gauge of the oldest unfinished request's age.
    pub oldest_age: Option<String>,
    /// For the whole exchange.
    pub timeout: Duration,
    /// Largest body in bytes.
    pub max_body: usize,
}

/// Where the number of jobs comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum JobsConfig {
    /// Unknown.
    None,
    /// A gauge; without a URL in the source's own scrape.
    Prometheus {
        /// Its name.
        gauge: String,
        /// Labels it must have.
        labels: Labels,
        /// Where, if not in the source's scrape.
        url: Option<HttpUrl>,
        /// For reading it there.
        timeout: Duration,
    },
    /// Established TCP connections to a local port.
    Sockets {
        /// The port.
        port: u16,
        /// Time between looks.
        sample_interval: Duration,
    },
    /// Active clients of a database.
    Database(DatabaseConfig),
}

/// Connections that wait to be accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct BacklogConfig {
    /// For whom.
    pub socket: ListenSocket,
    /// Time between looks.
    pub sample_interval: Duration,
    /// By `service.jobs`; otherwise found by the agent, and no loss where it is not there.
    pub is_asked: bool,
    /// The source's scrapes wait there, too.
    pub has_scrapes: bool,
}

/// What a service listens on.
#[derive(Clone, Debug, PartialEq)]
pub enum ListenSocket {
    /// The first of these TCP ports that has a listener.
    Ports(Vec<u16>),
    /// A unix socket.
    Unix(PathBuf),
}

/// A database that is asked for its active clients, or its role.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseConfig {
    /// The table that has it: `jobs` or `role`.
    pub table: &'static str,
    /// Whose protocol it talks.
    pub kind: DatabaseKind,
    /// Where it is.
    pub address: DatabaseAddress,
    /// Who asks.
    pub user: String,
    /// Its password.
    pub password: Option<Secret>,
    /// For each question.
    pub timeout: Duration,
}

/// Databases whose protocol the agent talks.
#[derive(Clone, Debug, PartialEq)]
pub enum DatabaseKind {
    /// MySQL or MariaDB.
    MySql,
    /// PostgreSQL.
    PostgreSql {
        /// One of the server's databases to connect to; the count is of all of them.
        database: String,
    },
}

impl std::fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DatabaseKind::MySql => "mysql",
            DatabaseKind::PostgreSql { .. } => "postgresql",
        })
    }
}

/// What schedulers are told is the node's load.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadConfig {
    /// The delay over the SLA's target.
    Delay,
    /// The host's; the sum of the parts.
    Host(HostLoadConfig),
}

/// Parts of the host's load.
#[derive(Clone, Debug, PartialEq)]
pub struct HostLoadConfig {
    /// Of CPUs.
    pub cpu: Option<CpuConfig>,
    /// Of the network.
    pub network: Option<NetworkConfig>,
}

/// Whose CPU load.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuConfig {
    /// A control group in place of the agent's own.
    pub cgroup: Option<PathBuf>,
}

/// Which interface's load.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// This one; without it all but the loopback.
    pub interface: Option<String>,
    /// Its speed in bits per second, in place of the kernel's.
    pub speed: Option<f64>,
}

/// The local probe.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthConfig {
    /// What is tried.
    pub target: HealthTarget,
    /// Time between probes.
    pub interval: Duration,
    /// A probe without an answer by then fails.
    pub timeout: Duration,
    /// Failures in a row until down.
    pub fall: u32,
    /// Successes in a row until up.
    pub rise: u32,
}

/// What a probe tries.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthTarget {
    /// Connecting to this host and port.
    Tcp(String),
    /// A GET that must be answered with 2xx or 3xx.
    Http(HttpUrl),
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::whole_file(path, error.to_string()))?;
        Config::parse(path, &text)
    }

    /// Checks a text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let file = plimsoll_settings::deserialize(path, text)?;
        resolve::resolve(file).map_err(|wrong| plimsoll_settings::point_at(path, text, wrong))
    }

    /// What the outputs need of it.
    pub fn output_settings(&self) -> OutputSettings {
        let output = |service: &ServiceConfig| ServiceOutput {
            name: service.name.clone(),
            identities: service.identities.clone(),
            send: service.send,
        };
        let mut settings = OutputSettings::new(self.services.iter().map(output).collect());
        settings.period = self.period;
        settings.allow = self.agent_check_allow.clone();
        settings.max_proxies_per_address = self.max_proxies_per_address;
        settings.max_connections = self.max_connections;
        settings.identity_wait = self.identity_wait;
        settings.proxy_lease = self.proxy_lease;
        settings.on_shutdown = self.on_shutdown;
        settings.shutdown_grace = self.shutdown_grace;
        settings
    }
}
