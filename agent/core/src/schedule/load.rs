//! BasicLI, and the load-informed scheduler with artificial load.

use super::{NodeNews, drawn};

/// BasicLI: the arrivals of a phase fill the nodes to a common level.
#[derive(Clone, Debug, Default)]
pub(super) struct BasicLi {
    /// Node and cumulative probability, ascending to 1.
    upto: Vec<(usize, f64)>,
}

impl BasicLi {
    /// `P_i = (level · w_i - L_i) / arrivals`, with the level to which the arrivals fill the least loaded nodes; the
    /// others get nothing. (The thesis prints the case of equal weights and a phase long enough for all nodes, and
    /// lacks a division by N.)
    pub(super) fn inform(&mut self, nodes: &[NodeNews], arrivals: f64) {
        let arrivals = if arrivals.is_finite() {
            arrivals.max(1.0)
        } else {
            1.0
        };
        let mut order: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].weight > 0).collect();
        let height = |i: usize| nodes[i].jobs() / f64::from(nodes[i].weight);
        order.sort_by(|a, b| height(*a).total_cmp(&height(*b)).then(a.cmp(b)));
        let (mut jobs, mut weight, mut level) = (arrivals, 0.0, 0.0);
        let mut filled = 0;
        for index in &order {
            if filled > 0 && height(*index) >= level {
                break;
            }
            jobs += nodes[*index].jobs();
            weight += f64::from(nodes[*index].weight);
            level = jobs / weight;
            filled += 1;
        }
        let mut sum = 0.0;
        self.upto.clear();
        for index in &order[..filled] {
            let node = nodes[*index];
            sum += (level * f64::from(node.weight) - node.jobs()).max(0.0) / arrivals;
            self.upto.push((*index, sum));
        }
    }

    pub(super) fn next(&self, number: u32) -> Option<usize> {
        let u = f64::from(number) / 4_294_967_296.0;
        // Rounding may leave the sum just below 1.
        let found = self.upto.iter().find(|(_, upto)| u < *upto);
        found.or(self.upto.last()).map(|(node, _)| *node)
    }
}

/// Nodes in order of load, real plus artificial.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastLoaded {
    loads: Vec<(f64, usize)>,
}

impl LeastLoaded {
    /// News is assumed to include all requests sent before it, so artificial load restarts from 0.
    pub(super) fn inform(&mut self, nodes: &[NodeNews]) {
        let live = nodes.iter().enumerate().filter(|(_, node)| node.weight > 0);
        self.loads = live.map(|(index, node)| (node.load(), index)).collect();
        self.sort();
    }

    fn sort(&mut self) {
        self.loads
            .sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    pub(super) fn next(
        &mut self,
        max_nodes: usize,
        interval: f64,
        artificial: f64,
        number: u32,
    ) -> Option<usize> {
        let least = self.loads.first()?.0;
        let near = self.loads.iter().take(max_nodes.max(1));
        let count = near
            .take_while(|(load, _)| *load <= least + interval)
            .count()
            .max(1);
        let place = drawn(number, count);
        let node = self.loads[place].1;
        self.loads[place].0 += artificial;
        self.sort();
        Some(node)
    }

    pub(super) fn decrease(&mut self, node: usize, artificial: f64) {
        if let Some(entry) = self.loads.iter_mut().find(|(_, index)| *index == node) {
            entry.0 -= artificial;
            self.sort();
        }
    }
}
