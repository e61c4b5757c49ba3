//! The file as it is written: every key optional that has a default.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default)]
    pub agent: Agent,
    #[serde(default)]
    pub http: Http,
    #[serde(default)]
    pub agent_check: AgentCheck,
    #[serde(default)]
    pub control: Control,
    pub redis: Option<Redis>,
    pub placement: Option<Placement>,
    #[serde(default)]
    pub envoy: Envoy,
    #[serde(default)]
    pub service: Vec<Service>,
    #[serde(default)]
    pub partition: Vec<Partition>,
}

/// A file of databases and nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Databases {
    pub partition: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    pub name: String,
    pub service: Option<String>,
    pub address: Option<String>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    pub database: Option<String>,
    pub url: Option<String>,
    pub token_file: Option<PathBuf>,
    #[serde(default)]
    pub queries: BTreeMap<String, String>,
    #[serde(default)]
    pub free_sql: bool,
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
pub struct Http {
    pub listen: Option<String>,
    pub allow: Option<Vec<String>>,
    pub token_file: Option<PathBuf>,
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    pub urls: Vec<String>,
    pub mode: Option<String>,
    pub sentinel_master: Option<String>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    #[serde(default, with = "humantime_serde")]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    pub cluster: String,
    #[serde(default, with = "humantime_serde")]
    pub period: Option<Duration>,
    pub threshold: Option<f64>,
    pub gain: Option<f64>,
    pub moves: Option<bool>,
    #[serde(default, with = "humantime_serde")]
    pub request_limit: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    pub lease: Option<Duration>,
    pub when_lost: Option<String>,
    pub initial: Option<String>,
    #[serde(default)]
    pub pins: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envoy {
    #[serde(default)]
    pub peers: Vec<String>,
    pub orca_listen: Option<String>,
    #[serde(default, with = "humantime_serde")]
    pub lease: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    pub cluster: String,
    pub node: String,
    pub slots: Option<u32>,
    pub dead_band: Option<f64>,
    #[serde(default, with = "humantime_serde")]
    pub lease: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub name: String,
    #[serde(default)]
    pub identities: Vec<String>,
    pub address: Option<String>,
    pub sla: Sla,
    #[serde(default)]
    pub bound: Bound,
    #[serde(default)]
    pub controller: Controller,
    #[serde(default)]
    pub rules: Rules,
    #[serde(default)]
    pub output: Output,
    pub source: Source,
    #[serde(default)]
    pub jobs: Jobs,
    #[serde(default)]
    pub load: Load,
    pub health: Option<Health>,
    pub ring: Option<Ring>,
    pub updates: Option<Updates>,
    pub role: Option<Role>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    pub address: String,
    pub user: String,
    pub password_file: Option<PathBuf>,
    pub database: Option<String>,
    pub lock_url: Option<String>,
    #[serde(default, with = "humantime_serde")]
    pub max_lag: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    pub without_primary: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Updates {
    pub url: String,
    #[serde(default, with = "humantime_serde")]
    pub longest: Option<Duration>,
    pub update_cost: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sla {
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    #[serde(default, with = "humantime_serde")]
    pub settling: Option<Duration>,
    pub objective: Option<String>,
    pub set_point: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    pub nominal: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    pub kind: Option<String>,
    pub gains: Option<String>,
    pub kp: Option<f64>,
    pub ki: Option<f64>,
    pub form: Option<String>,
    pub gain: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    pub min_samples: Option<u64>,
    pub window_periods: Option<u32>,
    pub light_load: Option<f64>,
    pub headroom: Option<f64>,
    pub empty_hold_periods: Option<u32>,
    pub max_failed: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    pub full_weight_bound: Option<f64>,
    pub weight_dead_band: Option<f64>,
    pub send: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub kind: String,
    pub url: Option<String>,
    pub histogram: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub failed: Option<String>,
    pub cost: Option<String>,
    pub oldest_age: Option<String>,
    #[serde(default, with = "humantime_serde")]
    pub timeout: Option<Duration>,
    pub max_body: Option<String>,
    pub listen: Option<String>,
    pub node: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    pub kind: Option<String>,
    pub gauge: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub url: Option<String>,
    pub port: Option<u16>,
    pub unix: Option<PathBuf>,
    #[serde(default, with = "humantime_serde")]
    pub sample_interval: Option<Duration>,
    pub address: Option<String>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    pub database: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub kind: Option<String>,
    pub cgroup: Option<PathBuf>,
    pub interface: Option<String>,
    pub speed: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    pub kind: String,
    pub address: Option<String>,
    pub url: Option<String>,
    #[serde(default, with = "humantime_serde")]
    pub interval: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    pub timeout: Option<Duration>,
    pub fall: Option<u32>,
    pub rise: Option<u32>,
}
