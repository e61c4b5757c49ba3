//! `/metrics`, `/healthz`, `/readyz`, `/v1/node`, `/v1/ring`, `/v1/orca`, `/v1/updates`,
//! `/v1/role`, `/v1/observe`, `/v1/placement`, `/v1/partition-query` and `/v3/discovery:endpoints`.

mod discovery;
mod node;
mod observe;
mod orca;
mod partition;
mod placement;
mod ring;
mod role;
mod updates;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use ipnet::IpNet;
use plimsoll_core::Cost;
use plimsoll_net::{Bodies, is_allowed, scrape};
use plimsoll_node::{
    learned::LearnedStore,
    overrides::Overrides,
    placement::Gate,
    ring::{Exchanges, RingBoard},
    state::{NodeState, SharedState},
};
use plimsoll_scatter::partition::{PartitionConfig, Partitions};
use prometheus::{IntCounterVec, Registry};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent_check::{OutputSettings, Proxies, SharedOutputSettings},
    envoy::{EnvoyBoard, EnvoyConfig},
    orca::OrcaConfig,
};

pub use node::node_view;
pub use observe::MAX_EXCHANGES;
pub use placement::MAX_MESSAGES;
pub use ring::MAX_WAITING;

/// A control loop silent for this many periods, and at least [`MIN_STALE`], is stuck.
const STALE_PERIODS: u32 = 5;
/// See [`STALE_PERIODS`].
const MIN_STALE: Duration = Duration::from_secs(5);

/// What the HTTP server goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpConfig {
    /// Networks that may connect; all without.
    pub allow: Option<Vec<IpNet>>,
    /// What a proxy must show to exchange observations for shares.
    pub token: Option<String>,
    /// This node's.
    pub partitions: Vec<Arc<PartitionConfig>>,
    /// For discovery.
    pub envoy: Arc<EnvoyConfig>,
    /// For load reports.
    pub orca: Arc<OrcaConfig>,
    /// In the file's order.
    pub services: Vec<HttpService>,
}

/// What can be asked of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpService {
    /// Its name.
    pub name: String,
    /// It is in a ring.
    pub has_ring: bool,
    /// Its temporal data adapt.
    pub has_updates: bool,
    /// Its database has a role.
    pub has_role: bool,
    /// Its bound before the first step.
    pub first_bound: Cost,
}

/// What the HTTP server and the control socket show.
#[derive(Clone)]
pub struct HttpContext {
    /// All metrics.
    pub registry: Registry,
    /// Brings gauges up to date that nobody sets otherwise.
    pub before_scrape: Arc<dyn Fn() + Send + Sync>,
    /// The last decisions.
    pub state: SharedState,
    /// Services and limits.
    pub settings: SharedOutputSettings,
    /// What operators set.
    pub overrides: Arc<Overrides>,
    /// What was learned of the node.
    pub learned: Arc<LearnedStore>,
    /// Who polls.
    pub proxies: Arc<Proxies>,
    /// The rings followed.
    pub rings: Arc<RingBoard>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
    /// Proxies' way to Redis.
    pub exchanges: Arc<Exchanges>,
    /// One for each follower that waits.
    pub ring_permits: Arc<Semaphore>,
    /// What Envoy is told.
    pub envoy: Arc<EnvoyBoard>,
    /// Discoveries, by result.
    pub discovered: IntCounterVec,
    /// One for each exchange under way.
    pub exchange_permits: Arc<Semaphore>,
    /// Exchanges, by result.
    pub exchanged: IntCounterVec,
    /// The way to the table of primaries.
    pub placement: Arc<Gate>,
    /// One for each message to it under way.
    pub placement_permits: Arc<Semaphore>,
    /// Queries in this node's partitions.
    pub partitions: Arc<Partitions>,
    /// Bodies of requests.
    pub bodies: Arc<Bodies>,
    /// Connections that were closed, by reason.
    pub closed: IntCounterVec,
    /// When the agent started.
    pub started: Instant,
}

/// Serves until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    context: HttpContext,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (config, closed) = (context.config.clone(), context.closed.clone());
    let allows = move |address| is_allowed(config.borrow().allow.as_deref(), address);
    // Not graceful: a client that holds its connection must not hold the agent.
    let never = CancellationToken::new();
    tokio::select! {
        () = plimsoll_net::serve(listener, router(context), allows, closed, never) => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

fn router(context: HttpContext) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route(
            "/v1/node",
            get(async |State(context): State<HttpContext>| Json(node_view(&context))),
        )
        .route("/v1/ring", get(ring::ring))
        .route("/v1/orca", get(orca::orca))
        .route("/v1/updates", get(updates::updates))
        .route("/v1/role", get(role::role))
        .route("/v1/observe", post(observe::observe))
        .route("/v1/placement", get(placement::show).post(placement::carry))
        .route("/v1/partition-query", post(partition::query))
        .route("/v3/discovery:endpoints", post(discovery::discover))
        .with_state(context)
}

async fn metrics(State(context): State<HttpContext>) -> Response {
    (context.before_scrape)();
    scrape(&context.registry)
}

/// Alive: no control loop is stuck.
async fn healthz(State(context): State<HttpContext>) -> (StatusCode, String) {
    verdict(stuck(&context.state.load(), &context.settings.load()))
}

/// Ready: every service was stepped, so that agent checks get an answer.
async fn readyz(State(context): State<HttpContext>) -> (StatusCode, String) {
    let (state, settings) = (context.state.load(), context.settings.load());
    let services = settings.services().iter();
    let unready = services.filter(|service| !state.services.contains_key(&service.name));
    verdict(
        unready
            .map(|service| format!("{}: no first step yet", service.name))
            .collect(),
    )
}

/// What is wrong with control loops that are stuck.
pub fn stuck(state: &NodeState, settings: &OutputSettings) -> Vec<String> {
    let limit = (settings.period * STALE_PERIODS).max(MIN_STALE);
    let services = settings.services().iter();
    let stepped = services.filter_map(|service| state.services.get(&service.name));
    let silent = stepped.map(|known| (&known.service, known.stepped.elapsed()));
    silent
        .filter(|(_, silent)| *silent > limit)
        .map(|(name, silent)| format!("{name}: last step {:.1} s ago", silent.as_secs_f64()))
        .collect()
}

fn verdict(problems: Vec<String>) -> (StatusCode, String) {
    if problems.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_check::{ServiceOutput, answer_tests::state};
    use plimsoll_node::control_loop::SendWords;

    #[test]
    fn a_loop_that_does_not_step_is_stuck() {
        let settings = OutputSettings::new(vec![ServiceOutput {
            name: "stocks".into(),
            identities: Vec::new(),
            send: SendWords::Both,
        }]);
        let stepped = |ago| {
            let mut service = state(1.0, 100);
            service.stepped = Instant::now().checked_sub(ago)?;
            let services = [("stocks".to_owned(), Arc::new(service))].into();
            Some(stuck(&NodeState { services }, &settings).len())
        };
        assert_eq!(stepped(Duration::from_secs(4)), Some(0));
        assert_eq!(stepped(Duration::from_secs(6)), Some(1));
    }
}
