//! Helpers for HTTP endpoints.

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus::{Registry, TextEncoder};
use serde::de::DeserializeOwned;

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
