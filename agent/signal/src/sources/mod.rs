//! Where delays come from: one file a source.

mod haproxy_log;
mod log_connections;
mod log_jobs;
mod log_line;
mod log_listener;
mod log_stamp;
mod metrics;
mod prometheus;
mod proxies;
mod reference;
mod settings;

use std::sync::Arc;

use plimsoll_core::{Observation, Sla};
use plimsoll_exposition::Selector;
use plimsoll_scatter::partition::{Board, Partitions};

use crate::source_error::SourceError;

pub use log_line::{LINE_RESULTS, LOG_FORMAT};
pub use metrics::SourceMetrics;
pub use proxies::{ObservationBoard, Observations};
pub use reference::log_lines;
pub use settings::{LogListen, PrometheusConfig, REFERENCE, SourceConfig, SourceSection, source};

/// What sources work with.
#[derive(Clone, Debug)]
pub struct SourceContext {
    /// Counters and gauges.
    pub metrics: SourceMetrics,
    /// What proxies told Redis.
    pub observations: Arc<ObservationBoard>,
    /// The agent's own queries.
    pub partitions: Arc<Partitions>,
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
    /// Opens the source; only a listener can fail here. `jobs` is a gauge in a scrape.
    pub fn open(
        service: &str,
        config: &SourceConfig,
        sla: Sla,
        jobs: Option<Selector>,
        context: &SourceContext,
    ) -> Result<Self, SourceError> {
        match config {
            SourceConfig::Prometheus(config) => {
                let source = prometheus::PrometheusSource::new(config.clone(), jobs, sla);
                Ok(Source::Prometheus(Box::new(source)))
            }
            SourceConfig::HaproxyLog { listen, node } => {
                haproxy_log::HaproxyLogSource::open(service, listen, node, &context.metrics)
                    .map(Source::HaproxyLog)
            }
            SourceConfig::Proxies => {
                let (board, metrics) = (Arc::clone(&context.observations), context.metrics.clone());
                let source = proxies::ProxiesSource::new(service, board, metrics);
                Ok(Source::Proxies(source))
            }
            SourceConfig::Partitions => Ok(Source::Partitions(context.partitions.board(service))),
        }
    }

    /// What was seen since the last call that gave something; `None` where this call only laid the
    /// base that the next one compares with.
    pub async fn observe(&mut self) -> Result<Option<Observation>, SourceError> {
        match self {
            Source::Prometheus(source) => source.observe().await,
            Source::HaproxyLog(source) => source.observe().await.map(Some),
            Source::Proxies(source) => source.observe(),
            Source::Partitions(board) => Ok(Some(board.observe())),
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
