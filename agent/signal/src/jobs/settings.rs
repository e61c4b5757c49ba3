//! `[service.jobs]`: the source of the number of jobs. Each kind has its own keys, in its own module.

use std::time::Duration;

use plimsoll_exposition::Selector;
use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, TableReference, table, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    BacklogConfig, DatabaseConfig, GaugeConfig, Listens, SocketsConfig, database, gauge, sockets,
};

/// Source of the number of jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum JobsConfig {
    /// No source: the number is unknown.
    None,
    /// A Prometheus gauge.
    Prometheus(GaugeConfig),
    /// Established TCP connections to a local port.
    Sockets(SocketsConfig),
    /// Number of active clients of a database.
    Database(DatabaseConfig),
}

impl JobsConfig {
    /// The gauge, if it is in the scrape of the delay source.
    pub fn gauge_in_scrape(&self) -> Option<&GaugeConfig> {
        match self {
            JobsConfig::Prometheus(gauge) if gauge.url.is_none() => Some(gauge),
            _ => None,
        }
    }

    /// Selector of the gauge in the scrape of the delay source, if it is there.
    pub fn in_scrape(&self) -> Option<Selector> {
        let gauge = self.gauge_in_scrape()?;
        Some(Selector::new(&gauge.gauge, &gauge.labels))
    }
}

/// Source of the number of jobs in the node. Each kind has its own keys; those of others are refused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(title = "[service.jobs]")]
pub struct JobsSection {
    /// A gauge, connections waiting to be accepted, established connections, the active clients of a database, or
    /// unknown: docs/load-and-jobs.md.
    #[schemars(extend("x-values" = "`prometheus`, `backlog`, `sockets`, `mysql`, `postgresql`, `none`", "x-default" = "if the source is `prometheus` and the port is known `\"backlog\"`, otherwise `\"none\"`"))]
    kind: Option<String>,
    #[schemars(skip)]
    #[serde(flatten)]
    keys: toml::Table,
}

/// Properties of the delay source that the job source depends on.
pub struct DelaySource<'a> {
    /// URL of the service's own metrics, if the source is a scrape.
    pub scraped: Option<&'a HttpUrl>,
    /// True if the source counts jobs itself.
    pub counts_jobs: bool,
}

/// Checks `[service.jobs]`. `path` prefixes the keys in errors; `period` caps the timeouts.
pub fn jobs(
    path: &str,
    raw: &JobsSection,
    source: &DelaySource<'_>,
    period: Duration,
) -> Checked<JobsConfig> {
    let kind = raw.kind.as_deref().unwrap_or("none");
    if source.counts_jobs && kind != "none" {
        let problem = "does not apply to source.kind = \"partitions\", which counts its own";
        return wrong(format!("{path}.kind"), problem);
    }
    let keys = raw.keys.clone();
    match kind {
        "none" => match keys.keys().next() {
            Some(key) => wrong(
                format!("{path}.{key}"),
                format!("does not apply to kind = {kind:?}"),
            ),
            None => Ok(JobsConfig::None),
        },
        "prometheus" => {
            gauge::settings::check(path, keys, source.scraped, period).map(JobsConfig::Prometheus)
        }
        // Jobs inside the application are derived from its delays.
        "backlog" => Ok(JobsConfig::None),
        "sockets" => sockets::settings::check(path, keys).map(JobsConfig::Sockets),
        "mysql" | "postgresql" => {
            database::settings::check(path, kind, keys, period).map(JobsConfig::Database)
        }
        other => wrong(
            format!("{path}.kind"),
            format!(
                "must be one of \"prometheus\", \"backlog\", \"sockets\", \"mysql\", \"postgresql\", \"none\", is {other:?}"
            ),
        ),
    }
}

/// The listen queue of a service whose own histogram is the source: requests there are missing from that
/// histogram. `None` for other sources, for jobs counted otherwise, and if no port is known.
pub fn backlog(
    path: &str,
    raw: &JobsSection,
    listens: &Listens<'_>,
    source: &DelaySource<'_>,
) -> Checked<Option<BacklogConfig>> {
    match (raw.kind.as_deref(), source.scraped) {
        (Some("backlog"), None) => {
            let problem = "\"backlog\" is for source.kind = \"prometheus\": what a proxy sees contains the wait";
            wrong(format!("{path}.kind"), problem)
        }
        (Some("backlog"), Some(scraped)) => {
            sockets::settings::backlog(path, raw.keys.clone(), scraped).map(Some)
        }
        (None | Some("prometheus"), Some(scraped)) => {
            Ok(sockets::settings::own_backlog(listens, scraped))
        }
        _ => Ok(None),
    }
}

/// Reference of `[service.jobs]`, by kind.
pub fn reference() -> [TableReference; 4] {
    [
        table::<JobsSection>(),
        table::<gauge::settings::Section>(),
        table::<sockets::settings::Section>(),
        table::<database::settings::Section>(),
    ]
}
