//! Open log connections, limited in such a way that idle ones cannot lock HAProxy out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::task::AbortHandle;

/// Open connections by number, in the order of arrival.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<BTreeMap<u64, Open>>,
}

#[derive(Debug)]
struct Open {
    /// Has sent a well-formed line, as HAProxy does and a stray client does not.
    proved: bool,
    heard: Instant,
    reader: Option<AbortHandle>,
}

/// The place of an open connection, freed on drop.
#[derive(Debug)]
pub struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Takes a place. If `most` are taken, closes the connection that is idle for longest, preferring those that never
    /// sent a well-formed line, and returns `true` with the place.
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

    /// Registers the task that reads the connection; aborting it closes the connection.
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
    /// Notes that data arrived; `proved` if it contained a well-formed line.
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
