//! `POST /v3/discovery:endpoints`: Envoy's REST endpoint discovery.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use plimsoll_net::{Bodies, Refusal};
use plimsoll_node::{overrides::Overrides, state::SharedState};
use prometheus::IntCounterVec;
use tokio::sync::watch;

use super::HttpConfig;
use crate::envoy::{self, EnvoyBoard};

const MAX_BYTES: usize = 1 << 20;
const MAX_NAMES: usize = 1024;

/// State of the route.
#[derive(Clone)]
pub struct DiscoveryRoute {
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
    /// Bodies of requests.
    pub bodies: Arc<Bodies>,
    /// The last decisions.
    pub state: SharedState,
    /// Operators' overrides.
    pub overrides: Arc<Overrides>,
    /// Endpoints as Envoy gets them.
    pub envoy: Arc<EnvoyBoard>,
    /// Discoveries, by result.
    pub discovered: IntCounterVec,
}

/// Resources for the names that are known here. While too little is known of the other nodes the answer
/// is 503, which leaves in force what Envoy has; 304 where that is the same.
pub async fn discover(State(context): State<DiscoveryRoute>, body: Body) -> Response {
    let (result, response) = match answer(&context, body).await {
        Ok(Some(answer)) => ("answered", Json(answer).into_response()),
        Ok(None) => ("unchanged", StatusCode::NOT_MODIFIED.into_response()),
        Err((status, problem)) => {
            let result = match status {
                StatusCode::SERVICE_UNAVAILABLE => "unready",
                _ => "refused",
            };
            (result, (status, problem + "\n").into_response())
        }
    };
    context.discovered.with_label_values(&[result]).inc();
    response
}

async fn answer(context: &DiscoveryRoute, body: Body) -> Result<Option<envoy::Response>, Refusal> {
    let text = context.bodies.read(body, MAX_BYTES).await?;
    let bad = |problem: String| (StatusCode::BAD_REQUEST, problem);
    let request: envoy::Request =
        serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if !request.type_url.is_empty() && request.type_url != envoy::TYPE {
        return Err(bad(format!("type_url: must be {:?}", envoy::TYPE)));
    }
    if request.resource_names.len() > MAX_NAMES {
        return Err(bad(format!("resource_names: maximum {MAX_NAMES}")));
    }
    let config = context.config.borrow().clone();
    let state = context.state.load();
    let mut resources = Vec::new();
    // Each once, or the answer could be made as large as one likes.
    for name in request.resource_names.into_iter().collect::<BTreeSet<_>>() {
        let Some(service) = config.envoy.service(&name) else {
            continue;
        };
        let assignment =
            context
                .envoy
                .assignment(&service.name, name.clone(), &state, &context.overrides);
        let Some(assignment) = assignment else {
            let problem = format!("{name}: too little is known of its nodes yet");
            return Err((StatusCode::SERVICE_UNAVAILABLE, problem));
        };
        resources.push(assignment);
    }
    let answer = envoy::Response::new(resources)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((answer.version_info != request.version_info).then_some(answer))
}
