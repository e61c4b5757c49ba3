//! `POST /v1/partition-query`: a query in one of this node's partitions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use plimsoll_core::Cost;
use plimsoll_net::{Bodies, Refusal};
use plimsoll_node::state::SharedState;
use plimsoll_scatter::{
    answer::MAX_HOPS,
    client::HOPS,
    partition::{Asked, MAX_DEADLINE, Partitions, Trouble},
};
use plimsoll_wire::PartitionQuery;
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::HttpConfig;

const MAX_BYTES: usize = 1 << 20;
const MAX_PARAMETERS: usize = 100;

/// State of the route.
#[derive(Clone)]
pub struct PartitionRoute {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
    /// Bodies of requests.
    pub bodies: Arc<Bodies>,
    /// The last decisions.
    pub state: SharedState,
    /// Queries in this node's partitions.
    pub partitions: Arc<Partitions>,
}

/// Rows as they come.
pub async fn query(
    State(context): State<PartitionRoute>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let asked = match asked(&context, &headers, body).await {
        Ok(asked) => asked,
        Err((status, problem)) => return refused((status, problem)),
    };
    match context.partitions.ask(asked).await {
        Ok(lines) => {
            let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
            let lines = ReceiverStream::new(lines).map(Ok::<_, std::convert::Infallible>);
            (kind, Body::from_stream(lines)).into_response()
        }
        Err(trouble) => {
            let status = match trouble {
                Trouble::Busy(_) | Trouble::Full(_) => StatusCode::TOO_MANY_REQUESTS,
                Trouble::Late => StatusCode::GATEWAY_TIMEOUT,
                Trouble::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
                Trouble::Down(_) => StatusCode::BAD_GATEWAY,
            };
            error(status, trouble.state(), trouble.to_string())
        }
    }
}

/// A request that is not answered, as a response.
pub fn refused((status, problem): Refusal) -> Response {
    error(status, "refused", problem)
}

fn error(status: StatusCode, state: &str, problem: String) -> Response {
    let error = json!({ "state": state, "problem": problem });
    (status, Json(json!({ "error": error }))).into_response()
}

async fn asked(
    context: &PartitionRoute,
    headers: &HeaderMap,
    body: Body,
) -> Result<Asked, Refusal> {
    // The clock runs while the question is read.
    let now = Instant::now();
    if context.config.borrow().partitions.is_empty() {
        let problem = "partition: this node has none";
        return Err((StatusCode::NOT_FOUND, problem.into()));
    }
    let bad = |problem: String| (StatusCode::BAD_REQUEST, problem);
    let hops = hops(headers).map_err(bad)?;
    let body = context.bodies.read(body, MAX_BYTES).await?;
    let question: PartitionQuery =
        serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
    let seconds = question.deadline_seconds;
    let longest = MAX_DEADLINE.as_secs_f64();
    if !(seconds > 0.0 && seconds <= longest) {
        return Err(bad(format!(
            "deadline_seconds: must be above 0, to {longest}, is {seconds}"
        )));
    }
    if question.parameters.len() > MAX_PARAMETERS {
        let count = question.parameters.len();
        return Err(bad(format!(
            "parameters: {count}, maximum {MAX_PARAMETERS}"
        )));
    }
    if question
        .limit
        .is_some_and(|limit| i64::try_from(limit).is_err())
    {
        return Err(bad(format!("limit: must be at most {}", i64::MAX)));
    }
    let config = context.config.borrow().clone();
    let name = &*question.partition;
    let partition = config.partitions.iter().find(|it| it.name == name);
    let Some(partition) = partition else {
        let problem = format!("partition: this node has none named {name:?}");
        return Err((StatusCode::NOT_FOUND, problem));
    };
    let text = text(&partition.queries, partition.free_sql, &question)?;
    let bound = partition.service.as_ref().map(|name| {
        let state = context.state.load();
        let known = state.services.get(name);
        // Before the first step it is the configured one, or as good as none.
        let service = config.services.iter().find(|service| service.name == *name);
        let first = service.map(|service| service.first_bound);
        known.map_or(first.unwrap_or(Cost(0.0)), |known| match known.observes() {
            true => Cost(f64::MAX),
            false => known.decision.bound,
        })
    });
    Ok(Asked {
        text,
        bound,
        // Whatever else is asked is one of a kind.
        label: question.query.clone().unwrap_or_default().into_owned(),
        hops,
        since: now,
        is_named: question.query.is_some(),
        partition: Arc::clone(partition),
        parameters: question.parameters.into_owned(),
        limit: question.limit,
        deadline: now + Duration::from_secs_f64(seconds),
    })
}

fn hops(headers: &HeaderMap) -> Result<usize, String> {
    let Some(told) = headers.get(HOPS) else {
        return Ok(0);
    };
    let number = told.to_str().ok().and_then(|told| told.parse().ok());
    match number {
        Some(hops @ 0..=MAX_HOPS) => Ok(hops),
        Some(hops) => Err(format!(
            "the question came through {hops} agents: must be at most {MAX_HOPS}"
        )),
        None => Err(format!("{HOPS}: must be a number, is {told:?}")),
    }
}

fn text(
    queries: &BTreeMap<String, String>,
    free_sql: bool,
    question: &PartitionQuery,
) -> Result<String, Refusal> {
    match (&question.query, &question.sql) {
        (Some(name), None) => queries.get(&**name).cloned().ok_or_else(|| {
            let known: Vec<_> = queries.keys().collect();
            let problem = format!("query: the partition has none named {name:?}, it has {known:?}");
            (StatusCode::NOT_FOUND, problem)
        }),
        (None, Some(sql)) if free_sql => Ok(sql.to_string()),
        (None, Some(_)) => {
            let problem = "sql: the partition answers only its own queries, by name";
            Err((StatusCode::FORBIDDEN, problem.into()))
        }
        _ => {
            let problem = "must have either query, the name of one, or sql";
            Err((StatusCode::BAD_REQUEST, problem.into()))
        }
    }
}
