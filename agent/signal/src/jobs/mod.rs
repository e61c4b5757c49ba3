//! Sources of the number of jobs in the node.

pub mod database;
mod gauge;
mod settings;
mod sock_diag;
mod sockets;

pub use database::{
    Database,
    settings::{DatabaseConfig, DatabaseKind, Login, database},
};
pub use gauge::settings::GaugeConfig;
pub use settings::{DelaySource, JobsConfig, JobsSection, backlog, jobs, reference};
pub use sockets::settings::{BacklogConfig, ListenSocket, Listens, SocketsConfig};
pub use sockets::{OwnScrapes, Sockets, Wanted};

use crate::source_error::SourceError;

/// Number of jobs over one period. Each figure is `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCount {
    /// At the end of the period.
    pub now: Option<f64>,
    /// Maximum of the samples in the period.
    pub peak: Option<f64>,
    /// Mean of the samples in the period.
    pub mean: Option<f64>,
}

impl JobCount {
    /// A count sampled only once, at the end of the period.
    fn at_the_end(now: f64) -> Self {
        JobCount {
            now: Some(now),
            ..JobCount::default()
        }
    }
}

/// An open source of the number of jobs.
#[derive(Debug)]
pub enum Jobs {
    /// No separate source: the number is unknown, or the delay source reads it.
    None,
    /// A Prometheus gauge with its own URL.
    Gauge(gauge::Gauge),
    /// Established TCP connections, sampled several times a period.
    Sockets(Sockets),
    /// The number of active clients that a database reports.
    Database(Box<database::Database>),
}

impl Jobs {
    /// Opens the source. Requires a Tokio runtime: `Sockets` spawns a sampling task.
    pub fn open(config: &JobsConfig) -> Self {
        match config {
            JobsConfig::None => Jobs::None,
            JobsConfig::Prometheus(config) => match &config.url {
                Some(url) => Jobs::Gauge(gauge::Gauge::new(url.clone(), config)),
                None => Jobs::None,
            },
            JobsConfig::Sockets(config) => {
                let wanted = Wanted::Established(config.port);
                let every = config.sample_interval;
                Jobs::Sockets(Sockets::watch(wanted, every, OwnScrapes::default()))
            }
            JobsConfig::Database(config) => {
                Jobs::Database(Box::new(database::Database::new(config.clone())))
            }
        }
    }

    /// Latest sample, if one is available without I/O.
    pub fn newest(&self) -> Option<f64> {
        match self {
            Jobs::Sockets(sockets) => sockets.newest(),
            Jobs::None | Jobs::Gauge(_) | Jobs::Database(_) => None,
        }
    }

    /// Counts since the previous call. Errors: kind `jobs`, or those of a scrape.
    pub async fn count(&mut self) -> Result<JobCount, SourceError> {
        match self {
            Jobs::None => Ok(JobCount::default()),
            Jobs::Gauge(gauge) => gauge.read().await.map(JobCount::at_the_end),
            Jobs::Database(database) => database.count().await.map(JobCount::at_the_end),
            Jobs::Sockets(sockets) => sockets.take().await,
        }
    }
}
