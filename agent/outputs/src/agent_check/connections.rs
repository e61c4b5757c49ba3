//! Open connections, oldest first: a flood of idle connections must not lock a proxy out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, task::AbortHandle};

/// Open connections in the order of arrival.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Open>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// Number of places in use: a cancelled task still holds its socket for a moment.
    places: usize,
    tasks: BTreeMap<u64, Option<AbortHandle>>,
}

/// A place, held until dropped.
#[derive(Debug)]
pub struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Takes a place. Above `most`, closes the oldest connection and returns `true` with the place.
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

    /// Registers the task to abort in order to close the connection.
    pub fn closes_with(&self, number: u64, task: AbortHandle) {
        if let Some(place) = self.lock().tasks.get_mut(&number) {
            *place = Some(task);
        }
    }

    /// Waits until at most this many connections are open.
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
    /// Number of the place, for [`Connections::closes_with`].
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
