//! The agent's configuration: parsed, validated as a whole, then used.

mod partitions;
mod parts;
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
use plimsoll_net::{ServerTls, Tokens};
use plimsoll_node::{
    control_loop::ServiceConfig, placement::PlacementSettings, ring::LinkSettings,
};
use plimsoll_outputs::{agent_check::AgentCheckSettings, envoy::EnvoySettings};
use plimsoll_scatter::partition::PartitionConfig;
use plimsoll_settings::{ConfigError, Level, LogFormat};

pub use parts::Parts;
pub use reference::markdown;

/// A valid configuration with all defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sampling period `P`.
    pub period: Duration,
    /// Fraction of `P` by which each period is randomly shifted.
    pub jitter: f64,
    /// Log level.
    pub log_level: Level,
    /// Log format, text or JSON.
    pub log_format: LogFormat,
    /// Directory for drains, overrides and learned values.
    pub state_directory: Option<PathBuf>,
    /// Address of the HTTP endpoints.
    pub http_listen: SocketAddr,
    /// Networks allowed to connect to them and to load reports; `None` allows all.
    pub http_allow: Option<Vec<IpNet>>,
    /// Bearer tokens that callers need.
    pub http_tokens: Tokens,
    /// TLS of the HTTP server.
    pub http_tls: Option<ServerTls>,
    /// Settings of the agent-check server.
    pub agent_check: AgentCheckSettings,
    /// Path of the operators' control socket.
    pub control_socket: Option<PathBuf>,
    /// Connection to Redis.
    pub redis: Option<LinkSettings>,
    /// Settings of the placement keeper.
    pub placement: Option<PlacementSettings>,
    /// Settings of endpoint discovery for Envoy.
    pub envoy: EnvoySettings,
    /// Services in file order; at least one.
    pub services: Vec<ServiceConfig>,
    /// Partitions of the data that are queried together with those of other nodes, in file order.
    pub partitions: Vec<Arc<PartitionConfig>>,
}

impl Config {
    /// Reads and validates a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::whole_file(path, error.to_string()))?;
        Config::parse(path, &text)
    }

    /// Parses and validates a text; `path` appears in error messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let file = plimsoll_settings::deserialize(path, text)?;
        resolve::resolve(file).map_err(|wrong| plimsoll_settings::point_at(path, text, wrong))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plimsoll_scatter::gather::GatherConfig;

    use super::*;

    #[test]
    fn nothing_listens_beyond_loopback_by_default() {
        let text = r#"
            [[service]]
            name = "s"
            [service.sla]
            delay = "1s"
            [service.source]
            kind = "prometheus"
            url = "http://127.0.0.1:8001/metrics"
            histogram = "d"
        "#;
        let config = Config::parse(Path::new("x"), text).unwrap();
        let listens = [config.http_listen, config.agent_check.listen];
        assert!(
            listens.iter().all(|it| it.ip().is_loopback()),
            "{listens:?}"
        );
        assert_eq!(
            (config.envoy.orca_listen, config.control_socket),
            (None, None)
        );

        let gather =
            "[nodes]\na = \"192.0.2.11:9464\"\n[[partition]]\nname = \"p\"\nnodes = [\"a\"]\n";
        let gather = GatherConfig::parse(Path::new("x"), gather).unwrap();
        assert!(gather.listen.ip().is_loopback(), "{}", gather.listen);
    }
}
