//! SQLite in each node, and replication from one master to its slaves.

mod data;
mod replication;
mod source;
mod writer;

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::cache::RowCache;
use crate::catalog::Dimensions;
use crate::cli::ServeArgs;
use crate::database::{Opened, spawn};
use crate::metrics::Metrics;
use replication::master::Master;
use replication::slave::Link;
use replication::{Ledger, Replication};
pub use source::Source;
use writer::{SharedWriter, Writer};

pub struct Store {
    writer: Arc<SharedWriter>,
    replication: Replication,
}

impl Store {
    pub fn ready(&self) -> Result<(), &'static str> {
        self.replication.ready()
    }

    pub async fn acknowledged(&self, sequence: u64) {
        if let Replication::Master(master) = &self.replication {
            master.acknowledged(sequence).await;
        }
    }

    pub fn close(&self) -> Result<()> {
        self.writer.lock().checkpoint().context("cannot checkpoint")
    }
}

/// Makes or opens the database and starts replication.
pub fn open(
    args: &ServeArgs,
    dimensions: Dimensions,
    cache: &Arc<RowCache>,
    metrics: &Arc<Metrics>,
    failed: &mpsc::Sender<anyhow::Error>,
) -> Result<Opened<Store, Source>> {
    let listener = args
        .replication_listen
        .map(|address| {
            TcpListener::bind(address)
                .with_context(|| format!("--replication-listen {address}: cannot bind"))
        })
        .transpose()?;
    let (db, path) = data::open_or_build(&args.data_dir, dimensions)?;
    let catalog = data::catalog(&db, dimensions)?;
    let writer = Arc::new(SharedWriter::new(Writer::open(
        db,
        path.clone(),
        dimensions,
        Arc::clone(cache),
    )?));
    metrics.sequence.set(writer.lock().position.sequence as i64);
    let replication = match args.master_address()? {
        None => Replication::Master(start_master(args, listener, &writer, metrics)?),
        Some(address) => {
            let link = Arc::new(Link::new(
                args.name.clone(),
                address,
                args.replication_timeout,
                Arc::clone(&writer),
                Arc::clone(metrics),
            ));
            let (following, failed) = (Arc::clone(&link), failed.clone());
            spawn("replication", move || {
                // Full only if another failure ends the process already.
                let _ = failed.try_send(following.run());
            })?;
            Replication::Slave(link)
        }
    };
    let ledger = match &replication {
        Replication::Master(master) => Some(Ledger::Own(Arc::clone(master))),
        Replication::Slave(link) => args.primary.then(|| Ledger::Masters(Arc::clone(link))),
    };
    let sources: Result<Vec<_>> = (0..args.service.workers)
        .map(|_| Source::open(&path, ledger.clone()))
        .collect();
    let moved = Arc::clone(&writer);
    Ok(Opened {
        store: Store {
            writer,
            replication,
        },
        catalog,
        sources: sources?,
        prices: Some(Box::new(move |moves| {
            moved.lock().update_prices(moves)?;
            Ok(moves.len())
        })),
    })
}

fn start_master(
    args: &ServeArgs,
    listener: Option<TcpListener>,
    writer: &Arc<SharedWriter>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<Master>> {
    let master = Arc::new(Master::new(
        Arc::clone(writer),
        Arc::clone(metrics),
        args.replication_timeout,
        args.replication_log,
        // Opening runs on a thread of the runtime.
        Handle::current(),
    ));
    metrics.replication_ready.set(1);
    if let Some(listener) = listener {
        let master = Arc::clone(&master);
        spawn("replication", move || master.listen(&listener))?;
    }
    Ok(master)
}
