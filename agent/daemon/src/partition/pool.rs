//! Connections to one partition that are kept from query to query.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::Trouble;
use crate::metrics::PartitionMetrics;

/// An idle connection is kept for so long.
const IDLE: Duration = Duration::from_secs(60);
/// Idle connections to a partition. No more than this node has cores are there at once in any case.
const MOST_IDLE: usize = 16;
/// After the first failure to log in, and after many; with jitter.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// See [`SHORTEST_PAUSE`].
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that may be kept.
pub trait Pooled: Sized + Send + 'static {
    /// Where it leads, and how one is let in there.
    type Server: Send + Sync + 'static;

    /// A new one.
    fn open(server: &Self::Server) -> impl Future<Output = Result<Self, Trouble>> + Send;

    /// Whether the server has ended it.
    fn is_closed(&self) -> bool;

    /// In good order.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// See above.
#[derive(Debug)]
pub struct Pool<S: Pooled> {
    name: String,
    /// Of the partition.
    pub server: S::Server,
    metrics: PartitionMetrics,
    state: Mutex<State<S>>,
}

#[derive(Debug)]
struct State<S> {
    /// The one used last is the last.
    idle: Vec<(Instant, S)>,
    is_swept: bool,
    failures: u32,
    not_before: Instant,
    why: String,
}

impl<S: Pooled> Pool<S> {
    /// Connects when it is first asked.
    pub fn new(name: String, server: S::Server, metrics: PartitionMetrics) -> Self {
        let state = State {
            idle: Vec::new(),
            is_swept: false,
            failures: 0,
            not_before: Instant::now(),
            why: String::new(),
        };
        Pool {
            name,
            server,
            metrics,
            state: Mutex::new(state),
        }
    }

    /// One that was kept, or a new one.
    pub async fn take(&self) -> Result<S, Trouble> {
        while let Some((_, session)) = self.pop() {
            if !session.is_closed() {
                return Ok(session);
            }
        }
        self.open().await
    }

    fn pop(&self) -> Option<(Instant, S)> {
        self.locked().idle.pop()
    }

    /// A new one. A server that has just let nobody in is left alone for a while.
    pub async fn open(&self) -> Result<S, Trouble> {
        {
            let state = self.locked();
            if Instant::now() < state.not_before {
                return Err(Trouble::Down(state.why.clone()));
            }
        }
        let opened = S::open(&self.server).await;
        self.metrics.login(&self.name, opened.is_ok());
        let mut state = self.locked();
        match &opened {
            Ok(_) => state.failures = 0,
            // Others that knocked with this one are one failure.
            Err(_) if Instant::now() < state.not_before => {}
            Err(trouble) => {
                let pause = SHORTEST_PAUSE * 2u32.pow(state.failures.min(8));
                let jitter = 0.5 + 0.5 * fastrand::f64();
                state.not_before = Instant::now() + pause.min(LONGEST_PAUSE).mul_f64(jitter);
                state.failures = state.failures.saturating_add(1);
                state.why = trouble.to_string();
            }
        }
        opened
    }

    /// Keeps one that is fit for another query.
    pub fn put(self: &Arc<Self>, session: S) {
        let mut state = self.locked();
        if state.idle.len() >= MOST_IDLE {
            tokio::spawn(session.close());
            return;
        }
        state.idle.push((Instant::now(), session));
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Of a server that has let one down the others are no better.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.locked().idle);
        for (_, session) in idle {
            tokio::spawn(session.close());
        }
    }

    /// Closes those that were idle for long; when the next are to be looked at.
    fn sweep(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.locked();
        let old = state.idle.partition_point(|(at, _)| *at + IDLE <= now);
        for (_, session) in state.idle.drain(..old) {
            tokio::spawn(session.close());
        }
        let next = state.idle.first().map(|(at, _)| *at + IDLE);
        state.is_swept = next.is_some();
        next
    }

    fn locked(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sweep<S: Pooled>(pool: Weak<Pool<S>>) {
    let mut next = Some(Instant::now());
    while let Some(at) = next {
        sleep_until(at).await;
        next = pool.upgrade().and_then(|pool| pool.sweep());
    }
}
