//! The file as written: every key that has a default is optional.

use std::{path::PathBuf, time::Duration};

use plimsoll_node::{
    control_loop::ServiceSection, placement::PlacementSection, ring::RedisSection,
};
use plimsoll_outputs::{agent_check::AgentCheckSection, envoy::EnvoySection};
use plimsoll_scatter::partition::PartitionSection;
use plimsoll_settings::{HttpSection, TlsSection};
use schemars::JsonSchema;
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

/// Settings of the whole agent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agent]")]
pub struct Agent {
    /// Sampling period *P*; the controller makes one step per period.
    #[schemars(with = "String", extend("x-values" = "duration, 10ms to 1day", "x-default" = "`\"1s\"`"))]
    #[serde(default, with = "humantime_serde")]
    pub period: Option<Duration>,
    /// Fraction of the period by which each one is randomly shifted, so that agents do not act in lockstep.
    #[schemars(extend("x-values" = "0 to 0.5", "x-default" = "`0.05`"))]
    pub jitter: Option<f64>,
    /// Least severe level that is logged. Logs go to standard error.
    #[schemars(extend("x-values" = "`error`, `warn`, `info`, `debug`, `trace`", "x-default" = "`\"info\"`"))]
    pub log_level: Option<String>,
    /// Format of log lines. Needs a restart to change.
    #[schemars(extend("x-values" = "`text`, `json`", "x-default" = "`\"text\"`"))]
    pub log_format: Option<String>,
    /// Directory that keeps drains, operators' overrides and learned values across restarts; learned values expire
    /// after 30 days. Needs a restart to change.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub state_directory: Option<PathBuf>,
}

/// Operators' overrides (`plimsoll node`).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[control]")]
pub struct Control {
    /// Unix socket, mode 0660. Needs a restart to change.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub socket: Option<PathBuf>,
}
