//! The file as written: every key that has a default is optional.

use std::{path::PathBuf, time::Duration};

use plimsoll_node::{
    control_loop::ServiceSection, placement::PlacementSection, ring::RedisSection,
};
use plimsoll_outputs::{agent_check::AgentCheckSection, envoy::EnvoySection};
use plimsoll_scatter::partition::PartitionSection;
use plimsoll_settings::{HttpSection, TlsSection};
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
    pub agent_check: AgentCheckSection,
    #[serde(default)]
    pub control: Control,
    #[serde(default)]
    pub tls: TlsSection,
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
pub struct Control {
    pub socket: Option<PathBuf>,
}
