//! `POST /v1/observe`: a proxy's dispatchers exchange what they saw for shares, through this agent.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use plimsoll_net::{Bodies, Refusal, Whole, parse_body};
use plimsoll_node::ring::{ExchangeError, Exchanges};
use plimsoll_wire::Exchange;
use prometheus::IntCounterVec;
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::HttpConfig;

/// Exchanges under way; each may hold what it is answered.
pub(super) const MAX_EXCHANGES: usize = 16;
const NO_RING: &str = "this agent follows no ring";
const MAX_BYTES: usize = 4 << 20;

/// State of the route.
#[derive(Clone)]
pub struct ObserveRoute {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
    /// Bodies of requests.
    pub bodies: Arc<Bodies>,
    /// Proxies' way to Redis.
    pub exchanges: Arc<Exchanges>,
    /// One for each exchange under way, [`MAX_EXCHANGES`].
    pub permits: Arc<Semaphore>,
    /// Exchanges, by result.
    pub exchanged: IntCounterVec,
}

/// One exchange.
pub async fn observe(State(context): State<ObserveRoute>, body: Body) -> Response {
    let (result, response) = match exchange(&context, body).await {
        Ok(response) => ("carried", response),
        Err((status, problem)) => {
            let result = match status {
                StatusCode::TOO_MANY_REQUESTS => "busy",
                StatusCode::SERVICE_UNAVAILABLE => "redis",
                _ => "refused",
            };
            (result, refused((status, problem)))
        }
    };
    context.exchanged.with_label_values(&[result]).inc();
    response
}

/// Why not, as it is answered.
pub fn refused((status, problem): Refusal) -> Response {
    let answer = (status, Json(json!({ "problem": problem })));
    let mut response = answer.into_response();
    if status == StatusCode::UNAUTHORIZED {
        let scheme = header::HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

async fn exchange(context: &ObserveRoute, body: Body) -> Result<Response, Refusal> {
    let entrance = Entrance {
        permits: &context.permits,
        bodies: &context.bodies,
        what: "exchanges",
        most: MAX_EXCHANGES,
        max_bytes: MAX_BYTES,
    };
    let is_there = || {
        let config = context.config.borrow();
        match config.services.iter().any(|service| service.has_ring) {
            true => Ok(()),
            false => Err((StatusCode::NOT_FOUND, NO_RING.to_owned())),
        }
    };
    // Held to the end, for what was read of it is as large.
    let (asked, _permit) = entrance.pass(is_there, body).await?;
    let bad = |problem| (StatusCode::BAD_REQUEST, problem);
    let asked: Exchange = parse_body(&asked).map_err(bad)?;
    asked.check().map_err(bad)?;
    let Exchange {
        service,
        dispatchers,
    } = asked;
    let exchanges = &context.exchanges;
    match exchanges.exchange(service.as_deref(), &dispatchers).await {
        Ok(answer) => Ok(Json(answer).into_response()),
        Err(ExchangeError::Ambiguous) => Err(bad(
            "service: say which; this agent follows several rings".into(),
        )),
        Err(ExchangeError::NoRing) => Err((
            StatusCode::NOT_FOUND,
            match service {
                Some(service) => format!("service: this agent follows no ring of {service:?}"),
                None => NO_RING.into(),
            },
        )),
        Err(ExchangeError::Redis(problem)) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, format!("Redis: {problem}")))
        }
    }
}

/// Limits on concurrent requests and their bodies.
pub struct Entrance<'a> {
    /// Bodies of all requests.
    pub bodies: &'a Arc<Bodies>,
    /// As many as `most`.
    pub permits: &'a Semaphore,
    /// Of what, for people.
    pub what: &'static str,
    /// At once.
    pub most: usize,
    /// Of a body.
    pub max_bytes: usize,
}

impl<'a> Entrance<'a> {
    /// The body, and the place that its request has for as long as this is held; nothing is read where nothing is
    /// there that could be asked.
    pub async fn pass(
        self,
        is_there: impl FnOnce() -> Result<(), Refusal>,
        body: Body,
    ) -> Result<(Whole, SemaphorePermit<'a>), Refusal> {
        is_there()?;
        // Before the place, which bodies that never come would keep.
        let body = self.bodies.read(body, self.max_bytes).await?;
        let Ok(permit) = self.permits.try_acquire() else {
            let Entrance { most, what, .. } = self;
            let problem = format!("{most} {what} are under way, which is the most");
            return Err((StatusCode::TOO_MANY_REQUESTS, problem));
        };
        Ok((body, permit))
    }
}
