//! Puts a node together, runs it, and ends it in order.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use crate::agent_periods::{self, AgentPeriods};
use crate::cache::RowCache;
use crate::catalog::Dimensions;
use crate::cli::{Role, ServeArgs};
use crate::database::{Opened, spawn};
use crate::freshness::Quotes;
use crate::http::{self, App, Node};
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::prices::{self, Feed};
use crate::reader::Reader;
use crate::store::{self, Store};
use crate::witness::Witness;

pub fn run(args: ServeArgs) -> Result<()> {
    args.validate()?;
    args.master_address()?;
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
    // One thread suffices, as requests run on the workers' threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(args));
    // Does not wait for a start that still waits for its database.
    runtime.shutdown_background();
    outcome
}

async fn serve(args: ServeArgs) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Answers /healthz and 503 to the rest while the data are made.
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: cannot bind", args.listen))?;
    info!(node = args.name, address = %listener.local_addr()?, "listening");

    let witness = args
        .witness_directory
        .as_deref()
        .map(|directory| Witness::open(directory, &args.name))
        .transpose()?;
    let journal = args
        .journal
        .as_deref()
        .map(|path| Journal::open(path, &args.name))
        .transpose()?;
    let metrics = Arc::new(Metrics::new()?);
    let app = Arc::new(App::new(
        args.name.clone(),
        args.role == Role::Master || args.primary,
        witness,
        journal,
        Arc::clone(&metrics),
    ));
    let (stop, stopped) = oneshot::channel::<()>();
    let (failed, mut failure) = mpsc::channel::<anyhow::Error>(1);
    let server = tokio::spawn(http::serve(listener, Arc::clone(&app), stopped));

    let grace = args.shutdown_grace;
    let starting = Arc::clone(&app);
    let loading = tokio::task::spawn_blocking(move || load(&args, &starting, failed));
    let store = tokio::select! {
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
    store.close()?;
    outcome
}

/// Makes or opens the data and starts everything that needs them.
fn load(args: &ServeArgs, app: &App, failed: mpsc::Sender<anyhow::Error>) -> Result<Arc<Store>> {
    let dimensions = Dimensions {
        seed: args.seed,
        symbols: args.symbols,
        history: args.history,
        accounts: args.accounts,
    };
    let cache = Arc::new(RowCache::new(args.cache_rows));
    let metrics = Arc::clone(&app.metrics);
    let Opened {
        store,
        catalog,
        sources,
        prices,
    } = store::open(args, dimensions, &cache, &metrics, &failed)?;
    let quotes = prices
        .is_some()
        .then(|| Arc::new(Quotes::new(args.symbols)));
    let readers = sources
        .into_iter()
        .map(|source| Reader::new(source, Arc::clone(&cache), quotes.clone()))
        .collect();
    let pool = Pool::start(readers, &args.service, args.queue_limit)?;
    let range = (args.price_update_min, args.price_update_max);
    let own = prices::own_periods(args.seed, args.symbols, range);
    if let (Some(update), Some(quotes)) = (prices, &quotes) {
        let feed = Feed {
            update: Mutex::new(update),
            quotes: Arc::clone(quotes),
            metrics,
            latency: args.service.update_latency,
            failed,
            waiting: (0..args.symbols).map(|_| false.into()).collect(),
        };
        start_feed(args, feed, own.clone(), Arc::clone(&pool))?;
    }
    let store = Arc::new(store);
    app.loaded(Node {
        pool,
        store: Arc::clone(&store),
        catalog: Arc::new(catalog),
        quotes: quotes.map(|quotes| (quotes, own)),
    });
    Ok(store)
}

fn start_feed<T: Send + 'static>(
    args: &ServeArgs,
    feed: Feed,
    own: Vec<Duration>,
    pool: Arc<Pool<T>>,
) -> Result<()> {
    let asked = args.feed_periods.clone().map(|url| {
        let asked = Arc::new(AgentPeriods::default());
        let (asking, own, metrics) = (Arc::clone(&asked), own.clone(), Arc::clone(&feed.metrics));
        spawn("periods", move || {
            agent_periods::run(&url, &own, &asking, &metrics)
        })
        .map(|()| asked)
    });
    let (asked, seed, feed) = (asked.transpose()?, args.seed, Arc::new(feed));
    spawn("prices", move || {
        feed.run(own, seed, asked.as_deref(), &pool)
    })
}
