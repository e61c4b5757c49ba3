//! What is told of a dispatcher.

use super::{DispatchCounts, Dispatcher, MIN_DEMAND, Node, NodeReport};
use crate::ring::RingTable;

impl Dispatcher {
    /// The place of an address.
    pub fn place_of_address(&self, address: &str) -> Option<usize> {
        // A node that was renamed leaves its address behind.
        let with = |node: &Node| node.address() == address;
        let live = |node: &Node| with(node) && node.is_known();
        let found = self.nodes.iter().position(live);
        found.or_else(|| self.nodes.iter().position(with))
    }

    /// How a node suits who is not placed by [`Dispatcher::admit`], less is better; none where it takes no work. Without
    /// fresh news, or an open node, all of them suit, those best that have least in flight.
    pub fn fallback(&self, place: Option<usize>, now: f64, cost: f64) -> Option<f64> {
        let node = place.and_then(|place| self.nodes.get(place));
        if self.is_stale(now) || !self.nodes.iter().any(Node::is_open) {
            return Some(node.map_or(0.0, |node| node.usage().2));
        }
        node.filter(|node| node.is_open())
            .map(|node| node.filled(cost))
    }

    /// A node's name, address, cost in flight and requests in flight.
    pub fn usage(&self) -> impl Iterator<Item = (&str, &str, f64, u64)> {
        self.nodes.iter().map(Node::usage)
    }

    /// Where the proxy reaches a node.
    pub fn address(&self, place: usize) -> &str {
        self.nodes.get(place).map_or("", Node::address)
    }

    /// To be called once a period: what was wanted in it counts as demand from now on.
    pub fn end_period(&mut self) {
        let of_each = std::mem::take(&mut self.wanted_of_each);
        for node in &mut self.nodes {
            let more = if node.is_open() { of_each } else { 0.0 };
            node.end_period(more, MIN_DEMAND * self.settings.least_cost);
        }
    }

    /// What goes to Redis once a period, and when much is given up.
    pub fn report(&self) -> Vec<NodeReport> {
        let nodes = self.nodes.iter().filter(|node| !node.is_gone());
        nodes.map(Node::report).collect()
    }

    /// The ring's version.
    pub fn ring_version(&self) -> Option<u64> {
        self.ring.as_ref().map(RingTable::version)
    }

    /// Counters since the start.
    pub fn counts(&self) -> DispatchCounts {
        self.counts
    }
}
