//! `/`, `/metrics`, `/healthz`, `/readyz`, `/v1/node`, `/v1/ring`, `/v1/orca`, `/v1/updates`,
//! `/v1/role`, `/v1/observe`, `/v1/placement`, `/v1/partition-query` and `/v3/discovery:endpoints`.

mod access;
mod discovery;
mod node;
mod observe;
mod orca;
mod page;
mod partition;
mod placement;
mod ring;
mod role;
mod updates;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use ipnet::IpNet;
use plimsoll_core::Cost;
use plimsoll_net::{Bodies, Guard, Rules, ServerTls, Tokens, is_allowed, scrape};
use plimsoll_node::{
    history::Histories,
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

use crate::{agent_check::OutputSettings, envoy::EnvoyConfig, orca::OrcaConfig};

pub use access::ENDPOINTS;
pub use node::{NodeContext, node_view};

use self::{
    access::{OBSERVE, PARTITION_QUERY, PLACEMENT, refuse},
    discovery::DiscoveryRoute,
    observe::ObserveRoute,
    page::PageRoute,
    partition::PartitionRoute,
    placement::PlacementRoute,
    ring::RingRoute,
};

/// A control loop silent for this many periods, and at least [`MIN_STALE`], is stuck.
const STALE_PERIODS: u32 = 5;
/// See [`STALE_PERIODS`].
const MIN_STALE: Duration = Duration::from_secs(5);

/// Settings of the HTTP server.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpConfig {
    /// Networks that may connect; all without.
    pub allow: Option<Vec<IpNet>>,
    /// Tokens that callers must send.
    pub tokens: Tokens,
    /// Its TLS, if it has any.
    pub tls: Option<ServerTls>,
    /// This node's.
    pub partitions: Vec<Arc<PartitionConfig>>,
    /// For discovery.
    pub envoy: Arc<EnvoyConfig>,
    /// For load reports.
    pub orca: Arc<OrcaConfig>,
    /// In the file's order.
    pub services: Vec<HttpService>,
}

/// Endpoints that a service has.
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

/// Everything the HTTP server serves from.
pub struct HttpContext {
    /// All metrics.
    pub registry: Registry,
    /// Brings gauges up to date that nobody sets otherwise.
    pub before_scrape: Arc<dyn Fn() + Send + Sync>,
    /// State of the node.
    pub node: NodeContext,
    /// The rings followed.
    pub rings: Arc<RingBoard>,
    /// The last ten minutes.
    pub histories: Arc<Histories>,
    /// The configuration in force.
    pub config: watch::Receiver<Arc<HttpConfig>>,
    /// Proxies' way to Redis.
    pub exchanges: Arc<Exchanges>,
    /// Requests refused for their token, by status.
    pub refused: IntCounterVec,
    /// Exchanges, by result.
    pub exchanged: IntCounterVec,
    /// Discoveries, by result.
    pub discovered: IntCounterVec,
    /// The way to the table of primaries.
    pub gate: Arc<Gate>,
    /// Queries in this node's partitions.
    pub partitions: Arc<Partitions>,
    /// Connections that were closed, by reason.
    pub closed: IntCounterVec,
}

/// State of the routes that show one service.
#[derive(Clone)]
struct ServicesRoute {
    config: watch::Receiver<Arc<HttpConfig>>,
    state: SharedState,
    overrides: Arc<Overrides>,
}

impl HttpConfig {
    /// The name of the service that is asked about, among those that have `section`; the only one where none is named.
    fn service_with(
        &self,
        (section, words): (&str, &str),
        has: fn(&HttpService) -> bool,
        asked: Option<&str>,
    ) -> Result<&str, (StatusCode, String)> {
        let mut with = self.services.iter().filter(|it| has(it));
        let found = match asked {
            Some(name) => with.find(|service| service.name == name),
            None => match (with.next(), with.next()) {
                (only, None) => only,
                _ => {
                    let problem =
                        format!("service: say which; this agent has several with {words}\n");
                    return Err((StatusCode::BAD_REQUEST, problem));
                }
            },
        };
        found.map(|service| &*service.name).ok_or_else(|| {
            let problem = format!("no service of this name has [service.{section}]\n");
            (StatusCode::NOT_FOUND, problem)
        })
    }
}

#[derive(Clone)]
struct MetricsRoute {
    registry: Registry,
    before_scrape: Arc<dyn Fn() + Send + Sync>,
}

/// Serves until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    context: HttpContext,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (config, of_tls) = (context.config.clone(), context.config.clone());
    let rules = Rules {
        allows: Box::new(move |address| is_allowed(config.borrow().allow.as_deref(), address)),
        tls: Box::new(move || of_tls.borrow().tls.clone()),
        closed: context.closed.clone(),
    };
    // Not graceful: a client that holds its connection must not hold the agent.
    let never = CancellationToken::new();
    tokio::select! {
        () = plimsoll_net::serve(listener, router(context), rules, never) => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

/// Each route sees what it needs.
fn router(context: HttpContext) -> Router {
    let HttpContext { node, config, .. } = context;
    let bodies = Arc::<Bodies>::default();
    let (tokens, exchanged) = (config.clone(), context.exchanged.clone());
    let guard = Guard {
        endpoints: &ENDPOINTS,
        check: Arc::new(move |role, headers| tokens.borrow().tokens.check(role, headers)),
        refuse: Arc::new(move |path, refusal| refuse(path, refusal, &exchanged)),
        refused: context.refused.clone(),
    };
    let metrics = MetricsRoute {
        registry: context.registry,
        before_scrape: context.before_scrape,
    };
    let page = PageRoute {
        node: node.clone(),
        histories: context.histories,
        rings: Arc::clone(&context.rings),
        config: config.clone(),
    };
    let ring = RingRoute {
        rings: context.rings,
        permits: Arc::new(Semaphore::new(ring::MAX_WAITING)),
    };
    let services = ServicesRoute {
        config: config.clone(),
        state: Arc::clone(&node.state),
        overrides: Arc::clone(&node.overrides),
    };
    let observe = ObserveRoute {
        config: config.clone(),
        bodies: Arc::clone(&bodies),
        exchanges: context.exchanges,
        permits: Arc::new(Semaphore::new(observe::MAX_EXCHANGES)),
        exchanged: context.exchanged,
    };
    let placement = PlacementRoute {
        config: config.clone(),
        bodies: Arc::clone(&bodies),
        gate: context.gate,
        refused: context.refused,
        permits: Arc::new(Semaphore::new(placement::MAX_MESSAGES)),
    };
    let partition = PartitionRoute {
        config: config.clone(),
        bodies: Arc::clone(&bodies),
        state: Arc::clone(&node.state),
        partitions: context.partitions,
    };
    let discovery = DiscoveryRoute {
        config,
        bodies,
        state: Arc::clone(&node.state),
        overrides: Arc::clone(&node.overrides),
        envoy: Arc::clone(&node.envoy),
        discovered: context.discovered,
    };
    let of_node = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route(
            "/v1/node",
            get(async |State(node): State<NodeContext>| Json(node_view(&node))),
        )
        .with_state(node);
    let of_services = Router::new()
        .route("/v1/orca", get(orca::orca))
        .route("/v1/updates", get(updates::updates))
        .route("/v1/role", get(role::role))
        .with_state(services);
    let router = of_node
        .merge(of_services)
        .route("/", get(page::page).with_state(page))
        .route("/metrics", get(show_metrics).with_state(metrics))
        .route("/v1/ring", get(ring::ring).with_state(ring))
        .route(OBSERVE, post(observe::observe).with_state(observe))
        .route(
            PLACEMENT,
            get(placement::show)
                .post(placement::carry)
                .with_state(placement),
        )
        .route(
            PARTITION_QUERY,
            post(partition::query).with_state(partition),
        )
        .route(
            "/v3/discovery:endpoints",
            post(discovery::discover).with_state(discovery),
        );
    guard.before(router)
}

async fn show_metrics(State(route): State<MetricsRoute>) -> Response {
    (route.before_scrape)();
    scrape(&route.registry)
}

/// Alive: no control loop is stuck.
async fn healthz(State(context): State<NodeContext>) -> (StatusCode, String) {
    verdict(stuck(&context.state.load(), &context.settings.load()))
}

/// Ready: every service was stepped, so that agent checks get an answer.
async fn readyz(State(context): State<NodeContext>) -> (StatusCode, String) {
    let (state, settings) = (context.state.load(), context.settings.load());
    let services = settings.services().iter();
    let unready = services.filter(|service| !state.services.contains_key(&service.name));
    verdict(
        unready
            .map(|service| format!("{}: no first step yet", service.name))
            .collect(),
    )
}

/// A control loop silent for longer is stuck.
fn silence_limit(period: Duration) -> Duration {
    (period * STALE_PERIODS).max(MIN_STALE)
}

/// One message for each control loop that is stuck.
pub fn stuck(state: &NodeState, settings: &OutputSettings) -> Vec<String> {
    let limit = silence_limit(settings.period);
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
    use std::time::Instant;

    use super::*;
    use crate::agent_check::{ServiceOutput, answer_tests::state, settings_tests};
    use plimsoll_core::ServiceMode;
    use plimsoll_node::control_loop::SendWords;

    #[test]
    fn a_loop_that_does_not_step_is_stuck() {
        let settings = settings_tests::settings(vec![ServiceOutput {
            name: "stocks".into(),
            identities: Vec::new(),
            send: SendWords::Both,
            mode: ServiceMode::Enforce,
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
