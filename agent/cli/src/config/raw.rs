//! The file as it is written: every key optional that has a default.

use std::{path::PathBuf, time::Duration};

use plimsoll_node::{
    control_loop::ServiceSection, placement::PlacementSection, ring::RedisSection,
};
use plimsoll_outputs::envoy::EnvoySection;
use plimsoll_scatter::partition::PartitionSection;
use plimsoll_settings::HttpSection;
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default)]
    pub agent: Agent,
    #[serde(default)]
    pub http: HttpSection,
    #[serde(default)]
    pub agent_check: AgentCheck,
    #[serde(default)]
    pub control: Control,
    pub redis: Option<RedisSection>,
    pub placement: Option<PlacementSection>,
    #[serde(default)]
    pub envoy: EnvoySection,
    #[serde(default)]
    pub service: Vec<ServiceSection>,
    #[serde(default)]
    pub partition: Vec<PartitionSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    #[serde(default, with = "humantime_serde")]
    pub period: Option<Duration>,
    pub jitter: Option<f64>,
    pub log_level: Option<String>,
    pub log_format: Option<String>,
    pub state_directory: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCheck {
    pub listen: Option<String>,
    pub allow: Option<Vec<String>>,
    pub max_proxies_per_address: Option<usize>,
    pub max_connections: Option<usize>,
    #[serde(default, with = "humantime_serde")]
    pub identity_wait: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    pub proxy_lease: Option<Duration>,
    pub on_shutdown: Option<String>,
    #[serde(default, with = "humantime_serde")]
    pub shutdown_grace: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    pub socket: Option<PathBuf>,
}
