//! Puts a node together, runs it, and ends it in order.

use std::io::IsTerminal;
use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use crate::cache::RowCache;
use crate::catalog::{Catalog, Dimensions};
use crate::cli::{Role, ServeArgs};
use crate::http::{self, App};
use crate::inflight::Inflight;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::replication::Replication;
use crate::replication::master::Master;
use crate::replication::slave::Link;
use crate::rows::Reader;
use crate::writer::{SharedWriter, Writer};
use crate::{prices, seed};

pub fn run(args: ServeArgs) -> Result<()> {
    args.validate()?;
    let master = args.master_address()?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // A node that lost a thread would look alive and not be: it ends instead.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::exit(101);
    }));
    // One thread: requests wait and work on the workers' threads.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(args, master))
}

async fn serve(args: ServeArgs, master: Option<std::net::SocketAddr>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Answers /healthz and 503 to the rest while the data are made.
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: cannot bind", args.listen))?;
    let replication_listener = args
        .replication_listen
        .map(|address| {
            TcpListener::bind(address)
                .with_context(|| format!("--replication-listen {address}: cannot bind"))
        })
        .transpose()?;
    info!(node = args.name, address = %listener.local_addr()?, "listening");

    let metrics = Arc::new(Metrics::new()?);
    let app = Arc::new(App::new(
        args.name.clone(),
        args.role == Role::Slave,
        Arc::clone(&metrics),
        Arc::new(Inflight::default()),
    ));
    let (stop, stopped) = oneshot::channel::<()>();
    let (failed, mut failure) = mpsc::channel::<anyhow::Error>(1);
    let server = tokio::spawn(http::serve(listener, Arc::clone(&app), stopped));

    let grace = args.shutdown_grace;
    let starting = Arc::clone(&app);
    let loading = tokio::task::spawn_blocking(move || {
        load(&args, master, replication_listener, &starting, failed)
    });
    let writer = tokio::select! {
        loaded = loading => loaded.context("loading the data panicked")??,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    info!("data loaded");

    let outcome = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        Some(error) = failure.recv() => Err(error),
    };
    info!("stopping");
    app.stop();
    // The server is gone only if it failed, which its result tells.
    let _ = stop.send(());
    if let Ok(ended) = tokio::time::timeout(grace, server).await {
        ended.context("the HTTP server panicked")??;
    }
    writer.lock().checkpoint().context("cannot checkpoint")?;
    outcome
}

/// Makes or opens the data and starts everything that needs them.
fn load(
    args: &ServeArgs,
    master: Option<std::net::SocketAddr>,
    replication_listener: Option<TcpListener>,
    app: &App,
    failed: mpsc::Sender<anyhow::Error>,
) -> Result<Arc<SharedWriter>> {
    let dimensions = Dimensions {
        seed: args.seed,
        symbols: args.symbols,
        history: args.history,
        accounts: args.accounts,
    };
    let (db, path) = seed::open_or_build(&args.data_dir, dimensions)?;
    let catalog = Arc::new(Catalog::load(&db, dimensions)?);
    let cache = Arc::new(RowCache::new(args.cache_rows));
    let readers: Result<Vec<Reader>> = (0..args.service.workers)
        .map(|_| Reader::open(&path, Arc::clone(&cache)))
        .collect();
    let pool = Pool::start(readers?, &args.service, args.queue_limit)?;
    let writer = Arc::new(SharedWriter::new(Writer::open(
        db, path, dimensions, cache,
    )?));
    let metrics = Arc::clone(&app.metrics);
    metrics.sequence.set(writer.lock().position.sequence as i64);

    let replication = match master {
        None => {
            let master = Arc::new(Master::new(
                Arc::clone(&writer),
                Arc::clone(&metrics),
                args.replication_timeout,
                args.replication_log,
            ));
            metrics.replication_ready.set(1);
            if let Some(listener) = replication_listener {
                let master = Arc::clone(&master);
                spawn("replication", move || master.listen(&listener))?;
            }
            Replication::Master(master)
        }
        Some(address) => {
            let link = Arc::new(Link::new(
                args.name.clone(),
                address,
                args.replication_timeout,
                Arc::clone(&writer),
                Arc::clone(&metrics),
            ));
            let (following, failed) = (Arc::clone(&link), failed.clone());
            spawn("replication", move || {
                // Full only if another failure ends the process already.
                let _ = failed.try_send(following.run());
            })?;
            Replication::Slave(link)
        }
    };
    let (prices, seed) = (Arc::clone(&writer), args.seed);
    let periods = (args.price_update_min, args.price_update_max);
    spawn("prices", move || {
        if let Err(error) = prices::run(&prices, &metrics, seed, periods) {
            let _ = failed.try_send(error.context("cannot update prices"));
        }
    })?;
    app.loaded(pool, Arc::clone(&writer), catalog, replication);
    Ok(writer)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .with_context(|| format!("cannot start the {name} thread"))?;
    Ok(())
}
