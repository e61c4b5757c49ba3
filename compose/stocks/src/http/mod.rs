//! HTTP: queries, transactions, health and metrics.

mod orders;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::error;

use crate::catalog::Catalog;
use crate::cli::MAX_ITEMS;
use crate::database::{InDoubt, Unavailable};
use crate::freshness::Quotes;
use crate::inflight::{Inflight, Presence};
use crate::journal::{Entry, Journal};
use crate::metrics::{Class, Metrics};
use crate::pool::{Job, Pool, Work};
use crate::reader::Items;
use crate::store::Store;
use crate::views;
use crate::witness::{Claim, Denied, Witness};

const MAX_BODY: usize = 4096;
const QUERY_ITEMS: i64 = 80;

pub struct App {
    name: HeaderValue,
    /// Whether the node takes transactions.
    writes: bool,
    witness: Option<Witness>,
    journal: Option<Arc<Journal>>,
    pub metrics: Arc<Metrics>,
    inflight: Arc<Inflight>,
    node: OnceLock<Node>,
    stopping: std::sync::atomic::AtomicBool,
}

/// Parts of the node that exist once the data are loaded.
pub struct Node {
    pub pool: Arc<Pool<Reply>>,
    pub store: Arc<Store>,
    pub catalog: Arc<Catalog>,
    /// Reads of the quotes and their own periods, if this node moves them itself.
    pub quotes: Option<(Arc<Quotes>, Vec<Duration>)>,
}

/// Response from a worker.
pub struct Reply {
    status: StatusCode,
    body: Vec<u8>,
    /// Sequence number of a committed transaction.
    sequence: Option<u64>,
}

impl App {
    pub fn new(
        name: String,
        writes: bool,
        witness: Option<Witness>,
        journal: Option<Journal>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            name: HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("invalid")),
            writes,
            witness,
            journal: journal.map(Arc::new),
            metrics,
            inflight: Arc::default(),
            node: OnceLock::new(),
            stopping: false.into(),
        }
    }

    pub fn loaded(&self, node: Node) {
        // Called once, by the one loader.
        let _ = self.node.set(node);
    }

    /// Makes the node unready; running requests go on.
    pub fn stop(&self) {
        self.stopping
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn ready(&self) -> Result<&Node, &'static str> {
        if self.stopping.load(std::sync::atomic::Ordering::Relaxed) {
            return Err("stopping");
        }
        let node = self.node.get().ok_or("the data are not loaded yet")?;
        node.store.ready().map(|()| node)
    }

    fn message(&self, status: StatusCode, text: impl Into<Value>) -> Response {
        let mut response = (status, axum::Json(json!({ "error": text.into() }))).into_response();
        let headers = response.headers_mut();
        headers.insert("x-node", self.name.clone());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn unavailable(&self, class: Class, why: &str) -> Response {
        self.metrics.failed(class);
        self.message(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    fn failed(&self, cause: &anyhow::Error) -> Response {
        if let Some(Unavailable(why)) = cause.downcast_ref() {
            return self.message(StatusCode::SERVICE_UNAVAILABLE, why.as_str());
        }
        error!("request failed: {cause:#}");
        let text = match cause.downcast_ref::<InDoubt>() {
            Some(in_doubt) => in_doubt.to_string(),
            None => "internal error".to_owned(),
        };
        self.message(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// Claims the object set of a write for this node, where there is a witness.
    fn claim(&self, headers: &HeaderMap) -> Result<Option<Claim>, Box<Response>> {
        let Some(witness) = &self.witness else {
            return Ok(None);
        };
        let claimed = witness.claim_for(headers);
        let claim = claimed.map_err(|why| Box::new(self.denied(&why, headers)))?;
        self.metrics.primary_claims.inc();
        Ok(Some(claim))
    }

    /// A query that came at this time.
    fn query(&self, at: Instant, headers: &HeaderMap, items: usize) -> Arrival {
        Arrival {
            at,
            entry: self.entry(Class::Query, headers, items),
            claim: None,
        }
    }

    /// A request's entry in the journal, where there is one.
    fn entry(&self, class: Class, headers: &HeaderMap, items: usize) -> Option<Entry> {
        let journal = self.journal.as_ref()?;
        Some(journal.begin(class.label(), headers, items))
    }

    fn denied(&self, why: &Denied, headers: &HeaderMap) -> Response {
        if let Some(journal) = &self.journal {
            journal.refused(headers, why.kind());
        }
        let status = match why {
            Denied::Unreadable(text) => return self.message(StatusCode::BAD_REQUEST, &**text),
            Denied::Late { .. } => {
                self.metrics.primary_late.inc();
                StatusCode::CONFLICT
            }
            Denied::Violation { .. } => {
                self.metrics.primary_violations.inc();
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Denied::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.metrics.failed(Class::Transaction);
        error!("{why}");
        let mut response = self.message(status, why.to_string());
        if status == StatusCode::CONFLICT {
            let reason = HeaderValue::from_static("fenced");
            response.headers_mut().insert("plimsoll-reason", reason);
        }
        response
    }

    /// Queues the work, waits for the worker and, after a transaction, for the slaves.
    async fn answer(
        &self,
        class: Class,
        arrival: Arrival,
        node: &Node,
        asked: usize,
        work: Work<Reply>,
    ) -> Response {
        let Arrival {
            at: arrived,
            claim,
            entry,
        } = arrival;
        let ticket = self.inflight.enter(arrived, asked);
        let presence = Arc::new(Presence {
            _ticket: ticket,
            _entry: entry,
            _claim: claim,
        });
        let mut unanswered = Unanswered(Some((&self.metrics, class)));
        let (reply, replied) = oneshot::channel();
        let job = Job {
            arrived,
            work,
            reply,
            presence: Arc::clone(&presence),
        };
        if node.pool.submit(job).is_err() {
            return self.message(StatusCode::SERVICE_UNAVAILABLE, "the queue is full");
        }
        let (items, reply) = match replied.await {
            Ok(Ok(done)) => done,
            Ok(Err(cause)) => {
                return self.failed(&cause);
            }
            Err(_) => return self.message(StatusCode::INTERNAL_SERVER_ERROR, "worker gone"),
        };
        if let Some(sequence) = reply.sequence {
            node.store.acknowledged(sequence).await;
        }
        unanswered.0 = None;
        drop(presence);
        let touched = items.hits + items.misses;
        self.metrics.cache_hits.inc_by(items.hits as u64);
        self.metrics.cache_misses.inc_by(items.misses as u64);
        self.metrics.answered(class, arrived.elapsed(), touched);
        let mut headers = HeaderMap::new();
        headers.insert("x-items", HeaderValue::from(touched));
        // For schedulers that learn load from responses; excludes this request.
        headers.insert("x-jobs", HeaderValue::from(self.inflight.load().jobs));
        headers.insert("x-node", self.name.clone());
        self.metrics.quotes_read(&items.quote_ages);
        if let Some(age) = items.quote_ages.iter().max() {
            let age = HeaderValue::try_from(format!("{:.3}", age.as_secs_f64()));
            // Digits and a point are a header.
            headers.extend(age.map(|age| (HeaderName::from_static("x-age-seconds"), age)));
        }
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        (reply.status, headers, reply.body).into_response()
    }
}

/// When a request came, its entry in the journal, and what it claims while it is here.
struct Arrival {
    at: Instant,
    entry: Option<Entry>,
    claim: Option<Claim>,
}

/// Counts a request as failed when dropped, unless it was answered: also one whose client left, when the server
/// drops the waiting handler.
struct Unanswered<'a>(Option<(&'a Metrics, Class)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((metrics, class)) = self.0 {
            metrics.failed(class);
        }
    }
}

/// Serves until `stopped` resolves, then lets running requests end.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let router = Router::new()
        .route("/stock/{symbol}", get(stock))
        .route("/portfolio/{account}", get(portfolio))
        .route("/purchase", post(orders::purchase))
        .route("/sale", post(orders::sale))
        .route("/accesses", get(accesses))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(app);
    let listener = listener.tap_io(|stream| {
        // Fails only on a connection that has ended already.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router)
        .with_graceful_shutdown(async {
            // An error is a dropped sender: the process is ending too.
            let _ = stopped.await;
        })
        .await
        .context("the HTTP server failed")
}

#[derive(Deserialize)]
struct ItemsQuery {
    items: Option<i64>,
}

type ItemsResult = Result<Query<ItemsQuery>, QueryRejection>;

impl ItemsQuery {
    fn clamp(self, default: i64) -> usize {
        self.items.unwrap_or(default).clamp(1, MAX_ITEMS as i64) as usize
    }
}

async fn stock(
    State(app): State<Arc<App>>,
    Path(symbol): Path<String>,
    query: ItemsResult,
    headers: HeaderMap,
) -> Response {
    let at = Instant::now();
    let items = match query {
        Ok(Query(query)) => query.clamp(QUERY_ITEMS),
        Err(bad) => return app.message(StatusCode::BAD_REQUEST, bad.body_text()),
    };
    let node = match app.ready() {
        Ok(node) => node,
        Err(why) => return app.unavailable(Class::Query, why),
    };
    let Some(id) = node.catalog.stock(&symbol) else {
        return app.message(StatusCode::NOT_FOUND, "no such symbol");
    };
    let catalog = Arc::clone(&node.catalog);
    let work: Work<Reply> =
        Box::new(move |reader| view(views::stock(reader, &catalog, id, items)?));
    let arrival = app.query(at, &headers, items);
    app.answer(Class::Query, arrival, node, items, work).await
}

async fn portfolio(
    State(app): State<Arc<App>>,
    Path(account): Path<String>,
    query: ItemsResult,
    headers: HeaderMap,
) -> Response {
    let at = Instant::now();
    let items = match query {
        Ok(Query(query)) => query.clamp(QUERY_ITEMS),
        Err(bad) => return app.message(StatusCode::BAD_REQUEST, bad.body_text()),
    };
    let Ok(account) = account.parse::<u32>() else {
        return app.message(StatusCode::BAD_REQUEST, "the account is not a number");
    };
    let node = match app.ready() {
        Ok(node) => node,
        Err(why) => return app.unavailable(Class::Query, why),
    };
    if account >= node.catalog.dimensions.accounts {
        return app.message(StatusCode::NOT_FOUND, "no such account");
    }
    let catalog = Arc::clone(&node.catalog);
    let work: Work<Reply> =
        Box::new(move |reader| view(views::portfolio(reader, &catalog, account, items)?));
    let arrival = app.query(at, &headers, items);
    app.answer(Class::Query, arrival, node, items, work).await
}

fn view(mut items: Items) -> Result<(Items, Reply)> {
    let rows = std::mem::take(&mut items.rows);
    let mut body = Vec::with_capacity(rows.len() * 80 + 16);
    body.extend_from_slice(b"{\"rows\":");
    serde_json::to_writer(&mut body, &rows)?;
    body.extend_from_slice(b"}\n");
    let reply = Reply {
        status: StatusCode::OK,
        body,
        sequence: None,
    };
    Ok((items, reply))
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    match app.ready() {
        Ok(_) => "ready\n".into_response(),
        Err(why) => app.message(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Quotes, their own periods, and how often they were read: for an agent's `[service.updates]`.
async fn accesses(State(app): State<Arc<App>>) -> Response {
    let Some(node) = app.node.get() else {
        return app.message(
            StatusCode::SERVICE_UNAVAILABLE,
            "the data are not loaded yet",
        );
    };
    let Some((quotes, own)) = &node.quotes else {
        let text = "this node's quotes come from its master";
        return app.message(StatusCode::NOT_FOUND, text);
    };
    match quotes.list(own, app.metrics.price_updates.get()) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(cause) => {
            error!("cannot list the quotes: {cause:#}");
            app.message(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    match app.metrics.render(&app.inflight) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(cause) => {
            error!("cannot render metrics: {cause:#}");
            app.message(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }
    }
}
