//! Helpers for HTTP endpoints.

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus::{Registry, TextEncoder};
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;

/// Message for a request without a valid token.
pub const NEEDS_TOKEN: &str = "needs the token of http.token_file, as Authorization: Bearer …";

/// Whether the request has the token; always true if none is configured.
pub fn shows_token(token: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(token) = token else { return true };
    let shown = headers.get(header::AUTHORIZATION).map(|it| it.as_bytes());
    let shown = shown.and_then(|shown| {
        let (scheme, token) = shown.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
    });
    shown.is_some_and(|shown| bool::from(shown.ct_eq(token.as_bytes())))
}

/// Parses a JSON body; errors name the place.
pub fn parse_body<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let observed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        // The path names no place.
        match path == "." || path.contains('?') {
            true => error.inner().to_string(),
            false => format!("{path}: {}", error.inner()),
        }
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(observed)
}

/// All metrics in Prometheus' text format.
pub fn scrape(registry: &Registry) -> Response {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
