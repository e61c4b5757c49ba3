//! Reports and statistics of a dispatcher.

use super::{Decisions, DispatchCounts, Dispatcher, Node, NodeReport};
use crate::ring::RingTable;

impl Dispatcher {
    /// Place of the node with this address.
    pub fn place_of_address(&self, address: &str) -> Option<usize> {
        // A renamed node leaves an entry with its address behind.
        let with = |node: &Node| node.address() == address;
        let live = |node: &Node| with(node) && node.is_known();
        let found = self.nodes.iter().position(live);
        found.or_else(|| self.nodes.iter().position(with))
    }

    /// Rank of a node for a request that [`Dispatcher::admit`] does not place, the lowest being best; `None` if the
    /// node takes no work. If the snapshot is stale or no node is open, every node has a rank: its cost in flight.
    pub fn fallback(&self, place: Option<usize>, now: f64, cost: f64) -> Option<f64> {
        let node = place.and_then(|place| self.nodes.get(place));
        if self.is_stale(now) || !self.nodes.iter().any(Node::is_open) {
            return Some(node.map_or(0.0, |node| node.usage().2));
        }
        node.filter(|node| node.is_open())
            .map(|node| node.filled(cost))
    }

    /// Name, address, cost in flight and requests in flight of each node.
    pub fn usage(&self) -> impl Iterator<Item = (&str, &str, f64, u64)> {
        self.nodes.iter().map(Node::usage)
    }

    /// Address at which the proxy reaches a node; empty if unknown.
    pub fn address(&self, place: usize) -> &str {
        self.nodes.get(place).map_or("", Node::address)
    }

    /// Ends a period: its demand is smoothed into the reported one. To be called once a period.
    pub fn end_period(&mut self) {
        let of_each = std::mem::take(&mut self.wanted_of_each);
        for node in &mut self.nodes {
            let more = if node.is_open() { of_each } else { 0.0 };
            node.end_period(more, self.settings.least_cost);
        }
    }

    /// Reports on all nodes, for Redis: once a period, and when [`Dispatcher::on_shares`] returns true.
    pub fn report(&self) -> Vec<NodeReport> {
        let nodes = self.nodes.iter().filter(|node| !node.is_gone());
        let refused = self.counts.refused();
        let asked = self.counts.admitted() + refused;
        let decisions = Decisions { asked, refused };
        nodes.map(|node| node.report(decisions)).collect()
    }

    /// Version of the ring, if there is one.
    pub fn ring_version(&self) -> Option<u64> {
        self.ring.as_ref().map(RingTable::version)
    }

    /// Cumulative counters.
    pub fn counts(&self) -> DispatchCounts {
        self.counts
    }
}
