//! The open log connections, so that a flood of idle ones cannot lock HAProxy out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::task::AbortHandle;

/// Open connections by the order they came in.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<BTreeMap<u64, Open>>,
}

#[derive(Debug)]
struct Open {
    /// Sent a line in the format, as HAProxy does and a stray client does not.
    proved: bool,
    heard: Instant,
    reader: Option<AbortHandle>,
}

/// Keeps a connection's place until dropped.
#[derive(Debug)]
pub struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Takes a place. Over `most`, closes the connection that was silent for longest, first among
    /// those that never sent a line in the format, and returns `true` beside it.
    pub fn enter(self: &Arc<Self>, number: u64, most: usize) -> (Place, bool) {
        let mut open = self.lock();
        let crowded = open.len() >= most;
        let idle = open
            .iter()
            .min_by_key(|(_, open)| (open.proved, open.heard));
        let idle = idle.map(|(number, _)| *number).filter(|_| crowded);
        if let Some(closed) = idle.and_then(|number| open.remove(&number))
            && let Some(reader) = closed.reader
        {
            reader.abort();
        }
        let new = Open {
            proved: false,
            heard: Instant::now(),
            reader: None,
        };
        open.insert(number, new);
        let place = Place {
            number,
            connections: Arc::clone(self),
        };
        (place, crowded)
    }

    /// Makes the connection one that can be closed.
    pub fn closes_with(&self, number: u64, reader: AbortHandle) {
        if let Some(open) = self.lock().get_mut(&number) {
            open.reader = Some(reader);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Something arrived; `proved` where it was in the format.
    pub fn heard(&self, proved: bool) {
        if let Some(open) = self.connections.lock().get_mut(&self.number) {
            open.heard = Instant::now();
            open.proved |= proved;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}
