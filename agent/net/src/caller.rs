//! What an HTTP client shows of itself.

use hyper::header::AUTHORIZATION;
use hyper::http::request::Builder;

/// The token that a client shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// Bearer token.
    pub token: Option<String>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("token", &self.token.is_some())
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
}
