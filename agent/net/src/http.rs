//! What every HTTP endpoint needs.

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus::{Registry, TextEncoder};
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;

/// What who may not is told.
pub const NEEDS_TOKEN: &str = "needs the token of http.token_file, as Authorization: Bearer …";

/// Whether the token is shown, where there is one.
pub fn shows_token(token: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(token) = token else { return true };
    let shown = headers.get(header::AUTHORIZATION).map(|it| it.as_bytes());
    let shown = shown.and_then(|shown| {
        let (scheme, token) = shown.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
    });
    shown.is_some_and(|shown| bool::from(shown.ct_eq(token.as_bytes())))
}

/// A body; what is wrong with it by its place.
pub fn parse_body<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let observed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        // Nowhere in particular, or between two values.
        match path == "." || path.contains('?') {
            true => error.inner().to_string(),
            false => format!("{path}: {}", error.inner()),
        }
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(observed)
}

/// All metrics, as Prometheus reads them.
pub fn scrape(registry: &Registry) -> Response {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
