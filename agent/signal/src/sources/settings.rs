//! `[service.source]`: the source of delays. Each kind has its own keys, in its own module.

use std::time::Duration;

use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, TableReference, section, table, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{HaproxyLogConfig, LogListen, PrometheusConfig, haproxy_log, prometheus};

/// Source of delays.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// A scrape of the service's own metrics.
    Prometheus(PrometheusConfig),
    /// HAProxy's log lines.
    HaproxyLog(HaproxyLogConfig),
    /// Observations that proxies reported to Redis.
    Proxies,
    /// Queries to the partitions that name the service.
    Partitions,
}

impl SourceConfig {
    /// URL of the service's own metrics, if they are the source.
    pub fn scraped(&self) -> Option<&HttpUrl> {
        match self {
            SourceConfig::Prometheus(scrape) => Some(&scrape.url),
            _ => None,
        }
    }

    /// Socket that the source listens on.
    pub fn log_listen(&self) -> Option<&LogListen> {
        match self {
            SourceConfig::HaproxyLog(log) => Some(&log.listen),
            _ => None,
        }
    }

    /// Whether its observations come through the ring in Redis.
    pub fn needs_ring(&self) -> bool {
        *self == SourceConfig::Proxies
    }

    /// Whether it counts the agent's own partition queries, which nothing else does.
    pub fn counts_queries(&self) -> bool {
        *self == SourceConfig::Partitions
    }
}

/// Describes the source for display.
impl std::fmt::Display for SourceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SourceConfig::Prometheus(scrape) => {
                write!(f, "histogram {} at {}", scrape.histogram, scrape.url)
            }
            SourceConfig::HaproxyLog(log) => {
                write!(f, "HAProxy's log of {} at {}", log.node, log.listen)
            }
            SourceConfig::Proxies => f.write_str("what proxies tell Redis"),
            SourceConfig::Partitions => f.write_str("its partitions' queries"),
        }
    }
}

/// Where delays come from. Each kind has its own keys; those of others are refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "[service.source]")]
pub struct SourceSection {
    /// A scrape of the service, HAProxy's log lines, the proxies' reports in Redis (sent by the Lua policies; needs
    /// `[service.ring]`), or the queries to the partitions that name the service (docs/scatter.md).
    #[schemars(extend("x-values" = "`prometheus`, `haproxy-log`, `proxies`, `partitions`", "x-default" = "required"))]
    kind: String,
    #[schemars(skip)]
    #[serde(flatten)]
    keys: toml::Table,
}

/// A kind without keys of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoKeys {}

/// Checks `[service.source]`. `path` prefixes the keys in errors; `period` is the control period.
pub fn source(path: &str, raw: &SourceSection, period: Duration) -> Checked<SourceConfig> {
    let keys = raw.keys.clone();
    match raw.kind.as_str() {
        "prometheus" => {
            prometheus::settings::check(path, keys, period).map(SourceConfig::Prometheus)
        }
        "haproxy-log" => haproxy_log::settings::check(path, keys).map(SourceConfig::HaproxyLog),
        "proxies" => section(path, keys).map(|NoKeys {}| SourceConfig::Proxies),
        "partitions" => section(path, keys).map(|NoKeys {}| SourceConfig::Partitions),
        other => wrong(
            format!("{path}.kind"),
            format!(
                "must be one of \"prometheus\", \"haproxy-log\", \"proxies\", \"partitions\", is {other:?}"
            ),
        ),
    }
}

/// Reference of `[service.source]`, by kind.
pub fn reference() -> [TableReference; 3] {
    [
        table::<SourceSection>(),
        table::<prometheus::settings::Section>(),
        table::<haproxy_log::settings::Section>(),
    ]
}
