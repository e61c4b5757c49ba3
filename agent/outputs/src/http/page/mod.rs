//! `/`: the node at a glance, for people: one page without scripts that loads nothing else.

mod chart;
mod figures;
mod nodes;
mod reasons;
mod service;

use std::{
    sync::{Arc, LazyLock},
    time::{Instant, SystemTime},
};

use askama::Template;
use axum::{
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use plimsoll_node::{history::Histories, ring::RingBoard};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::error;

use self::{figures::age, nodes::Others, service::ServicePart};
use super::{HttpConfig, NodeContext};
use crate::envoy::SilentPeer;

const STYLE: &str = include_str!("../../../templates/page.css");
/// Base URL of the documentation.
const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs");
/// Range of `refresh`, in seconds.
const REFRESH_SECONDS: std::ops::RangeInclusive<u16> = 1..=3600;

/// Nothing but its own style, by its hash, so that text of others that was taken for markup would do nothing.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// State of the route.
#[derive(Clone)]
pub struct PageRoute {
    /// This node.
    pub node: NodeContext,
    /// The last ten minutes.
    pub histories: Arc<Histories>,
    /// The rings followed.
    pub rings: Arc<RingBoard>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
}

/// Query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Seconds until the browser loads the page again; never unless given.
    refresh: Option<u16>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    style: &'static str,
    docs: &'static str,
    version: &'static str,
    refresh: Option<u16>,
    /// UTC, by RFC 3339.
    now: String,
    uptime: String,
    services: Vec<ServicePart>,
    silent: Vec<SilentPeer>,
}

/// The page as of now.
pub async fn page(State(route): State<PageRoute>, Query(asked): Query<Asked>) -> Response {
    if let Some(refresh) = asked.refresh.filter(|it| !REFRESH_SECONDS.contains(it)) {
        let problem = format!("refresh: must be from 1 to 3600 seconds, is {refresh}\n");
        return (StatusCode::BAD_REQUEST, problem).into_response();
    }
    match made(&route, asked.refresh).render() {
        Ok(html) => {
            let headers = [
                (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
                (header::CACHE_CONTROL, "no-store"),
                (header::REFERRER_POLICY, "no-referrer"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, Html(html)).into_response()
        }
        Err(problem) => {
            error!(%problem, "the page was not made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn made(route: &PageRoute, refresh: Option<u16>) -> Page {
    let (node, now) = (&route.node, Instant::now());
    let (state, settings) = (node.state.load(), node.settings.load());
    let lease = route.config.borrow().envoy.settings.lease;
    let part = |(place, name): (usize, &str)| {
        let id = format!("service-{place}");
        let Some(state) = state.services.get(name) else {
            return ServicePart::unstepped(id, name);
        };
        let view = super::node::service_view(node, &settings, state, now);
        let others = Others {
            heard: node.envoy.heard(name),
            ring: route.rings.nodes(name),
            own: state.address.as_deref(),
            lease,
            now,
        };
        let part = ServicePart::new(id, state, view, &settings, now);
        part.with_charts(&route.histories.points(name), settings.period)
            .with_others(others)
    };
    let names = settings.services().iter().map(|it| it.name.as_str());
    Page {
        style: STYLE,
        docs: DOCS,
        version: env!("CARGO_PKG_VERSION"),
        refresh,
        now: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        uptime: age(now.saturating_duration_since(node.started)),
        services: names.enumerate().map(part).collect(),
        silent: node.envoy.silent(),
    }
}
