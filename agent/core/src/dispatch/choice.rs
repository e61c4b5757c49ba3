//! Choice of a node for a request.

use super::{Class, Dispatcher, Held, Node};

/// A linear congruential sequence of 32 bits (Numerical Recipes, chapter 7.1), from one random number a request.
const NOISE_FACTOR: u32 = 1_664_525;
const NOISE_INCREMENT: u32 = 1_013_904_223;
const NOISE_RANGE: f64 = 4_294_967_296.0;

impl Dispatcher {
    /// The node with room, and the first open candidate.
    pub(super) fn by_ring(
        &self,
        hash: u32,
        cost: f64,
        class: Class,
    ) -> (Option<usize>, Option<usize>) {
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
            if self.nodes[place].takes(cost, class, part) {
                return (Some(place), asked);
            }
        }
        (None, asked)
    }

    pub(super) fn by_scheduler(
        &mut self,
        cost: f64,
        class: Class,
        random: &mut impl FnMut() -> u32,
    ) -> (Option<usize>, Option<usize>) {
        let mut asked = None;
        for _ in 0..2 * self.nodes.len() {
            let scheduler = self.scheduler.as_mut();
            let Some(place) = scheduler.and_then(|s| s.next_among(self.dispatchers, random)) else {
                break;
            };
            asked = asked.or(Some(place));
            if self.nodes[place].takes(cost, class, 1.0) {
                return (Some(place), asked);
            }
        }
        let place = self.least_filled(cost, class, random());
        (place, asked.or(place))
    }

    /// The node with the lowest backlog relative to its share, among those with room for the cost. Of the cost itself a
    /// random part counts at each, at least a quarter: idle nodes of about the same share take turns, and come before
    /// busy ones. Otherwise all dispatchers would prefer the same node, which has the largest share by chance.
    pub(super) fn least_filled(&self, cost: f64, class: Class, random: u32) -> Option<usize> {
        self.least_filled_of(cost, random, |node| node.takes(cost, class, 1.0))
    }

    /// The node that takes a request of the highest class beyond its share, where that is not the only class.
    pub(super) fn lender(
        &mut self,
        cost: f64,
        class: Class,
        random: &mut impl FnMut() -> u32,
    ) -> Option<usize> {
        if class != Class::HIGHEST || !self.has_classes {
            return None;
        }
        for node in &mut self.nodes {
            node.needed();
        }
        self.least_filled_of(cost, random(), |node| node.lends(cost))
    }

    fn least_filled_of(
        &self,
        cost: f64,
        random: u32,
        takes: impl Fn(&Node) -> bool,
    ) -> Option<usize> {
        let (mut best, mut least) = (None, f64::INFINITY);
        let mut noise = random;
        for (place, node) in self.nodes.iter().enumerate() {
            if takes(node) {
                noise = noise
                    .wrapping_mul(NOISE_FACTOR)
                    .wrapping_add(NOISE_INCREMENT);
                let part = 0.25 + 0.75 * f64::from(noise) / NOISE_RANGE;
                let filled = node.filled(cost * part);
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
            let is_full = |node: &Node| !node.takes(held.cost, Class::HIGHEST, 1.0);
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
