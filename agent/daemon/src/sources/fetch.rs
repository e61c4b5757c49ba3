//! A small HTTP/1.1 GET: one connection a request, everything bounded.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{ACCEPT, CONNECTION, HOST, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::SourceError;
use crate::config::HttpUrl;

/// Status and body. `timeout` is for the whole exchange.
pub async fn get(
    url: &HttpUrl,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), SourceError> {
    let exchange = tokio::time::timeout(timeout, exchange(url, max_body)).await;
    exchange.unwrap_or_else(|_| {
        let shown = humantime::format_duration(timeout);
        Err(SourceError::new(
            "timeout",
            format!("{url}: no whole answer within {shown}"),
        ))
    })
}

async fn exchange(url: &HttpUrl, max_body: usize) -> Result<(u16, Bytes), SourceError> {
    let broken =
        |error: &dyn std::fmt::Display| SourceError::new("unreachable", format!("{url}: {error}"));
    let stream = TcpStream::connect(&url.connect)
        .await
        .map_err(|e| broken(&e))?;
    let handshake = http1::Builder::new()
        .max_buf_size(64 << 10)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|e| broken(&e))?;
    let request = Request::get(&url.path)
        .header(HOST, &url.authority)
        .header(USER_AGENT, concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "text/plain;version=0.0.4, application/json;q=0.9")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| broken(&e))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| {
            let kind = if error.is_parse() {
                "garbage"
            } else if error.is_incomplete_message() {
                "truncated"
            } else {
                "unreachable"
            };
            SourceError::new(kind, format!("{url}: {error}"))
        })?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), max_body)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    SourceError::new(
                        "too_large",
                        format!("{url}: body is larger than {max_body} bytes"),
                    )
                } else {
                    SourceError::new("truncated", format!("{url}: body broke off: {error}"))
                }
            })?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(answer, connection);
    // The connection ends before the answer is collected where the peer closes; errors that matter
    // reach the answer as well.
    tokio::select! {
        answered = &mut answer => answered,
        _ = &mut connection => answer.await,
    }
}
