//! Where delays come from: one file a source.

mod haproxy_log;
mod log_connections;
mod log_jobs;
mod log_line;
mod log_listener;
mod log_stamp;
mod prometheus;
mod proxies;
mod settings;

use std::sync::Arc;

use plimsoll_core::{Cost, DelayHistogram, Seconds};
use plimsoll_exposition::{ExpositionError, Selector};
use plimsoll_net::{FetchError, printable};

use crate::{
    config::ServiceConfig,
    jobs::JobsConfig,
    metrics::Metrics,
    partition::{Board, Partitions},
    ring::RingBoard,
};

pub use log_line::{LINE_RESULTS, LOG_FORMAT};
pub use settings::{LogListen, PrometheusConfig, SourceConfig, SourceSection, metric_name, source};

/// Every kind of [`SourceError`].
pub const KINDS: [&str; 12] = [
    "bind",
    "buckets",
    "garbage",
    "jobs",
    "load",
    "no_series",
    "role",
    "status",
    "timeout",
    "too_large",
    "truncated",
    "unreachable",
];

/// What a source saw since the last good observation.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time since then, by the monotonic clock.
    pub period: Seconds,
    /// Delays of requests that finished well.
    pub delays: DelayHistogram,
    /// Requests that failed.
    pub failed: u64,
    /// Ages at which clients left who had no answer.
    pub left: Option<DelayHistogram>,
    /// Cost of what finished.
    pub finished_cost: Option<Cost>,
    /// Jobs in the node on average, without those that waited in a proxy.
    pub mean_jobs: Option<f64>,
    /// Of what asked for the service, at whatever node, the share that proxies refused for want of room.
    pub refused_share: Option<f64>,
    /// Age of the oldest unfinished request.
    pub oldest_age: Option<Seconds>,
    /// The jobs gauge, where it is in the source's own scrape.
    pub jobs: Option<f64>,
    /// The most jobs that there were, where the source knows it.
    pub peak_jobs: Option<f64>,
}

/// Why there is no observation: a label value and the whole story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// The `kind` label.
    pub kind: &'static str,
    /// For people.
    pub message: String,
    /// Whether the connection was open when the agent gave up: it may wait for the service still.
    pub left_waiting: bool,
}

impl SourceError {
    /// An error of this kind. The message may quote what a peer sent.
    pub fn new(kind: &'static str, message: impl AsRef<str>) -> Self {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        SourceError {
            kind,
            message: printable(message.as_ref()),
            left_waiting: false,
        }
    }

    /// Whether it was not answered in time, as by an overloaded service, rather than not at all.
    pub fn is_late(&self) -> bool {
        self.kind == "timeout"
    }
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SourceError {}

impl From<FetchError> for SourceError {
    fn from(error: FetchError) -> Self {
        SourceError {
            left_waiting: error.left_waiting,
            ..SourceError::new(error.failure.label(), error.message)
        }
    }
}

impl From<ExpositionError> for SourceError {
    fn from(error: ExpositionError) -> Self {
        let kind = match &error {
            ExpositionError::Malformed(_) => "garbage",
            ExpositionError::Truncated(_) => "truncated",
            ExpositionError::NoSeries(_) => "no_series",
        };
        SourceError::new(kind, error.to_string())
    }
}

/// A source of one service.
#[derive(Debug)]
pub enum Source {
    /// See [`prometheus`].
    Prometheus(Box<prometheus::PrometheusSource>),
    /// See [`haproxy_log`].
    HaproxyLog(haproxy_log::HaproxyLogSource),
    /// See [`proxies`].
    Proxies(proxies::ProxiesSource),
    /// The agent's own queries.
    Partitions(Arc<Board>),
}

impl Source {
    /// Opens the source; only a listener can fail here.
    pub fn open(
        service: &ServiceConfig,
        metrics: &Metrics,
        rings: &Arc<RingBoard>,
        partitions: &Partitions,
    ) -> Result<Self, SourceError> {
        match &service.source {
            SourceConfig::Prometheus(config) => {
                let jobs = match &service.jobs {
                    JobsConfig::Prometheus {
                        gauge,
                        labels,
                        url: None,
                        ..
                    } => Some(Selector::new(gauge, labels)),
                    _ => None,
                };
                let source =
                    prometheus::PrometheusSource::new(config.clone(), jobs, service.settings.sla);
                Ok(Source::Prometheus(Box::new(source)))
            }
            SourceConfig::HaproxyLog { listen, node } => {
                haproxy_log::HaproxyLogSource::open(&service.name, listen, node, metrics)
                    .map(Source::HaproxyLog)
            }
            SourceConfig::Proxies => {
                let told = metrics.source.clone();
                let source = proxies::ProxiesSource::new(&service.name, Arc::clone(rings), told);
                Ok(Source::Proxies(source))
            }
            SourceConfig::Partitions => Ok(Source::Partitions(partitions.board(&service.name))),
        }
    }

    /// What was seen since the last call that gave something; `None` where this call only laid the
    /// base that the next one compares with.
    pub async fn observe(&mut self) -> Result<Option<Sample>, SourceError> {
        match self {
            Source::Prometheus(source) => source.observe().await,
            Source::HaproxyLog(source) => source.observe().await.map(Some),
            Source::Proxies(source) => source.observe(),
            Source::Partitions(board) => Ok(Some(board.sample())),
        }
    }

    /// Whether others told something new, where they tell when they please.
    pub fn has_news(&self) -> bool {
        matches!(self, Source::Proxies(source) if source.has_news())
    }

    /// Jobs in the node now, where the source knows without asking anybody.
    pub fn jobs_now(&self) -> Option<f64> {
        match self {
            Source::Partitions(board) => Some(board.jobs()),
            Source::HaproxyLog(source) => source.jobs_now(),
            Source::Prometheus(_) | Source::Proxies(_) => None,
        }
    }
}

/// Tries whether a listener could be opened, and closes it.
pub fn check_listen(listen: &LogListen) -> Result<(), SourceError> {
    log_listener::Listener::bind(listen).map(drop)
}
