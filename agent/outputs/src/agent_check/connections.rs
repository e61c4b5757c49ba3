//! The open connections, oldest first, so that a flood of idle ones cannot lock a proxy out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, task::AbortHandle};

/// Open connections by the order they came in.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Open>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// Places not yet dropped: a task that is told to end still holds its socket for a moment.
    places: usize,
    tasks: BTreeMap<u64, Option<AbortHandle>>,
}

/// Keeps a place until dropped.
#[derive(Debug)]
pub struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Takes a place; over `most`, closes the oldest connection and returns `true` beside it.
    pub fn enter(self: &Arc<Self>, most: usize) -> (Place, bool) {
        let mut open = self.lock();
        let crowded = open.tasks.len() >= most.max(1);
        if crowded && let Some((_, Some(oldest))) = open.tasks.pop_first() {
            oldest.abort();
        }
        let number = open.next;
        open.next += 1;
        open.places += 1;
        open.tasks.insert(number, None);
        (
            Place {
                number,
                connections: Arc::clone(self),
            },
            crowded,
        )
    }

    /// Makes the connection at this place one that can be closed.
    pub fn closes_with(&self, number: u64, task: AbortHandle) {
        if let Some(place) = self.lock().tasks.get_mut(&number) {
            *place = Some(task);
        }
    }

    /// Waits until at most this many are open.
    pub async fn at_most(&self, many: usize) {
        while self.lock().places > many {
            self.left.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Its number, for [`Connections::closes_with`].
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.tasks.remove(&self.number);
        open.places = open.places.saturating_sub(1);
        drop(open);
        self.connections.left.notify_one();
    }
}
