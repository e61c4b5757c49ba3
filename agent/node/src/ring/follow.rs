//! The rings known here, for whoever asks.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::ring::RingDelta;
use plimsoll_wire::Ring;
use tokio::sync::watch;

/// Changes remembered, so that a follower that missed some need not read the table.
const HISTORY: usize = 64;

/// The nodes are read along with every report for so long after somebody asked for them.
const NODES_WANTED: Duration = Duration::from_secs(60);
/// Else only when what is known of them, which metrics show, is so old.
const NODES_AGE: Duration = Duration::from_secs(10);

/// A live node, as its agent reported it last.
#[derive(Clone, Debug, PartialEq)]
pub struct RingNode {
    /// "host:port" that proxies connect to, where its agent knows it.
    pub address: Option<String>,
    /// Backlog bound in cost units; 0 where the node is down or drained.
    pub bound: f64,
    /// The same in jobs.
    pub bound_jobs: f64,
    /// Mean cost of a request.
    pub mean_cost: f64,
    /// Active requests.
    pub jobs: f64,
    /// Delay over the SLA's target.
    pub load: f64,
    /// What it can carry in cost units, where that is known.
    pub capacity: Option<f64>,
}

/// The live nodes of a cluster, by name.
pub type RingNodes = BTreeMap<String, RingNode>;

#[derive(Debug)]
struct Held {
    ring: Option<Arc<Ring>>,
    changes: VecDeque<Arc<RingDelta>>,
    nodes: Option<(Arc<RingNodes>, Instant)>,
    /// When somebody asked for the nodes; at first as if somebody had.
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

/// The last ring of each service.
#[derive(Debug)]
pub struct RingBoard {
    held: Mutex<BTreeMap<String, Held>>,
    /// Counts what was put, so that a waiter hears of it.
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

    /// Puts a newer ring up, and tells how many slots changed owner.
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
                // Another size, or an older version: nobody can go on from what was.
                _ => held.changes.clear(),
            }
            held.ring = Some(Arc::new(ring));
            moved
        });
        self.puts.send_modify(|puts| *puts += 1);
        moved
    }

    /// The last ring of a service.
    pub fn of(&self, service: &str) -> Option<Arc<Ring>> {
        self.locked(|all| all.get(service)?.ring.clone())
    }

    /// The changes that lead from `version` to the last ring; `None` where they are not all known.
    pub fn since(&self, service: &str, version: u64) -> Option<Vec<Arc<RingDelta>>> {
        self.locked(|all| {
            let changes = &all.get(service)?.changes;
            let first = changes.iter().position(|change| change.from == version)?;
            Some(changes.iter().skip(first).cloned().collect())
        })
    }

    /// Puts up the live nodes.
    pub fn put_nodes(&self, service: &str, nodes: Arc<RingNodes>) {
        self.locked(|all| {
            let held = all.entry(service.to_owned()).or_default();
            held.nodes = Some((nodes, Instant::now()));
        });
    }

    /// The live nodes, and when that was read: once a period from the first call on.
    pub fn nodes(&self, service: &str) -> Option<(Arc<RingNodes>, Instant)> {
        self.locked(|all| {
            let held = all.get_mut(service)?;
            held.wanted = Instant::now();
            held.nodes.clone()
        })
    }

    /// Whether the nodes are to be read.
    pub fn wants_nodes(&self, service: &str) -> bool {
        self.locked(|all| {
            all.get(service).is_none_or(|held| {
                let known = held.nodes.as_ref().map(|(_, at)| at.elapsed());
                held.wanted.elapsed() < NODES_WANTED || known.is_none_or(|age| age >= NODES_AGE)
            })
        })
    }

    /// The service with the only ring, for requests that name none.
    pub fn only(&self) -> Option<String> {
        self.locked(|all| match all.len() {
            1 => all.keys().next().cloned(),
            _ => None,
        })
    }

    /// Hears of every ring put up.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.puts.subscribe()
    }

    /// A service that is gone.
    pub fn forget(&self, service: &str) {
        self.locked(|all| all.remove(service));
    }
}
