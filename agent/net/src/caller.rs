//! What an HTTP client shows of itself, and whom it trusts.

use hyper::{header::AUTHORIZATION, http::request::Builder};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::{ClientTls, HttpUrl};

/// A connection, with TLS on the right.
pub type HttpStream = Either<TcpStream, TlsStream<TcpStream>>;

/// A client's token and TLS.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// Bearer token.
    pub token: Option<String>,
    /// For `https://`.
    pub tls: Option<ClientTls>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("token", &self.token.is_some())
            .field("tls", &self.tls)
            .finish()
    }
}

impl Caller {
    /// The request with the token, if there is one.
    pub fn authorize(&self, request: Builder) -> Builder {
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// The connection, with TLS if the URL says so.
    ///
    /// # Errors
    ///
    /// The handshake failed.
    pub async fn secure(&self, url: &HttpUrl, stream: TcpStream) -> Result<HttpStream, String> {
        if !url.is_tls {
            return Ok(Either::Left(stream));
        }
        let tls = self.tls.as_ref().ok_or("TLS: not set up")?;
        let secured = tls.connect(url, stream).await;
        secured
            .map(Either::Right)
            .map_err(|error| format!("TLS: {error}"))
    }
}
