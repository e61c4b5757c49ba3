//! Where the number of jobs in the node comes from.

mod database;
mod gauge;
mod sock_diag;
mod sockets;

pub use database::{Database, connect};

use crate::{config::JobsConfig, sources::SourceError};

/// Jobs at the end of a period, and the most in it where that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCount {
    /// At the end.
    pub now: Option<f64>,
    /// The most.
    pub peak: Option<f64>,
}

impl JobCount {
    /// Where what was in between is not known.
    fn at_the_end(now: f64) -> Self {
        JobCount {
            now: Some(now),
            peak: None,
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
    Sockets(sockets::Sockets),
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
            } => Jobs::Sockets(sockets::Sockets::watch(*port, *sample_interval)),
            JobsConfig::Database(config) => {
                Jobs::Database(Box::new(database::Database::new(config.clone())))
            }
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
