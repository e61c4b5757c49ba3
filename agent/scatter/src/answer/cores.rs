//! Scheduling of a node's queries: as many work at once as the node has cores.

use std::collections::{BTreeSet, VecDeque};

/// Cores of a node, assigned to queries in order of arrival.
///
/// A query holds a core only while the node works on it. It releases the core before it waits for its caller to take
/// rows, and queues again before it reads more from the partition. If another agent serves the partition, the query
/// keeps its core while it waits for that agent. A node therefore has separate cores for each number of hops that a
/// query has come through, up to [`MAX_HOPS`](super::MAX_HOPS): a holder then waits only for cores of a higher hop, and
/// gathers that wait for several queries, of one node or of many, cannot deadlock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cores {
    count: usize,
    working: BTreeSet<u64>,
    /// Queue, the next query first.
    waiting: VecDeque<u64>,
}

impl Cores {
    /// Creates `count` cores, at least one.
    pub fn new(count: usize) -> Self {
        Cores {
            count: count.max(1),
            working: BTreeSet::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Requests a core for a query. Returns whether it has one; if not, the query is queued and keeps its position in
    /// repeated calls.
    pub fn work(&mut self, query: u64) -> bool {
        if self.working.contains(&query) {
            return true;
        }
        if self.working.len() < self.count {
            return self.working.insert(query);
        }
        if !self.waiting.contains(&query) {
            self.waiting.push_back(query);
        }
        false
    }

    /// Releases the core of a query that waits for its caller or has ended. Returns the query that gets the core.
    pub fn rest(&mut self, query: u64) -> Option<u64> {
        self.waiting.retain(|waiting| *waiting != query);
        if !self.working.remove(&query) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.working.insert(next);
        Some(next)
    }

    /// Whether a query has a core.
    pub fn has(&self, query: u64) -> bool {
        self.working.contains(&query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_assigned_in_queue_order() {
        let mut cores = Cores::new(2);
        assert_eq!(
            [1, 2, 3, 4, 3].map(|it| cores.work(it)),
            [true, true, false, false, false]
        );
        assert!(cores.work(1));
        assert_eq!(cores.rest(1), Some(3));
        assert!(!cores.work(1));
        // Queries that leave the queue are skipped, and release nothing.
        assert_eq!(cores.rest(4), None);
        assert_eq!(cores.rest(3), Some(1));
        assert_eq!([cores.rest(1), cores.rest(2), cores.rest(2)], [None; 3]);
        assert!(cores.work(5) && cores.has(5) && !cores.has(1));
    }

    #[test]
    fn node_has_at_least_one_core() {
        assert!(Cores::new(0).work(1));
    }
}
