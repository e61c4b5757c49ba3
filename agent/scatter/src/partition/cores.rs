//! The node's cores, and the queries that wait for one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use plimsoll_core::gather;
use tokio::sync::oneshot;

/// See above.
#[derive(Debug)]
pub struct Cores(Mutex<State>);

#[derive(Debug)]
struct State {
    turns: gather::Cores,
    /// By query.
    waiting: HashMap<u64, oneshot::Sender<()>>,
    next: u64,
}

impl Cores {
    /// Of a node with so many.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Cores(Mutex::new(State {
            turns: gather::Cores::new(count),
            waiting: HashMap::new(),
            next: 0,
        })))
    }

    /// For another query, which has none yet.
    pub fn query(self: &Arc<Self>) -> Core {
        let mut state = self.locked();
        state.next += 1;
        Core {
            query: state.next,
            cores: Arc::clone(self),
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A query's core, or its place in the queue; given back when dropped.
#[derive(Debug)]
pub struct Core {
    cores: Arc<Cores>,
    query: u64,
}

impl Core {
    /// Returns when the query has a core.
    pub async fn work(&self) {
        let turn = {
            let mut state = self.cores.locked();
            if state.turns.work(self.query) {
                return;
            }
            let (comes, turn) = oneshot::channel();
            state.waiting.insert(self.query, comes);
            turn
        };
        let _ = turn.await;
    }

    /// Gives it back, to be called before the query waits for anything but who serves its partition.
    pub fn rest(&self) {
        let mut state = self.cores.locked();
        state.waiting.remove(&self.query);
        let next = state.turns.rest(self.query);
        // Where it stopped waiting, it gives the core back when it ends.
        if let Some(comes) = next.and_then(|next| state.waiting.remove(&next)) {
            let _ = comes.send(());
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.rest();
    }
}
