//! Connection pool of one partition.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use plimsoll_net::{Backoff, backoff};
use tokio::time::{Instant, sleep_until};

use super::{Trouble, kept::Idle};
use crate::partition::PartitionMetrics;

/// Initial backoff after a failed login.
const MIN_WAIT: Duration = Duration::from_millis(50);
/// Maximum backoff after failed logins.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Connection that the pool can keep.
pub trait Pooled: Sized + Send + 'static {
    /// Address and credentials of the server.
    type Server: Send + Sync + 'static;

    /// Opens a connection.
    fn open(server: &Self::Server) -> impl Future<Output = Result<Self, Trouble>> + Send;

    /// Whether the server has closed it.
    fn is_closed(&self) -> bool;

    /// Closes it gracefully.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Connection pool of one partition, with backoff after failed logins.
#[derive(Debug)]
pub struct Pool<S: Pooled> {
    name: String,
    /// Server of the partition.
    pub server: S::Server,
    metrics: PartitionMetrics,
    state: Mutex<State<S>>,
}

#[derive(Debug)]
struct State<S> {
    idle: Idle<S>,
    waits: Backoff,
    not_before: Instant,
    why: String,
}

impl<S: Pooled> Pool<S> {
    /// Creates a pool, which connects on the first query.
    pub fn new(name: String, server: S::Server, metrics: PartitionMetrics) -> Self {
        let state = State {
            idle: Idle::new(),
            waits: backoff(MIN_WAIT, MAX_WAIT),
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

    /// Takes an idle connection, or opens one.
    pub async fn take(&self) -> Result<S, Trouble> {
        while let Some(session) = self.pop() {
            if !session.is_closed() {
                return Ok(session);
            }
        }
        self.open().await
    }

    fn pop(&self) -> Option<S> {
        self.locked().idle.take()
    }

    /// Opens a connection. During the backoff after a failed login it fails at once.
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
            Ok(_) => state.waits = backoff(MIN_WAIT, MAX_WAIT),
            // Concurrent failed logins count as one.
            Err(_) if Instant::now() < state.not_before => {}
            Err(trouble) => {
                let wait = state.waits.next().unwrap_or(MAX_WAIT);
                state.not_before = Instant::now() + wait;
                state.why = trouble.to_string();
            }
        }
        opened
    }

    /// Keeps a connection that can be reused.
    pub fn put(self: &Arc<Self>, session: S) {
        match self.locked().idle.put(session, Instant::now()) {
            Ok(false) => {}
            Ok(true) => {
                tokio::spawn(sweep(Arc::downgrade(self)));
            }
            Err(session) => close(vec![session]),
        }
    }

    /// Closes all idle connections, after one of the server's connections failed.
    pub fn clear(&self) {
        close(self.locked().idle.clear());
    }

    /// Closes connections that were idle for too long; returns the time of the next sweep.
    fn sweep(&self) -> Option<Instant> {
        let (old, next) = self.locked().idle.sweep(Instant::now());
        close(old);
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

fn close<S: Pooled>(sessions: Vec<S>) {
    for session in sessions {
        tokio::spawn(session.close());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use prometheus::Registry;

    use super::*;
    use plimsoll_exposition::Catalogue;

    /// Number of open connections.
    type Open = Arc<AtomicUsize>;

    struct Connection(Open);

    impl Drop for Connection {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Pooled for Connection {
        type Server = Open;

        async fn open(open: &Open) -> Result<Self, Trouble> {
            open.fetch_add(1, Ordering::Relaxed);
            Ok(Connection(Arc::clone(open)))
        }

        fn is_closed(&self) -> bool {
            false
        }

        async fn close(self) {}
    }

    #[tokio::test]
    async fn connections_beyond_the_maximum_are_closed() {
        let registry = Registry::new();
        let metrics = PartitionMetrics::new(&mut Catalogue::new(&registry)).unwrap();
        let pool = Arc::new(Pool::<Connection>::new(
            "p1".to_owned(),
            Open::default(),
            metrics,
        ));
        let open = async || {
            // Other tasks of this thread close them.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            pool.server.load(Ordering::Relaxed)
        };
        for _ in 0..2 {
            let mut taken = Vec::new();
            for _ in 0..20 {
                taken.push(pool.take().await.unwrap());
            }
            assert_eq!(open().await, 20);
            taken.into_iter().for_each(|it| pool.put(it));
            assert_eq!(open().await, 16);
        }
        drop(pool.take().await);
        assert_eq!(open().await, 15);
        pool.clear();
        assert_eq!(open().await, 0);
    }
}
