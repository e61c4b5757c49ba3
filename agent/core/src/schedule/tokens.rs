//! Schedulers with weights as tokens: algorithms 3.2, 3.3 and 3.4.

use std::collections::VecDeque;

use super::{NodeNews, drawn};

/// Nodes with tokens left, and the expired list of those without.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    weights: Vec<u32>,
    left: Vec<u32>,
    ready: VecDeque<usize>,
    expired: VecDeque<usize>,
}

impl Tokens {
    /// New weights start a new round; the same weights change nothing.
    pub(super) fn set_weights(&mut self, nodes: &[NodeNews]) {
        let weights: Vec<u32> = nodes.iter().map(|node| node.weight).collect();
        if weights != self.weights {
            self.left.clone_from(&weights);
            self.ready = (0..nodes.len()).filter(|i| weights[*i] > 0).collect();
            self.expired.clear();
            self.weights = weights;
        }
    }

    /// Algorithm 3.4: a node's tokens are its distance in jobs from its share of all jobs. Nodes above their share
    /// wait on the expired list, with correspondingly fewer tokens.
    pub(super) fn inform(&mut self, nodes: &[NodeNews]) {
        self.weights = nodes.iter().map(|node| node.weight).collect();
        self.left.clone_from(&self.weights);
        self.ready.clear();
        self.expired.clear();
        let live = || nodes.iter().enumerate().filter(|(_, node)| node.weight > 0);
        let weight: f64 = live().map(|(_, node)| f64::from(node.weight)).sum();
        let jobs: f64 = live().map(|(_, node)| node.jobs()).sum();
        for (index, node) in live() {
            // A single division, so that whole jobs stay whole.
            let distance =
                ((f64::from(node.weight) * jobs - node.jobs() * weight) / weight).floor();
            if distance > 0.0 {
                self.left[index] = distance.min(f64::from(u32::MAX)) as u32;
                self.ready.push_back(index);
            } else {
                let tokens = (distance + f64::from(node.weight)).max(1.0);
                self.left[index] = tokens as u32;
                self.expired.push_back(index);
            }
        }
    }

    fn refill(&mut self) {
        if self.ready.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.expired);
        }
    }

    /// Uses a token of a node. Returns whether it has more; otherwise it goes to the expired list.
    fn spend(&mut self, node: usize) -> bool {
        self.left[node] -= 1;
        if self.left[node] > 0 {
            return true;
        }
        self.left[node] = self.weights[node];
        self.expired.push_back(node);
        false
    }

    /// Algorithm 3.2.
    pub(super) fn next_in_turn(&mut self) -> Option<usize> {
        self.refill();
        let node = self.ready.pop_front()?;
        if self.spend(node) {
            self.ready.push_back(node);
        }
        Some(node)
    }

    /// Algorithm 3.3. The last node of the list takes the place of one that leaves it.
    pub(super) fn next_random(&mut self, number: u32) -> Option<usize> {
        self.refill();
        let place = drawn(number, self.ready.len());
        let node = *self.ready.get(place)?;
        if !self.spend(node) {
            self.ready.swap_remove_back(place);
        }
        Some(node)
    }
}
