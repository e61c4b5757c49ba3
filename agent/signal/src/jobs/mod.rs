//! Where the number of jobs in the node comes from.

mod database;
mod gauge;
mod settings;
mod sock_diag;
mod sockets;

pub use database::Database;
pub use settings::{
    BacklogConfig, DatabaseConfig, DatabaseKind, DelaySource, JobsConfig, JobsSection,
    ListenSocket, Listens, Login, REFERENCE, backlog, database, jobs,
};
pub use sockets::{OwnScrapes, Sockets, Wanted};

use crate::source_error::SourceError;

/// Jobs at the end of a period, the most in it and the mean over it where they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCount {
    /// At the end.
    pub now: Option<f64>,
    /// The most.
    pub peak: Option<f64>,
    /// Over the looks in it.
    pub mean: Option<f64>,
}

impl JobCount {
    /// Where what was in between is not known.
    fn at_the_end(now: f64) -> Self {
        JobCount {
            now: Some(now),
            ..JobCount::default()
        }
    }
}

/// A source of jobs.
#[derive(Debug)]
pub enum Jobs {
    /// Unknown, or read by the delay source.
    None,
    /// A gauge elsewhere.
    Gauge(gauge::Gauge),
    /// Established connections.
    Sockets(Sockets),
    /// A database's own count.
    Database(Box<database::Database>),
}

impl Jobs {
    /// Starts looking; needs a runtime.
    pub fn open(config: &JobsConfig) -> Self {
        match config {
            JobsConfig::None | JobsConfig::Prometheus { url: None, .. } => Jobs::None,
            JobsConfig::Prometheus {
                gauge,
                labels,
                url: Some(url),
                timeout,
            } => Jobs::Gauge(gauge::Gauge::new(url.clone(), gauge, labels, *timeout)),
            JobsConfig::Sockets {
                port,
                sample_interval,
            } => {
                let wanted = Wanted::Established(*port);
                Jobs::Sockets(Sockets::watch(
                    wanted,
                    *sample_interval,
                    OwnScrapes::default(),
                ))
            }
            JobsConfig::Database(config) => {
                Jobs::Database(Box::new(database::Database::new(config.clone())))
            }
        }
    }

    /// The newest count, where one is at hand.
    pub fn newest(&self) -> Option<f64> {
        match self {
            Jobs::Sockets(sockets) => sockets.newest(),
            Jobs::None | Jobs::Gauge(_) | Jobs::Database(_) => None,
        }
    }

    /// The count since the last call.
    pub async fn count(&mut self) -> Result<JobCount, SourceError> {
        match self {
            Jobs::None => Ok(JobCount::default()),
            Jobs::Gauge(gauge) => gauge.read().await.map(JobCount::at_the_end),
            Jobs::Database(database) => database.count().await.map(JobCount::at_the_end),
            Jobs::Sockets(sockets) => sockets.take().await,
        }
    }
}
