//! HTTP server of `plimsoll gather`: `POST /v1/gather`, `/metrics`, `/healthz`, `/readyz`.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use plimsoll_net::{Bodies, Endpoint, Guard, Refusal, Role, Rules, is_allowed, scrape};
use prometheus::{IntCounterVec, Registry};
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;

use super::{
    answer::Answer,
    nodes::Nodes,
    out::{CHUNKS, Format, Out},
    question::Question,
};
use crate::answer::Plan;
use crate::{
    client::LAST_WORD,
    gather::{GatherConfig, GatherMetrics},
};

/// Maximum length of a query's body in bytes, as for agents.
const MAX_BYTES: usize = 1 << 20;
const GATHER: &str = "/v1/gather";
/// All endpoints, and the roles that they need. Probes carry no token.
const ENDPOINTS: [Endpoint; 4] = [
    Endpoint("GET", "/metrics", Some(Role::Read)),
    Endpoint("GET", "/healthz", None),
    Endpoint("GET", "/readyz", None),
    Endpoint("POST", GATHER, Some(Role::Write)),
];

/// State shared by all requests.
#[derive(Clone)]
pub struct GatherContext {
    /// Configuration in force.
    config: Arc<ArcSwap<GatherConfig>>,
    /// Pool of connections to the agents.
    nodes: Arc<Nodes>,
    /// Limit of concurrent gathers.
    limits: Arc<Limits>,
    /// Metrics of gathers.
    metrics: GatherMetrics,
    /// All metrics.
    registry: Registry,
    /// Limits of request bodies.
    bodies: Arc<Bodies>,
    /// Counter of closed connections, by reason.
    closed: IntCounterVec,
    /// Counter of requests refused for their token, by status.
    refused: IntCounterVec,
}

impl GatherContext {
    /// Creates a context without gathers.
    pub fn new(
        config: Arc<ArcSwap<GatherConfig>>,
        metrics: GatherMetrics,
        registry: Registry,
        closed: IntCounterVec,
        refused: IntCounterVec,
    ) -> Self {
        GatherContext {
            nodes: Arc::new(Nodes::new(Arc::clone(&config))),
            config,
            limits: Arc::default(),
            metrics,
            registry,
            bodies: Arc::default(),
            closed,
            refused,
        }
    }
}

/// Number of running gathers. The maximum is not stored, as a reload may change it.
#[derive(Debug, Default)]
struct Limits(AtomicUsize);

/// Place of a running gather; returned when dropped.
struct Place(Arc<Limits>);

impl Limits {
    fn take(self: &Arc<Self>, most: usize) -> Option<Place> {
        let place = Place(Arc::clone(self));
        // If refused, dropping `place` reverts the count.
        (self.0.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves until `stop`, then completes requests in flight.
pub async fn serve(
    listener: TcpListener,
    context: GatherContext,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (config, of_tls) = (Arc::clone(&context.config), Arc::clone(&context.config));
    let rules = Rules {
        allows: Box::new(move |address| is_allowed(config.load().allow.as_deref(), address)),
        tls: Box::new(move || of_tls.load().tls.clone()),
        closed: context.closed.clone(),
    };
    let tokens = Arc::clone(&context.config);
    let turned_away = context.metrics.clone();
    let guard = Guard {
        endpoints: &ENDPOINTS,
        check: Arc::new(move |role, headers| tokens.load().tokens.check(role, headers)),
        refuse: Arc::new(move |path, refusal| {
            if path == GATHER {
                turned_away.turned_away();
            }
            refused(refusal)
        }),
        refused: context.refused.clone(),
    };
    let fine = async || "ok\n";
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(fine))
        .route("/readyz", get(fine))
        .route(GATHER, post(gather))
        .with_state(context);
    plimsoll_net::serve(listener, guard.before(router), rules, stop).await;
    Ok(())
}

async fn metrics(State(context): State<GatherContext>) -> Response {
    scrape(&context.registry)
}

async fn gather(State(context): State<GatherContext>, headers: HeaderMap, body: Body) -> Response {
    match asked(&context, body).await {
        Ok((question, plan, place)) => answer(&context, &headers, question, plan, place).await,
        Err(refusal) => {
            context.metrics.turned_away();
            refused(refusal)
        }
    }
}

fn refused((status, problem): Refusal) -> Response {
    let error = json!({ "state": "refused", "problem": problem });
    (status, Json(json!({ "error": error }))).into_response()
}

type Asked = (Arc<Question>, Plan, Place);

async fn asked(context: &GatherContext, body: Body) -> Result<Asked, Refusal> {
    // The deadline's clock includes reading the body.
    let now = Instant::now();
    let config = context.config.load_full();
    // Read the body first: one that never arrives must not occupy a place.
    let body = context.bodies.read(body, MAX_BYTES).await?;
    let place = context.limits.take(config.at_once).ok_or_else(|| {
        let most = config.at_once;
        let problem = format!("{most} gathers are under way, which is the most");
        (StatusCode::TOO_MANY_REQUESTS, problem)
    })?;
    let (question, plan) = Question::read(&body, now, &config)?;
    Ok((question, plan, place))
}

async fn answer(
    context: &GatherContext,
    headers: &HeaderMap,
    question: Arc<Question>,
    plan: Plan,
    place: Place,
) -> Response {
    let format = format(headers);
    let hold = !plan.partial;
    let (asked, until) = (question.asked, question.deadline + LAST_WORD);
    let answer = match Answer::new(question, plan) {
        Ok(answer) => answer,
        Err(problem) => {
            context.metrics.turned_away();
            return refused((StatusCode::BAD_REQUEST, problem.to_string()));
        }
    };
    let (chunks, receiver) = mpsc::channel(CHUNKS);
    let (begun, begins) = oneshot::channel();
    let mut out = Out::new(format, hold, until, chunks, begun);
    let (nodes, metrics) = (Arc::clone(&context.nodes), context.metrics.clone());
    tokio::spawn(async move {
        let running = metrics.running();
        let summary = answer.run(&nodes, &mut out).await;
        let bytes = out.bytes;
        // Release before the caller sees the end.
        drop((running, place));
        metrics.ended(&summary, asked.elapsed(), bytes);
        tracing::debug!(outcome = ?summary.outcome, rows = summary.rows, bytes, "gather");
    });
    match begins.await {
        Ok(Ok(())) => {
            let kind = match format {
                Format::Lines => "application/x-ndjson",
                Format::Object => "application/json",
            };
            let chunks = ReceiverStream::new(receiver).map(Ok::<_, Infallible>);
            ([(header::CONTENT_TYPE, kind)], Body::from_stream(chunks)).into_response()
        }
        Ok(Err((status, instead))) => (status, Json(instead)).into_response(),
        Err(_) => {
            let error = json!({ "state": "down", "problem": "the gather ended without a word" });
            let error = Json(json!({ "error": error }));
            (StatusCode::INTERNAL_SERVER_ERROR, error).into_response()
        }
    }
}

/// Format that the request accepts: lines, unless it only accepts an object.
fn format(headers: &HeaderMap) -> Format {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let mut accepted = accepted.filter_map(|it| it.to_str().ok());
    let mut object = false;
    let lines = accepted.any(|text| {
        object |= text.contains("application/json");
        text.contains("application/x-ndjson")
    });
    match object && !lines {
        true => Format::Object,
        false => Format::Lines,
    }
}
