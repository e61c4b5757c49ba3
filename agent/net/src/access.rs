//! Bearer tokens by role, and which endpoint needs which.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use prometheus::IntCounterVec;
use subtle::ConstantTimeEq;

use crate::Refusal;

/// Statuses of requests that are refused for their token, as in the metric.
pub const REFUSED: [&str; 2] = ["401", "403"];

/// Rights of a caller. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See what the node does.
    Read,
    /// Act as a proxy: report, and take shares of bounds.
    Observe,
    /// Query partitions, and act as an operator.
    Write,
}

impl Role {
    /// As in the settings and in refusals.
    pub fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Observe => "observe",
            Role::Write => "write",
        }
    }
}

/// An endpoint, and the role that it needs; `None`: it needs none.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint(pub &'static str, pub &'static str, pub Option<Role>);

/// The tokens of a server, each with its role.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<(Role, String)>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(role, _)| role))
            .finish()
    }
}

impl Tokens {
    /// These tokens; one role may have several.
    pub fn new(tokens: Vec<(Role, String)>) -> Self {
        Tokens(tokens)
    }

    /// Whether nothing is guarded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the role needs a token: reading only if it has one of its own, all else if there is any.
    fn guards(&self, role: Role) -> bool {
        self.0
            .iter()
            .any(|(known, _)| role > Role::Read || *known == role)
    }

    /// Refuses a request that needs the role and shows no token of it or of a higher one.
    ///
    /// # Errors
    ///
    /// 401 without a valid token, 403 with one of a lesser role.
    pub fn check(&self, role: Role, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.guards(role) {
            return Ok(());
        }
        let wanted = role.word();
        match self.shown(headers) {
            Some(shown) if shown >= role => Ok(()),
            Some(shown) => {
                let shown = shown.word();
                let problem = format!("needs a token of the role {wanted}, this one is of {shown}");
                Err((StatusCode::FORBIDDEN, problem))
            }
            None => {
                let problem =
                    format!("needs a token of the role {wanted}, as Authorization: Bearer …");
                Err((StatusCode::UNAUTHORIZED, problem))
            }
        }
    }

    /// Role of the token in the request. It is compared with every token, each time in full.
    fn shown(&self, headers: &HeaderMap) -> Option<Role> {
        let shown = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, shown) = shown.split_at_checked("Bearer ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        let is_shown = |token: &String| bool::from(shown.ct_eq(token.as_bytes()));
        let roles = self.0.iter().filter(|(_, token)| is_shown(token));
        roles.map(|(role, _)| *role).max()
    }
}

type Check = dyn Fn(Role, &HeaderMap) -> Result<(), Refusal> + Send + Sync;
type Refuse = dyn Fn(&str, Refusal) -> Response + Send + Sync;

/// Roles that the endpoints of a router require.
#[derive(Clone)]
pub struct Guard {
    /// All endpoints; one that is missing needs the highest role.
    pub endpoints: &'static [Endpoint],
    /// [`Tokens::check`] of the tokens in force.
    pub check: Arc<Check>,
    /// Makes the response to a refused request for this path.
    pub refuse: Arc<Refuse>,
    /// Counts refused requests by status.
    pub refused: IntCounterVec,
}

impl Guard {
    /// Checks the token of each request to a route of the router before anything else of it is read.
    pub fn before(self, router: Router) -> Router {
        router.route_layer(from_fn_with_state(self, check))
    }

    fn role(&self, method: &str, path: &str) -> Option<Role> {
        let method = if method == "HEAD" { "GET" } else { method };
        let mut endpoints = self.endpoints.iter();
        let known = endpoints.find(|it| it.0 == method && it.1 == path);
        known.map_or(Some(Role::Write), |it| it.2)
    }
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let role = guard.role(request.method().as_str(), path);
    let checked = role.map_or(Ok(()), |role| (guard.check)(role, request.headers()));
    match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let status = refusal.0.as_str();
            guard.refused.with_label_values(&[status]).inc();
            (guard.refuse)(path, refusal)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OK: Option<u16> = None;

    fn status(tokens: &Tokens, role: Role, shown: &str) -> Option<u16> {
        let mut headers = HeaderMap::new();
        if !shown.is_empty() {
            let value = format!("Bearer {shown}").parse().unwrap();
            headers.insert(header::AUTHORIZATION, value);
        }
        let checked = tokens.check(role, &headers);
        checked.err().map(|(status, _)| status.as_u16())
    }

    fn statuses(tokens: &Tokens, shown: &str) -> [Option<u16>; 3] {
        [Role::Read, Role::Observe, Role::Write].map(|role| status(tokens, role, shown))
    }

    #[test]
    fn a_role_includes_those_before_it() {
        let all = [Role::Read, Role::Observe, Role::Write];
        let all = Tokens::new(all.map(|role| (role, role.word().to_owned())).to_vec());
        assert_eq!(statuses(&all, ""), [Some(401); 3]);
        assert_eq!(statuses(&all, "other"), [Some(401); 3]);
        assert_eq!(statuses(&all, "read"), [OK, Some(403), Some(403)]);
        assert_eq!(statuses(&all, "observe"), [OK, OK, Some(403)]);
        assert_eq!(statuses(&all, "write"), [OK; 3]);
    }

    #[test]
    fn a_role_without_a_token_needs_a_higher_one_but_reading_is_open() {
        let write = Tokens::new(vec![(Role::Write, "write".to_owned())]);
        assert_eq!(statuses(&write, ""), [OK, Some(401), Some(401)]);
        assert_eq!(statuses(&write, "write"), [OK; 3]);
        let read = Tokens::new(vec![(Role::Read, "read".to_owned())]);
        assert_eq!(statuses(&read, ""), [Some(401); 3]);
        assert_eq!(statuses(&read, "read"), [OK, Some(403), Some(403)]);
        assert_eq!(statuses(&Tokens::default(), ""), [OK; 3]);
    }

    #[test]
    fn a_role_may_have_several_tokens() {
        let two = ["old", "new"].map(|token| (Role::Write, token.to_owned()));
        let two = Tokens::new(two.to_vec());
        assert_eq!(statuses(&two, "old"), [OK; 3]);
        assert_eq!(statuses(&two, "new"), [OK; 3]);
    }

    #[test]
    fn tokens_are_not_shown() {
        let tokens = Tokens::new(vec![(Role::Read, "secret".to_owned())]);
        assert_eq!(format!("{tokens:?}"), "[Read]");
    }
}
