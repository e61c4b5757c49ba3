//! `/v1/orca`: the node's load as a service puts it into its own answers.

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::ServicesRoute;
use crate::orca::{self, OrcaError};

/// Query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which service; the only one where there is one.
    service: Option<String>,
}

/// The value of `endpoint-load-metrics`, as the body and as that header.
pub async fn orca(State(context): State<ServicesRoute>, Query(asked): Query<Asked>) -> Response {
    let config = context.config.borrow().clone();
    match orca::header(
        &context.state.load(),
        &config.orca,
        asked.service.as_deref(),
    ) {
        Ok(text) => ([("endpoint-load-metrics", text.clone())], text).into_response(),
        Err(OrcaError::Ambiguous) => {
            let problem = "service: say which; this agent has several\n";
            (StatusCode::BAD_REQUEST, problem).into_response()
        }
        Err(OrcaError::Unknown) => {
            let problem = "no such service, or not stepped yet\n";
            (StatusCode::NOT_FOUND, problem).into_response()
        }
    }
}
