//! Entries and a beat in the PostgreSQL beside it, whichever role that has: what the lab's failover of a master is
//! tried with. It keeps nothing itself, and says of each write whether it was made, was not, or is not known.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder,
    exponential_buckets,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};
use tracing::info;

use crate::cli::LedgerArgs;

const MAX_ID: usize = 64;
/// A commit may wait for standbys; being connected to may not.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

const ENTER: &str = "INSERT INTO entries (id) VALUES ($1)";
const BEAT: &str = "UPDATE beat SET n = $1 WHERE n < $1";
const READ: &str = "SELECT n FROM beat";

/// A login. Where a request takes too long it is closed, and the statement not cancelled: that would end a commit's
/// wait for its standbys, and PostgreSQL calls such a commit done.
struct Open {
    client: Client,
    driver: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

enum Failure {
    /// Nothing was changed.
    Unavailable(String),
    /// The write may or may not have been committed.
    InDoubt(String),
}

struct App {
    name: HeaderValue,
    database: Config,
    limit: Duration,
    places: Semaphore,
    idle: Mutex<Vec<Open>>,
    registry: Registry,
    duration: HistogramVec,
    failed: IntCounterVec,
}

pub fn run(args: LedgerArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: LedgerArgs) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: cannot bind", args.listen))?;
    let app = Arc::new(App::new(args)?);
    info!(address = %listener.local_addr()?, "listening");
    let router = Router::new()
        .route("/entry/{id}", post(enter))
        .route("/beat/{n}", post(beat))
        .route("/beat", get(read))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(app);
    tokio::select! {
        served = axum::serve(listener, router).into_future() => Ok(served?),
        _ = terminate.recv() => Ok(()),
    }
}

impl App {
    fn new(args: LedgerArgs) -> Result<Self> {
        let registry = Registry::new();
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "ledger_request_duration_seconds",
                "Time of requests that were answered well.",
            )
            .buckets(exponential_buckets(0.001, 1.2, 56)?),
            &["class"],
        )?;
        let failed = Opts::new("ledger_requests_failed_total", "Requests that were not.");
        let failed = IntCounterVec::new(failed, &["class"])?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(failed.clone()))?;
        for class in ["read", "write"] {
            duration.with_label_values(&[class]);
            failed.with_label_values(&[class]);
        }
        let mut database = args.database;
        database
            .application_name(&args.name)
            .connect_timeout(CONNECT_LIMIT);
        Ok(Self {
            name: HeaderValue::from_str(&args.name).context("--name: no header can carry it")?,
            database,
            limit: args.time_limit,
            places: Semaphore::new(args.connections.into()),
            idle: Mutex::default(),
            registry,
            duration,
            failed,
        })
    }

    /// Does `work` on a connection that no other request has.
    async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let _place = self.places.acquire().await;
        let open = self.open().await.map_err(Failure::Unavailable)?;
        match timeout(self.limit, work(&open.client)).await {
            Ok(Ok(value)) => {
                self.lock().push(open);
                Ok(value)
            }
            Ok(Err(error)) => {
                let text = told(&error);
                if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                    self.lock().push(open);
                    return Err(Failure::Unavailable(text));
                }
                Err(Failure::InDoubt(text))
            }
            Err(_) => Err(Failure::InDoubt(format!(
                "no answer within {:?}",
                self.limit
            ))),
        }
    }

    async fn open(&self) -> Result<Open, String> {
        // In a statement of its own: nothing is awaited under the lock.
        let idle = std::iter::from_fn(|| self.lock().pop()).find(|open| !open.client.is_closed());
        if let Some(open) = idle {
            return Ok(open);
        }
        let connecting = self.database.connect(NoTls);
        let (client, connection) = match timeout(CONNECT_LIMIT, connecting).await {
            Ok(connected) => connected.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("cannot connect within {CONNECT_LIMIT:?}")),
        };
        // Its error is each statement's too.
        let driver = tokio::spawn(connection).abort_handle();
        Ok(Open { client, driver })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Open>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, class: &str, began: Instant, done: Result<String, Failure>) -> Response {
        let (status, text) = match done {
            Ok(text) => {
                let seconds = began.elapsed().as_secs_f64();
                let duration = self.duration.with_label_values(&[class]);
                duration.observe(seconds);
                (StatusCode::OK, text)
            }
            Err(Failure::Unavailable(why)) => (StatusCode::SERVICE_UNAVAILABLE, why),
            Err(Failure::InDoubt(why)) => {
                let text = format!("whether it was made is not known: {why}");
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        };
        if status != StatusCode::OK {
            self.failed.with_label_values(&[class]).inc();
        }
        (status, [("x-node", self.name.clone())], text).into_response()
    }
}

async fn enter(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    let fine = !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(|b| b.is_ascii_graphic());
    if !fine {
        let problem = format!("an id has 1 to {MAX_ID} visible ASCII characters");
        return (StatusCode::BAD_REQUEST, problem).into_response();
    }
    let began = Instant::now();
    let work = async |client: &Client| client.execute(ENTER, &[&id]).await;
    let done = app.with(work).await.map(|_| String::new());
    app.answer("write", began, done)
}

async fn beat(State(app): State<Arc<App>>, Path(n): Path<i64>) -> Response {
    let began = Instant::now();
    let work = async |client: &Client| client.execute(BEAT, &[&n]).await;
    let done = app.with(work).await.map(|_| String::new());
    app.answer("write", began, done)
}

async fn read(State(app): State<Arc<App>>) -> Response {
    let began = Instant::now();
    let work = async |client: &Client| client.query_one(READ, &[]).await?.try_get::<_, i64>(0);
    let done = app.with(work).await.map(|n| n.to_string());
    app.answer("read", began, done)
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    let work = async |client: &Client| client.simple_query("SELECT 1").await;
    match app.with(work).await {
        Ok(_) => (StatusCode::OK, "ok\n".to_owned()).into_response(),
        Err(Failure::Unavailable(why) | Failure::InDoubt(why)) => {
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut text = Vec::new();
    let encoder = TextEncoder::new();
    if let Err(error) = encoder.encode(&app.registry.gather(), &mut text) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    (
        [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
        text,
    )
        .into_response()
}

/// An error with its cause, which its own text leaves out.
fn told(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
