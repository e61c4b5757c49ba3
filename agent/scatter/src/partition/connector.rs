//! Connectors of partitions.

use std::sync::Arc;

use super::{
    Asked, Trouble, http,
    out::Out,
    pool::Pool,
    postgresql::{self, Left},
};
use crate::partition::{PartitionConfig, PartitionMetrics, PartitionServer};

/// Connection pool of a partition.
#[derive(Clone, Debug)]
pub enum Connector {
    /// To a database.
    PostgreSql(Arc<Pool<postgresql::Session>>),
    /// To a service.
    Http(Arc<Pool<http::Session>>),
}

impl Connector {
    /// Creates a pool, which connects on the first query.
    pub fn new(partition: &PartitionConfig, metrics: &PartitionMetrics) -> Self {
        let (name, metrics) = (partition.name.clone(), metrics.clone());
        match &partition.server {
            PartitionServer::PostgreSql(database) => {
                Connector::PostgreSql(Arc::new(Pool::new(name, database.clone(), metrics)))
            }
            PartitionServer::Http(service) => {
                Connector::Http(Arc::new(Pool::new(name, service.clone(), metrics)))
            }
        }
    }

    /// Whether its connections suit this configuration.
    pub fn is_for(&self, partition: &PartitionConfig) -> bool {
        match (self, &partition.server) {
            (Connector::PostgreSql(pool), PartitionServer::PostgreSql(database)) => {
                pool.server == *database
            }
            (Connector::Http(pool), PartitionServer::Http(service)) => pool.server == *service,
            _ => false,
        }
    }

    /// Closes idle connections.
    pub fn clear(&self) {
        match self {
            Connector::PostgreSql(pool) => pool.clear(),
            Connector::Http(pool) => pool.clear(),
        }
    }

    /// Runs a query until it is complete, the deadline is exceeded or the caller leaves. Returns the cleanup still to
    /// do, and the result.
    pub async fn run(&self, asked: &Asked, out: &mut Out) -> (Left, Result<(), Trouble>) {
        match self {
            Connector::PostgreSql(pool) => postgresql::run(pool, asked, out).await,
            Connector::Http(pool) => (Left::Nothing, http::run(pool, asked, out).await),
        }
    }
}
