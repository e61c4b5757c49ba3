//! Endpoint discovery for stock Envoy: the nodes of each service with weights and health, and the fraction to shed.
//!
//! Other nodes are known from their agents' `/v1/node`, polled once per period, or from Redis. Responses to Envoy use
//! what is known and never wait for a peer.

mod directory;
mod discovery;
mod metrics;
mod names;
mod node;
mod peers;
mod settings;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::Shedder;
use plimsoll_node::{
    overrides::Overrides,
    ring::RingBoard,
    state::{NodeState, SharedState},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use directory::Directory;
pub use discovery::{Assignment, Request, Response, TYPE};
pub use metrics::EnvoyMetrics;
use names::Names;
pub use node::{Node, Shed, Standing, Weight, standing};
use peers::Peers;
pub use peers::SilentPeer;
pub use settings::{EnvoyConfig, EnvoySection, EnvoyService, EnvoySettings, envoy};

/// This agent's fraction is in force if a proxy polled within this many periods or [`MIN_ASKED`], whichever is
/// longer.
const ASKED_PERIODS: u32 = 3;
/// Lower limit for [`ASKED_PERIODS`].
const MIN_ASKED: Duration = Duration::from_secs(3);

/// Shared state that the task needs.
#[derive(Clone, Debug)]
pub struct EnvoyContext {
    /// This node's last decisions.
    pub state: SharedState,
    /// Overrides by operators.
    pub overrides: Arc<Overrides>,
    /// Metrics of endpoint discovery.
    pub metrics: EnvoyMetrics,
    /// Nodes from Redis.
    pub rings: Arc<RingBoard>,
    /// Board for the result.
    pub board: Arc<EnvoyBoard>,
    /// Current configuration.
    pub config: watch::Receiver<Arc<EnvoyConfig>>,
    /// Cancels the task.
    pub stop: CancellationToken,
}

/// State of one service's cluster.
#[derive(Debug, Default)]
struct Cluster {
    others: Vec<(Node, SocketAddr)>,
    own: Option<SocketAddr>,
    /// Other nodes, including those whose address cannot be resolved, and when each was heard from.
    heard: Vec<(Node, Instant)>,
    shed: f64,
    /// Whether enough is known for a response.
    ready: bool,
    asked: Option<Instant>,
}

/// State of the services' clusters, shared with its readers.
#[derive(Debug, Default)]
pub struct EnvoyBoard {
    clusters: Mutex<BTreeMap<String, Cluster>>,
    silent: Mutex<Vec<SilentPeer>>,
}

impl EnvoyBoard {
    fn locked<T>(&self, look: impl FnOnce(&mut BTreeMap<String, Cluster>) -> T) -> T {
        look(&mut self.clusters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fraction that this agent wants shed, for other agents.
    pub fn shed(&self, service: &str, period: Duration) -> Shed {
        let lately = (ASKED_PERIODS * period).max(MIN_ASKED);
        self.locked(|all| {
            all.get(service).map_or_else(Shed::default, |cluster| Shed {
                fraction: cluster.shed,
                asked: cluster.asked.is_some_and(|at| at.elapsed() <= lately),
            })
        })
    }

    /// Other nodes of a service, and when each was heard from.
    pub fn heard(&self, service: &str) -> Vec<(Node, Instant)> {
        self.locked(|all| {
            let cluster = all.get(service);
            cluster.map_or_else(Vec::new, |cluster| cluster.heard.clone())
        })
    }

    /// Peers that do not respond.
    pub fn silent(&self) -> Vec<SilentPeer> {
        let silent = self.silent.lock();
        silent.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nodes of a service under the requested name; `None` until enough of them are known.
    pub fn assignment(
        &self,
        service: &str,
        name: String,
        state: &NodeState,
        overrides: &Overrides,
    ) -> Option<Assignment> {
        let own = state.services.get(service)?;
        let own = Node::own(own, &overrides.of(service), Shed::default());
        self.locked(|all| {
            let cluster = all.get_mut(service).filter(|cluster| cluster.ready)?;
            cluster.asked = Some(Instant::now());
            let own = own.zip(cluster.own);
            let nodes = cluster.others.iter().cloned().chain(own).collect();
            Some(Assignment::new(name, nodes, cluster.shed))
        })
    }
}

#[derive(Default)]
struct Service {
    directory: Directory,
    shedder: Shedder,
}

/// Polls the peers once per period and publishes the result, until cancelled.
pub async fn run(mut context: EnvoyContext) -> anyhow::Result<()> {
    let mut peers = Peers::default();
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let mut names = Names::default();
    let started = Instant::now();
    loop {
        let config = Arc::clone(&context.config.borrow_and_update());
        let known = |name: &String| config.services.iter().any(|s| s.name == *name);
        services.retain(|name, _| {
            let stays = known(name);
            if !stays {
                // The previous round may have updated them after the loop had ended.
                context.metrics.forget(name);
            }
            stays
        });
        context
            .board
            .locked(|all| all.retain(|name, _| known(name)));
        let began = tokio::time::Instant::now();
        let round = async {
            let heard = peers.ask(&config, &context.metrics).await;
            let silent = context.board.silent.lock();
            *silent.unwrap_or_else(PoisonError::into_inner) = peers.silent();
            let at = Instant::now();
            for (service, node) in heard {
                let service = services.entry(service).or_default();
                service.directory.hear(node, at);
            }
            let late = started.elapsed() > config.settings.lease;
            let peers_known = peers.enough_answered(late);
            for service in &config.services {
                let known = services.entry(service.name.clone()).or_default();
                publish(&context, &config, service, known, &mut names, peers_known).await;
            }
        };
        tokio::select! {
            () = round => {}
            () = context.stop.cancelled() => return Ok(()),
        }
        let jitter = config.jitter * (2.0 * fastrand::f64() - 1.0);
        tokio::select! {
            () = tokio::time::sleep_until(began + config.period.mul_f64(1.0 + jitter)) => {}
            changed = context.config.changed() => if changed.is_err() {
                return Ok(());
            },
            () = context.stop.cancelled() => return Ok(()),
        }
    }
}

async fn publish(
    context: &EnvoyContext,
    config: &EnvoyConfig,
    service: &EnvoyService,
    known: &mut Service,
    names: &mut Names,
    peers_known: bool,
) {
    let name = &service.name;
    let from_redis = service
        .ring_cluster
        .is_some()
        .then(|| context.rings.nodes(name));
    let mut ready = peers_known;
    if let Some(listed) = from_redis {
        // Without Redis the other nodes are unknown, unless there are peers.
        ready &= listed.is_some() || !config.settings.peers.is_empty();
        if let Some((nodes, at)) = listed {
            for node in nodes.values().filter_map(Node::of_ring) {
                // A peer's own report has more detail.
                if !known
                    .directory
                    .heard_since(&node.address, config.settings.lease)
                {
                    known.directory.hear_of(node, at, service.weight_dead_band);
                }
            }
        }
    }
    let others = known.directory.others(
        service.address.as_deref(),
        config.settings.lease,
        Instant::now(),
    );
    let heard = known.directory.heard();
    let heard = heard.map(|(node, at)| (node.clone(), at)).collect();
    let state = context.state.load();
    let shed = context.board.shed(name, config.period);
    let own = state.services.get(name);
    let own = own.and_then(|state| Node::own(state, &context.overrides.of(name), shed));
    let nodes: Vec<Node> = others.iter().cloned().chain(own).collect();
    let flow = directory::flow(&nodes);
    let in_force = directory::shed_in_force(&nodes);
    let shed = known
        .shedder
        .step(&flow, in_force, config.period.as_secs_f64());
    context.metrics.show_cluster(name, shed, count(&nodes));

    let own_at = match &service.address {
        Some(address) => names.find(address).await,
        None => None,
    };
    let mut found = Vec::new();
    for node in others {
        if let Some(at) = names.find(&node.address).await {
            found.push((node, at));
        }
    }
    context.board.locked(|all| {
        let cluster = all.entry(name.clone()).or_default();
        *cluster = Cluster {
            others: found,
            own: own_at,
            heard,
            shed,
            ready,
            asked: cluster.asked,
        };
    });
}

fn count(nodes: &[Node]) -> [(&'static str, usize); 3] {
    let of = |standing| {
        nodes
            .iter()
            .filter(|node| node.standing == standing)
            .count()
    };
    [
        ("healthy", of(Standing::Healthy)),
        ("unhealthy", of(Standing::Unhealthy)),
        ("draining", of(Standing::Draining)),
    ]
}
