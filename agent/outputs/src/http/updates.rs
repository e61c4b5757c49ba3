//! `/v1/updates`: how often a feed is to update each item.

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::ServicesRoute;

/// Query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which service's items; the only one where there is one.
    service: Option<String>,
}

/// The items whose period is not their own; 304 where the feed has them.
pub async fn updates(
    State(context): State<ServicesRoute>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let config = context.config.borrow().clone();
    let name = match config.service_with(
        ("updates", "updates"),
        |it| it.has_updates,
        asked.service.as_deref(),
    ) {
        Ok(name) => name,
        Err(refusal) => return refusal.into_response(),
    };
    let state = context.state.load();
    let updates = state.services.get(name).and_then(|it| it.updates.as_ref());
    let Some(updates) = updates else {
        return (StatusCode::SERVICE_UNAVAILABLE, "no first step yet\n").into_response();
    };
    let tag = [(header::ETAG, &*updates.tag)];
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|it| it.to_str().ok());
    let is_known = |known: &str| {
        let mut tags = known.split(',').map(str::trim);
        tags.any(|known| known.trim_start_matches("W/") == &*updates.tag)
    };
    if known.is_some_and(is_known) {
        return (StatusCode::NOT_MODIFIED, tag).into_response();
    }
    let accepted = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    let (kind, body) = match accepted {
        Some("text/plain") => ("text/plain; charset=utf-8", &updates.lines),
        _ => ("application/json", &updates.body),
    };
    (tag, [(header::CONTENT_TYPE, kind)], body.clone()).into_response()
}
