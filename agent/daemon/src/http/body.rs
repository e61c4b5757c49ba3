//! Bodies of requests, within limits of size and time.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, HttpBody, to_bytes},
    http::StatusCode,
};

/// A body that takes longer would keep others out.
const WAIT: Duration = Duration::from_secs(2);

/// Why not.
pub type Refusal = (StatusCode, String);

/// The whole body, of at most so many bytes.
pub async fn read(body: Body, most: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let problem = format!("the body may have {most} bytes");
        (StatusCode::PAYLOAD_TOO_LARGE, problem)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(WAIT, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let source = std::error::Error::source(&error);
            match source.is_some_and(|it| it.is::<http_body_util::LengthLimitError>()) {
                true => Err(too_large()),
                false => Err((StatusCode::BAD_REQUEST, error.to_string())),
            }
        }
        Err(_) => {
            let problem = format!("the body took over {} s", WAIT.as_secs());
            Err((StatusCode::REQUEST_TIMEOUT, problem))
        }
    }
}
