//! `/v1/role`: what a proxy checks before it sends writes to this node.

use std::time::Instant;

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use plimsoll_node::overrides::ForcedHealth;
use plimsoll_signal::health_probe::Health;
use serde::Deserialize;

use super::ServicesRoute;

/// Query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which service's database; the only one where there is one.
    service: Option<String>,
    #[serde(default)]
    takes: Takes,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Takes {
    Reads,
    #[default]
    Writes,
}

/// 200 where the node takes what is asked about, else 503; either way with the role.
pub async fn role(
    State(context): State<ServicesRoute>,
    Query(asked): Query<Asked>,
) -> (StatusCode, String) {
    let config = context.config.borrow().clone();
    let name = match config.service_with(
        ("role", "a role"),
        |it| it.has_role,
        asked.service.as_deref(),
    ) {
        Ok(name) => name,
        Err(refusal) => return refusal,
    };
    let state = context.state.load();
    let state = state.services.get(name);
    let Some((state, role)) = state.and_then(|it| Some((it, it.role.as_ref()?))) else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "no first step yet\n".into(),
        );
    };
    let now = Instant::now();
    let of_database = match asked.takes {
        Takes::Reads => role.may_read(now),
        Takes::Writes => role.may_write(now),
    };
    let set = context.overrides.of(name);
    let probed = match set.health {
        Some(health) => health == ForcedHealth::Up,
        None => state.probe.health == Health::Up,
    };
    let status = if of_database && probed && !set.drain {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let is = role.standing.map_or("unknown", |it| it.role.as_str());
    (status, format!("{is}\n"))
}
