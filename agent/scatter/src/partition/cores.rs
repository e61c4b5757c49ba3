//! Async access to the node's cores.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::answer;

/// The node's cores, and the queries that wait for one.
#[derive(Debug)]
pub struct Cores(Mutex<State>);

#[derive(Debug)]
struct State {
    turns: answer::Cores,
    /// Wakers by query.
    waiting: HashMap<u64, oneshot::Sender<()>>,
    next: u64,
}

impl Cores {
    /// Creates this many cores.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Cores(Mutex::new(State {
            turns: answer::Cores::new(count),
            waiting: HashMap::new(),
            next: 0,
        })))
    }

    /// Registers a query, without a core yet.
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

/// A query's core, or its place in the queue; released when dropped.
#[derive(Debug)]
pub struct Core {
    cores: Arc<Cores>,
    query: u64,
}

impl Core {
    /// Waits until the query has a core.
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

    /// Releases the core. To be called before the query waits for anything but the partition's server.
    pub fn rest(&self) {
        let mut state = self.cores.locked();
        state.waiting.remove(&self.query);
        let next = state.turns.rest(self.query);
        // A query that has stopped waiting releases the core when it ends.
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
