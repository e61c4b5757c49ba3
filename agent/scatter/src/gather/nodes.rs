//! The agents: their connection pool, and the order in which a partition's replicas are queried.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use axum::body::Bytes;
use http_body_util::Full;
use hyper::{Response, body::Incoming};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};

use plimsoll_net::Caller;

use super::connector::Connector;
use crate::{
    client::{BUFFER_BYTES, request, told},
    gather::{GatherConfig, NodeAddress, Served},
};

/// Time that an idle connection is kept; agents close theirs after 75 s.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum idle connections to an agent: its maximum of concurrent queries.
const MAX_IDLE: usize = 64;
/// Time after a failure for which a node is queried after its replicas.
const SHUNNED: Duration = Duration::from_secs(2);

/// Connection pool to all agents, and their recent failures.
#[derive(Debug)]
pub struct Nodes {
    client: Client<Connector, Full<Bytes>>,
    turn: AtomicUsize,
    failed: Mutex<HashMap<String, Instant>>,
}

impl Nodes {
    /// Creates a pool without connections.
    pub fn new(config: Arc<ArcSwap<GatherConfig>>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(BUFFER_BYTES)
            .build(Connector::new(config));
        Nodes {
            client,
            turn: AtomicUsize::new(0),
            failed: Mutex::default(),
        }
    }

    /// A partition's nodes in round-robin order, with those that failed recently last.
    pub fn order<'a>(&self, served: &'a Served) -> Vec<&'a NodeAddress> {
        let mut nodes: Vec<_> = served.nodes.iter().collect();
        if nodes.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len();
            nodes.rotate_left(turn);
            let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            let is_shunned = |node: &&NodeAddress| {
                let at = failed.get(&node.url.authority);
                at.is_some_and(|at| at.elapsed() < SHUNNED)
            };
            nodes.sort_by_key(is_shunned);
        }
        nodes
    }

    /// Records success or failure of a node.
    pub fn note(&self, node: &NodeAddress, is_fine: bool) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if is_fine {
            failed.remove(&node.url.authority);
        } else {
            failed.insert(node.url.authority.clone(), Instant::now());
        }
    }

    /// Sends a query to a node. If the answer is dropped before its end, so is the connection.
    pub async fn ask(
        &self,
        node: &NodeAddress,
        caller: &Caller,
        question: String,
    ) -> Result<Response<Incoming>, String> {
        let scheme = if node.url.is_tls { "https" } else { "http" };
        let uri = format!("{scheme}://{}/v1/partition-query", node.url.authority);
        let request = request(&uri, "plimsoll-gather", caller, question);
        let request = request.map_err(|error| error.to_string())?;
        self.client.request(request).await.map_err(|it| told(&it))
    }
}
