//! The agent's configuration: read, checked as a whole, and only then used.

mod partitions;
mod raw;
mod reference;
mod resolve;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use plimsoll_core::{Cost, Settings};
use plimsoll_settings::{ConfigError, Level, LogFormat};

use crate::{
    agent_check::{OnShutdown, OutputSettings, SendWords, ServiceOutput},
    envoy::EnvoySettings,
    health_probe::HealthConfig,
    host_load::LoadConfig,
    jobs::{BacklogConfig, JobsConfig},
    partition::PartitionConfig,
    placement::PlacementSettings,
    ring::{LinkSettings, RingSettings},
    role::RoleConfig,
    sources::SourceConfig,
    updates::UpdatesConfig,
};

pub use reference::markdown;

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
