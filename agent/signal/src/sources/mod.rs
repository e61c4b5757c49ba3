//! Sources of delays, one module each.

pub mod haproxy_log;
mod metrics;
mod prometheus;
mod proxies;
mod settings;

use std::sync::Arc;

use plimsoll_core::{Observation, Sla};
use plimsoll_exposition::Selector;
use plimsoll_scatter::partition::{Board, Partitions};

use crate::source_error::SourceError;

pub use haproxy_log::{HaproxyLogConfig, LogListen, log_lines};
pub use metrics::SourceMetrics;
pub use prometheus::PrometheusConfig;
pub use proxies::{ObservationBoard, Observations};
pub use settings::{SourceConfig, SourceSection, reference, source};

/// Shared state that sources need.
#[derive(Clone, Debug)]
pub struct SourceContext {
    /// Metrics of all sources.
    pub metrics: SourceMetrics,
    /// Observations that proxies reported to Redis.
    pub observations: Arc<ObservationBoard>,
    /// Partitions that this agent queries.
    pub partitions: Arc<Partitions>,
}

/// The open delay source of one service.
#[derive(Debug)]
pub enum Source {
    /// Scrape of the service's own histogram.
    Prometheus(Box<prometheus::PrometheusSource>),
    /// HAProxy's log lines.
    HaproxyLog(haproxy_log::HaproxyLogSource),
    /// Observations reported by proxies.
    Proxies(proxies::ProxiesSource),
    /// The agent's own partition queries.
    Partitions(Arc<Board>),
}

impl Source {
    /// Opens the source. `jobs` is the gauge to read in the same scrape. Errors: kind `bind`, if a log listener cannot
    /// be opened.
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
            SourceConfig::HaproxyLog(config) => {
                haproxy_log::HaproxyLogSource::open(service, config, &context.metrics)
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

    /// Observation since the last successful call. `None` if there is none yet: this call set the baseline of the next
    /// one, or nothing new was reported.
    pub async fn observe(&mut self) -> Result<Option<Observation>, SourceError> {
        match self {
            Source::Prometheus(source) => source.observe().await,
            Source::HaproxyLog(source) => source.observe().await.map(Some),
            Source::Proxies(source) => source.observe(),
            Source::Partitions(board) => Ok(Some(board.observe())),
        }
    }

    /// True if proxies have reported since the last observation. Always false for other sources.
    pub fn has_news(&self) -> bool {
        matches!(self, Source::Proxies(source) if source.has_news())
    }

    /// Current number of jobs in the node, if the source knows it without I/O.
    pub fn jobs_now(&self) -> Option<f64> {
        match self {
            Source::Partitions(board) => Some(board.jobs()),
            Source::HaproxyLog(source) => source.jobs_now(),
            Source::Prometheus(_) | Source::Proxies(_) => None,
        }
    }
}
