//! The latest rings, shared with their readers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::ring::RingDelta;
use plimsoll_wire::Ring;
use tokio::sync::watch;

/// Number of changes kept, so that a follower that missed some need not read the whole table.
const HISTORY: usize = 64;

/// The nodes are read along with every report for this long after they were last requested.
const NODES_WANTED: Duration = Duration::from_secs(60);
/// Without such a request they are read once they are this old, for the metrics.
const NODES_AGE: Duration = Duration::from_secs(10);

/// A live node, as last reported by its agent.
#[derive(Clone, Debug, PartialEq)]
pub struct RingNode {
    /// "host:port" that proxies connect to, if its agent knows it.
    pub address: Option<String>,
    /// Backlog bound in cost units; 0 if the node is down or drained.
    pub bound: f64,
    /// The bound in jobs.
    pub bound_jobs: f64,
    /// Mean cost of a request.
    pub mean_cost: f64,
    /// Active requests.
    pub jobs: f64,
    /// Delay over the SLA's target.
    pub load: f64,
    /// Its capacity in cost units, if known.
    pub capacity: Option<f64>,
}

/// Live nodes of a cluster by name.
pub type RingNodes = BTreeMap<String, RingNode>;

#[derive(Debug)]
struct Held {
    ring: Option<Arc<Ring>>,
    changes: VecDeque<Arc<RingDelta>>,
    nodes: Option<(Arc<RingNodes>, Instant)>,
    /// When the nodes were last requested; initially now.
    wanted: Instant,
}

impl Default for Held {
    fn default() -> Self {
        Held {
            ring: None,
            changes: VecDeque::new(),
            nodes: None,
            wanted: Instant::now(),
        }
    }
}

/// The latest ring of each service.
#[derive(Debug)]
pub struct RingBoard {
    held: Mutex<BTreeMap<String, Held>>,
    /// Number of rings published, on which waiters wait.
    puts: watch::Sender<u64>,
}

impl Default for RingBoard {
    fn default() -> Self {
        RingBoard {
            held: Mutex::default(),
            puts: watch::Sender::new(0),
        }
    }
}

impl RingBoard {
    fn locked<T>(&self, look: impl FnOnce(&mut BTreeMap<String, Held>) -> T) -> T {
        look(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes a newer ring; returns the number of slots that changed owner.
    pub fn put(&self, service: &str, ring: Ring) -> usize {
        let moved = self.locked(|all| {
            let held = all.entry(service.to_owned()).or_default();
            let mut moved = 0;
            match held
                .ring
                .as_ref()
                .map(|old| old.table.difference(&ring.table))
            {
                Some(Ok(delta)) if delta.to > delta.from => {
                    moved = delta.moves.len();
                    held.changes.push_back(Arc::new(delta));
                    while held.changes.len() > HISTORY {
                        held.changes.pop_front();
                    }
                }
                // Another size, or an older version: earlier changes no longer apply.
                _ => held.changes.clear(),
            }
            held.ring = Some(Arc::new(ring));
            moved
        });
        self.puts.send_modify(|puts| *puts += 1);
        moved
    }

    /// The latest ring of a service.
    pub fn of(&self, service: &str) -> Option<Arc<Ring>> {
        self.locked(|all| all.get(service)?.ring.clone())
    }

    /// The changes from `version` to the latest ring; `None` if some are no longer kept.
    pub fn since(&self, service: &str, version: u64) -> Option<Vec<Arc<RingDelta>>> {
        self.locked(|all| {
            let changes = &all.get(service)?.changes;
            let first = changes.iter().position(|change| change.from == version)?;
            Some(changes.iter().skip(first).cloned().collect())
        })
    }

    /// Publishes the live nodes.
    pub fn put_nodes(&self, service: &str, nodes: Arc<RingNodes>) {
        self.locked(|all| {
            let held = all.entry(service.to_owned()).or_default();
            held.nodes = Some((nodes, Instant::now()));
        });
    }

    /// The live nodes and when they were read. From the first call on they are read once per period.
    pub fn nodes(&self, service: &str) -> Option<(Arc<RingNodes>, Instant)> {
        self.locked(|all| {
            let held = all.get_mut(service)?;
            held.wanted = Instant::now();
            held.nodes.clone()
        })
    }

    /// Whether the nodes should be read.
    pub fn wants_nodes(&self, service: &str) -> bool {
        self.locked(|all| {
            all.get(service).is_none_or(|held| {
                let known = held.nodes.as_ref().map(|(_, at)| at.elapsed());
                held.wanted.elapsed() < NODES_WANTED || known.is_none_or(|age| age >= NODES_AGE)
            })
        })
    }

    /// The only service with a ring, for requests that name none.
    pub fn only(&self) -> Option<String> {
        self.locked(|all| match all.len() {
            1 => all.keys().next().cloned(),
            _ => None,
        })
    }

    /// Notifies of every published ring.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.puts.subscribe()
    }

    /// Removes a service.
    pub fn forget(&self, service: &str) {
        self.locked(|all| all.remove(service));
    }
}
