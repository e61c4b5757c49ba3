//! A small HTTP/1.1 client: one connection per request, everything bounded.

use std::{net::SocketAddr, time::Duration};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

use crate::{Caller, HttpStream, HttpUrl};

/// Limits how much of its own text a peer can get into a log.
const MAX_MESSAGE: usize = 400;

/// Kind of failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The connection failed or broke.
    Unreachable,
    /// The response was not complete within the timeout.
    Timeout,
    /// The response is not HTTP.
    Malformed,
    /// The response was truncated.
    Truncated,
    /// The body is larger than allowed.
    TooLarge,
}

impl FetchFailure {
    /// Label value in metrics.
    pub fn label(self) -> &'static str {
        match self {
            FetchFailure::Unreachable => "unreachable",
            FetchFailure::Timeout => "timeout",
            FetchFailure::Malformed => "garbage",
            FetchFailure::Truncated => "truncated",
            FetchFailure::TooLarge => "too_large",
        }
    }
}

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    /// Kind of failure.
    pub failure: FetchFailure,
    /// The full message; printable, and of bounded length.
    pub message: String,
    /// Whether the connection was open at the timeout, so that the request may still be waiting at the server.
    pub left_waiting: bool,
}

impl FetchError {
    fn new(failure: FetchFailure, message: impl AsRef<str>) -> Self {
        FetchError {
            failure,
            message: printable(message.as_ref()),
            left_waiting: false,
        }
    }
}

/// A text that quotes a peer, made safe to log.
pub fn printable(text: &str) -> String {
    let printable = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(MAX_MESSAGE).map(printable).collect()
}

/// Sends a GET request; returns status and body. `timeout` is for the whole exchange.
pub async fn get(
    url: &HttpUrl,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), FetchError> {
    get_as(&Caller::default(), url, timeout, max_body).await
}

/// As [`get`], for a caller that shows who it is.
pub async fn get_as(
    caller: &Caller,
    url: &HttpUrl,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), FetchError> {
    let request = caller.authorize(Request::get(&url.path));
    within(
        caller,
        url,
        request.body(Full::default()),
        timeout,
        max_body,
    )
    .await
}

/// Sends a POST request with a JSON body; otherwise as [`get_as`].
pub async fn post_as(
    caller: &Caller,
    url: &HttpUrl,
    body: String,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), FetchError> {
    let request = Request::post(&url.path).header(CONTENT_TYPE, "application/json");
    let request = caller.authorize(request).body(Full::from(body));
    within(caller, url, request, timeout, max_body).await
}

type Asked = Result<Request<Full<Bytes>>, hyper::http::Error>;

async fn within(
    caller: &Caller,
    url: &HttpUrl,
    request: Asked,
    timeout: Duration,
    max_body: usize,
) -> Result<(u16, Bytes), FetchError> {
    let deadline = Instant::now() + timeout;
    let shown = humantime::format_duration(timeout);
    let mut is_local = false;
    let stream = match timeout_at(deadline, connect(url, &mut is_local)).await {
        Ok(connected) => connected?,
        // This node's own kernel accepts connections at once, unless the listen backlog is full.
        Err(_) if is_local => {
            let full = format!("{url}: no connection within {shown}: the listen backlog is full");
            return Err(FetchError::new(FetchFailure::Timeout, full));
        }
        Err(_) => {
            let silent = format!("{url}: no connection within {shown}");
            return Err(FetchError::new(FetchFailure::Unreachable, silent));
        }
    };
    let exchange = async {
        let stream = caller.secure(url, stream).await;
        let stream = stream.map_err(|problem| unreachable(url, &problem))?;
        exchange(url, stream, request, max_body).await
    };
    timeout_at(deadline, exchange).await.unwrap_or_else(|_| {
        let late = format!("{url}: no whole answer within {shown}");
        Err(FetchError {
            left_waiting: true,
            ..FetchError::new(FetchFailure::Timeout, late)
        })
    })
}

fn unreachable(url: &HttpUrl, error: &dyn std::fmt::Display) -> FetchError {
    FetchError::new(FetchFailure::Unreachable, format!("{url}: {error}"))
}

async fn connect(url: &HttpUrl, is_local: &mut bool) -> Result<TcpStream, FetchError> {
    let found = lookup_host(&url.connect).await;
    let addresses: Vec<_> = found.map_err(|e| unreachable(url, &e))?.collect();
    *is_local = addresses.iter().any(is_of_this_node);
    let stream = TcpStream::connect(&addresses[..]).await;
    stream.map_err(|e| unreachable(url, &e))
}

/// A node uses the destination as source address only for packets to itself. The check sends no packet.
fn is_of_this_node(address: &SocketAddr) -> bool {
    let unspecified = match address {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let from = || {
        let socket = std::net::UdpSocket::bind(unspecified)?;
        socket.connect(address)?;
        socket.local_addr()
    };
    from().is_ok_and(|from: SocketAddr| from.ip() == address.ip())
}

async fn exchange(
    url: &HttpUrl,
    stream: HttpStream,
    request: Asked,
    max_body: usize,
) -> Result<(u16, Bytes), FetchError> {
    let broken = |error: &dyn std::fmt::Display| unreachable(url, error);
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
            let failure = if error.is_parse() {
                FetchFailure::Malformed
            } else if error.is_incomplete_message() {
                FetchFailure::Truncated
            } else {
                FetchFailure::Unreachable
            };
            FetchError::new(failure, format!("{url}: {error}"))
        })?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), max_body)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    FetchError::new(
                        FetchFailure::TooLarge,
                        format!("{url}: body is larger than {max_body} bytes"),
                    )
                } else {
                    FetchError::new(
                        FetchFailure::Truncated,
                        format!("{url}: body broke off: {error}"),
                    )
                }
            })?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(answer, connection);
    // If the peer closes, the connection ends before the response is collected; relevant errors also reach the
    // response.
    tokio::select! {
        answered = &mut answer => answered,
        _ = &mut connection => answer.await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

    use super::*;

    async fn asked(listener: &TcpListener) -> FetchError {
        let connect = listener.local_addr().unwrap().to_string();
        let url = HttpUrl {
            is_tls: false,
            authority: connect.clone(),
            connect,
            path: "/metrics".to_owned(),
        };
        let patience = Duration::from_millis(100);
        get(&url, patience, 1024).await.unwrap_err()
    }

    #[tokio::test]
    async fn timeout_is_distinguished_from_unreachable() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &local).unwrap();
        // The kernel accepts one connection more than the backlog.
        listen(&socket, 0).unwrap();
        let listener = TcpListener::from(socket);
        let late = asked(&listener).await;
        assert_eq!(
            (late.failure, late.left_waiting),
            (FetchFailure::Timeout, true)
        );
        let full = asked(&listener).await;
        assert_eq!(
            (full.failure, full.left_waiting),
            (FetchFailure::Timeout, false)
        );
        assert!(
            full.message.contains("the listen backlog is full"),
            "{full}"
        );
        let gone = TcpListener::bind(local).unwrap();
        let port = gone.local_addr().unwrap();
        assert!(is_of_this_node(&port));
        assert!(!is_of_this_node(&SocketAddr::from(([192, 0, 2, 1], 80))));
        drop(gone);
        let url = HttpUrl {
            is_tls: false,
            connect: port.to_string(),
            authority: port.to_string(),
            path: "/".into(),
        };
        let refused = get(&url, Duration::from_secs(1), 1024).await.unwrap_err();
        assert_eq!(refused.failure, FetchFailure::Unreachable);
    }
}
