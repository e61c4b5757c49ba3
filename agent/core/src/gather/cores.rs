//! Which of a node's queries work: as many at once as it has cores.

use std::collections::{BTreeSet, VecDeque};

/// A node's cores, given to queries in the order in which they want one.
///
/// A query has a core only while the node works for it. Before it waits for who asked to take its rows, it gives the core
/// back, and it takes its turn again before more is read from the partition. Where another agent has the partition, the
/// query keeps its core while it waits for that one; so a node has such cores for each number of agents that a question
/// came through, up to [`MAX_HOPS`](super::MAX_HOPS). Then who has a core waits only for cores of a higher number, and
/// gathers that wait for the rows of several queries, of one node or of many, cannot wait in a circle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cores {
    count: usize,
    working: BTreeSet<u64>,
    /// The one that is next is first.
    waiting: VecDeque<u64>,
}

impl Cores {
    /// Of a node with so many, at least one.
    pub fn new(count: usize) -> Self {
        Cores {
            count: count.max(1),
            working: BTreeSet::new(),
            waiting: VecDeque::new(),
        }
    }

    /// A query wants to work: whether it has a core now. Else it is in the queue, where it stays if it asks again.
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

    /// A query waits for who asked, or has ended: which one has a core in its place.
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
    fn cores_go_round_in_the_order_of_the_queue() {
        let mut cores = Cores::new(2);
        assert_eq!(
            [1, 2, 3, 4, 3].map(|it| cores.work(it)),
            [true, true, false, false, false]
        );
        assert!(cores.work(1));
        assert_eq!(cores.rest(1), Some(3));
        assert!(!cores.work(1));
        // Those that leave the queue are passed over, and give nothing back.
        assert_eq!(cores.rest(4), None);
        assert_eq!(cores.rest(3), Some(1));
        assert_eq!([cores.rest(1), cores.rest(2), cores.rest(2)], [None; 3]);
        assert!(cores.work(5) && cores.has(5) && !cores.has(1));
    }

    #[test]
    fn a_node_has_a_core() {
        assert!(Cores::new(0).work(1));
    }
}
