//! The node's database, SQLite or PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use tokio::sync::mpsc;

use crate::cache::RowCache;
use crate::catalog::Dimensions;
use crate::cli::ServeArgs;
use crate::database::Opened;
use crate::metrics::Metrics;
use crate::rows::{Key, Row};
use crate::transaction::{Order, Refusal, Transaction};
use crate::{postgres, sqlite};

/// The database beside the workers' connections: its state, and its part in replication.
pub enum Store {
    Sqlite(sqlite::Store),
    Postgres(postgres::Store),
}

/// One worker's connection to the database.
pub enum Source {
    Sqlite(sqlite::Source),
    Postgres(Box<postgres::Source>),
}

/// Opens the database that the flags name. `failed` takes the error that ends the process later.
pub fn open(
    args: &ServeArgs,
    dimensions: Dimensions,
    cache: &Arc<RowCache>,
    metrics: &Arc<Metrics>,
    failed: &mpsc::Sender<anyhow::Error>,
) -> Result<Opened<Store, Source>> {
    Ok(match &args.database {
        None => sqlite::open(args, dimensions, cache, metrics, failed)?
            .map(Store::Sqlite, Source::Sqlite),
        Some(database) => postgres::open(args, database, dimensions, metrics)?
            .map(Store::Postgres, |source| Source::Postgres(Box::new(source))),
    })
}

impl Store {
    /// Whether the node may answer, or why not.
    pub fn ready(&self) -> Result<(), &'static str> {
        match self {
            Self::Sqlite(store) => store.ready(),
            Self::Postgres(store) => store.ready(),
        }
    }

    /// Waits until every slave that serves shows a transaction that was made.
    pub async fn acknowledged(&self, sequence: u64) {
        match self {
            Self::Sqlite(store) => store.acknowledged(sequence).await,
            // Its commit has waited for the standbys.
            Self::Postgres(_) => {}
        }
    }

    /// Leaves the database in order.
    pub fn close(&self) -> Result<()> {
        match self {
            Self::Sqlite(store) => store.close(),
            Self::Postgres(_) => Ok(()),
        }
    }
}

impl Source {
    /// Whether cached rows are told of every change, so that they need not be read again.
    pub fn tells_of_changes(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// The rows of `keys`, of one snapshot of each table; `None` where there is none.
    pub fn fetch(&mut self, keys: &[Key]) -> Result<Vec<Option<Row>>> {
        match self {
            Self::Sqlite(source) => Ok(source.fetch(keys)?),
            Self::Postgres(source) => source.fetch(keys),
        }
    }

    pub fn held_stocks(&mut self, account: u32) -> Result<Vec<u32>> {
        match self {
            Self::Sqlite(source) => Ok(source.held_stocks(account)?),
            Self::Postgres(source) => source.held_stocks(account),
        }
    }

    pub fn transact(&mut self, order: &Order) -> Result<Result<Transaction, Refusal>> {
        match self {
            Self::Sqlite(source) => source.transact(order),
            Self::Postgres(source) => source.transact(order),
        }
    }
}
