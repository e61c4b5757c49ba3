//! Choice of a node for a request.

use super::{Dispatcher, Held, Node};

impl Dispatcher {
    /// The node with room, and the first open candidate.
    pub(super) fn by_ring(&self, hash: u32, cost: f64) -> (Option<usize>, Option<usize>) {
        let mut asked = None;
        let Some(ring) = &self.ring else {
            return (None, None);
        };
        for (tried, owner) in ring.candidates(hash).enumerate() {
            let place = self.ring_places.get(usize::from(owner)).copied().flatten();
            let Some(place) = place.filter(|place| self.nodes[*place].is_open()) else {
                continue;
            };
            asked = asked.or(Some(place));
            // The rest of a node's room is for its own keys. Otherwise, with all nodes full, every finished
            // request would make room for any key, and caches would keep nothing for long.
            let part = if tried == 0 { 1.0 } else { self.settings.spill };
            if self.nodes[place].takes(cost, part) {
                return (Some(place), asked);
            }
        }
        (None, asked)
    }

    pub(super) fn by_scheduler(
        &mut self,
        cost: f64,
        random: &mut impl FnMut() -> u32,
    ) -> (Option<usize>, Option<usize>) {
        let mut asked = None;
        for _ in 0..2 * self.nodes.len() {
            let scheduler = self.scheduler.as_mut();
            let Some(place) = scheduler.and_then(|s| s.next_among(self.dispatchers, random)) else {
                break;
            };
            asked = asked.or(Some(place));
            if self.nodes[place].takes(cost, 1.0) {
                return (Some(place), asked);
            }
        }
        let place = self.least_filled(cost);
        (place, asked.or(place))
    }

    /// The node with the lowest backlog relative to its share, among those with room for the cost.
    pub(super) fn least_filled(&self, cost: f64) -> Option<usize> {
        let (mut best, mut least) = (None, f64::INFINITY);
        for (place, node) in self.nodes.iter().enumerate() {
            if node.takes(cost, 1.0) {
                let filled = node.filled(cost);
                if best.is_none() || filled < least {
                    (best, least) = (Some(place), filled);
                }
            }
        }
        best
    }

    /// Other nodes for a retry of a placed request, best first: those with room, then full ones, since the proxy
    /// retries in any case.
    pub fn alternatives(&self, held: &Held, count: usize) -> Vec<usize> {
        let mut others = Vec::new();
        while others.len() < count {
            let nodes = self.nodes.iter().enumerate();
            let open = nodes.filter(|(place, node)| {
                node.is_open() && *place != held.place && !others.contains(place)
            });
            let is_full = |node: &Node| !node.takes(held.cost, 1.0);
            let best = open.min_by(|(_, a), (_, b)| {
                let by_fill = || a.filled(held.cost).total_cmp(&b.filled(held.cost));
                is_full(a).cmp(&is_full(b)).then_with(by_fill)
            });
            let Some((place, _)) = best else {
                break;
            };
            others.push(place);
        }
        others
    }
}
