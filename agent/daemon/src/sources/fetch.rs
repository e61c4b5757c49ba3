//! A small HTTP/1.1 client: one connection a request, everything bounded.

use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT},
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
    let request = Request::get(&url.path).body(Full::default());
    within(url, request, timeout, max_body).await
}

/// The same with a body of JSON, and a token where there is one.
pub async fn post(
    url: &HttpUrl,
    token: Option<&str>,
    body: String,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), SourceError> {
    let mut request = Request::post(&url.path).header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    within(url, request.body(Full::from(body)), timeout, max_body).await
}

type Asked = Result<Request<Full<Bytes>>, hyper::http::Error>;

async fn within(
    url: &HttpUrl,
    request: Asked,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), SourceError> {
    let exchange = tokio::time::timeout(timeout, exchange(url, request, max_body)).await;
    exchange.unwrap_or_else(|_| {
        let shown = humantime::format_duration(timeout);
        Err(SourceError::new(
            "timeout",
            format!("{url}: no whole answer within {shown}"),
        ))
    })
}

async fn exchange(
    url: &HttpUrl,
    request: Asked,
    max_body: usize,
) -> Result<(u16, Bytes), SourceError> {
    let broken =
        |error: &dyn std::fmt::Display| SourceError::new("unreachable", format!("{url}: {error}"));
    let stream = TcpStream::connect(&url.connect)
        .await
        .map_err(|e| broken(&e))?;
    let handshake = http1::Builder::new()
        .max_buf_size(64 << 10)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|e| broken(&e))?;
    let mut request = request.map_err(|e| broken(&e))?;
    for (name, value) in [
        (HOST, url.authority.as_str()),
        (USER_AGENT, concat!("plimsoll/", env!("CARGO_PKG_VERSION"))),
        (ACCEPT, "text/plain;version=0.0.4, application/json;q=0.9"),
        (CONNECTION, "close"),
    ] {
        let value = HeaderValue::from_str(value).map_err(|e| broken(&e))?;
        request.headers_mut().insert(name, value);
    }
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
