//! `/v1/placement`: how the table is, for people; and a dispatcher's or an operator's way to Redis.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use plimsoll_net::{Bodies, Refusal, parse_body};
use plimsoll_node::placement::{Gate, GateError};
use plimsoll_wire::PlacementMessage;
use prometheus::IntCounterVec;
use tokio::sync::{Semaphore, watch};

use super::{
    HttpConfig,
    access::role_of,
    observe::{Entrance, refused},
};

/// Messages under way; each may hold what it is answered.
pub(super) const MAX_MESSAGES: usize = 16;
const MAX_BYTES: usize = 1 << 20;

/// State of the route.
#[derive(Clone)]
pub struct PlacementRoute {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
    /// Bodies of requests.
    pub bodies: Arc<Bodies>,
    /// The way to the table of primaries.
    pub gate: Arc<Gate>,
    /// Requests refused for their token, by status.
    pub refused: IntCounterVec,
    /// One for each message under way, [`MAX_MESSAGES`].
    pub permits: Arc<Semaphore>,
}

/// The summary.
pub async fn show(State(context): State<PlacementRoute>) -> Response {
    match context.gate.show().await {
        Ok(view) => Json(view).into_response(),
        Err(error) => refused(refusal(error)),
    }
}

/// One message.
pub async fn carry(
    State(context): State<PlacementRoute>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match exchange(&context, &headers, body).await {
        Ok(response) => response,
        Err(problem) => refused(problem),
    }
}

async fn exchange(
    context: &PlacementRoute,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let entrance = Entrance {
        bodies: &context.bodies,
        permits: &context.permits,
        what: "messages",
        most: MAX_MESSAGES,
        max_bytes: MAX_BYTES,
    };
    let is_there = || context.gate.is_there().map_err(refusal);
    let (asked, _permit) = entrance.pass(is_there, body).await?;
    let bad = |problem| (StatusCode::BAD_REQUEST, problem);
    let message: PlacementMessage = parse_body(&asked).map_err(bad)?;
    let role = role_of(message.op);
    let allowed = context.config.borrow().tokens.check(role, headers);
    allowed.inspect_err(|(status, _)| {
        let refused = context.refused.with_label_values(&[status.as_str()]);
        refused.inc();
    })?;
    message.check().map_err(bad)?;
    let answer = context.gate.carry(&message).await;
    let answer = answer.map_err(refusal)?;
    Ok(Json(answer).into_response())
}

fn refusal(error: GateError) -> Refusal {
    match error {
        GateError::NoPlacement(problem) => (StatusCode::NOT_FOUND, problem),
        GateError::Refused(problem) => (StatusCode::BAD_REQUEST, problem),
        GateError::Conflict(problem) => (StatusCode::CONFLICT, problem),
        GateError::Redis(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("Redis: {problem}")),
    }
}
