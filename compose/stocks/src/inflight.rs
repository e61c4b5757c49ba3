//! Requests accepted and not yet finished, counted by a ticket that leaves the count when dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::journal::Entry;
use crate::witness::Claim;

#[derive(Default)]
pub struct Inflight(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    items: usize,
    /// Ids rise with arrival, so the first is the oldest.
    arrivals: BTreeMap<u64, Instant>,
}

pub struct Load {
    pub jobs: usize,
    pub items: usize,
    pub oldest: Duration,
}

pub struct Ticket {
    owner: Arc<Inflight>,
    id: u64,
    items: usize,
}

/// Held by a request as long as it is at this node, even if its client has left.
pub struct Presence {
    pub _ticket: Ticket,
    /// Ends before the claim does.
    pub _entry: Option<Entry>,
    pub _claim: Option<Claim>,
}

impl Inflight {
    pub fn enter(self: &Arc<Self>, arrived: Instant, items: usize) -> Ticket {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.items += items;
        state.arrivals.insert(id, arrived);
        Ticket {
            owner: Arc::clone(self),
            id,
            items,
        }
    }

    pub fn load(&self) -> Load {
        let state = self.lock();
        Load {
            jobs: state.arrivals.len(),
            items: state.items,
            oldest: state
                .arrivals
                .first_key_value()
                .map_or(Duration::ZERO, |(_, arrived)| arrived.elapsed()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.owner.lock();
        state.arrivals.remove(&self.id);
        state.items -= self.items;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_ticket_leaves_the_count() {
        let inflight = Arc::new(Inflight::default());
        let now = Instant::now();
        let first = inflight.enter(now - Duration::from_secs(5), 80);
        let second = inflight.enter(now, 60);
        assert_eq!((inflight.load().jobs, inflight.load().items), (2, 140));
        assert!(inflight.load().oldest >= Duration::from_secs(5));
        drop(first);
        assert!(inflight.load().oldest < Duration::from_secs(5));
        drop(second);
        assert_eq!((inflight.load().jobs, inflight.load().items), (0, 0));
    }
}
