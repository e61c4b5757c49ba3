//! Assignment of object sets to nodes with minimum variance of the nodes' loads (Middle-R, section 4.1).
//!
//! The paper's nodes are equal; here each has a capacity, and a node's load is its sets' load divided by its capacity.
//! With equal capacities, the algorithms are the paper's.

/// Maximum sets of branch and bound, whose time grows exponentially with them.
const MAX_BRANCHED: usize = 64;
/// Maximum pairs of sets or nodes that [`improve`] examines.
const STEPS: usize = 400_000;
/// Relative improvement below which a change is rounding.
const ROUNDING: f64 = 1e-12;

/// The load, or 0 if it is not a positive finite number.
pub(super) fn usable(load: f64) -> f64 {
    if load.is_finite() && load > 0.0 {
        load
    } else {
        0.0
    }
}

fn sums(loads: &[f64], capacities: &[f64], primaries: &[usize]) -> Vec<f64> {
    let mut sums = vec![0.0; capacities.len()];
    for (load, primary) in loads.iter().zip(primaries) {
        sums[*primary] += usable(*load);
    }
    sums
}

/// Variance of the nodes' loads relative to capacity, weighted by capacity; 0 for an even load. Nodes without
/// capacity do not count.
pub fn variance(loads: &[f64], capacities: &[f64], primaries: &[usize]) -> f64 {
    let all: f64 = capacities.iter().map(|capacity| usable(*capacity)).sum();
    let sums = sums(loads, capacities, primaries);
    let live = || {
        let nodes = capacities.iter().zip(&sums);
        nodes.filter(|(capacity, _)| usable(**capacity) > 0.0)
    };
    let mean = live().map(|(_, sum)| sum).sum::<f64>() / all;
    let square = |(capacity, sum): (&f64, &f64)| capacity * (sum / capacity - mean).powi(2);
    live().map(square).sum::<f64>() / all
}

/// Sets by load, the highest first; ties in the original order.
fn hottest_first(loads: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by(|a, b| usable(loads[*b]).total_cmp(&usable(loads[*a])));
    order
}

/// Increase of the sum of squares, which is minimal together with the variance, when a node's sum grows by a load.
fn added(load: f64, sum: f64, capacity: f64) -> f64 {
    load * (2.0 * sum + load) / capacity
}

/// Loads placed so far on the nodes with capacity.
struct Filling {
    /// Node, 1 / capacity, load.
    nodes: Vec<(usize, f64, f64)>,
}

impl Filling {
    fn new(capacities: &[f64], sums: &[f64]) -> Self {
        let all = capacities.iter().zip(sums).enumerate();
        let live = all.filter(|(_, (capacity, _))| usable(**capacity) > 0.0);
        Filling {
            nodes: live
                .map(|(node, (capacity, sum))| (node, 1.0 / capacity, *sum))
                .collect(),
        }
    }

    /// Puts a load on the node where it adds least to the variance; ties go to the least loaded node, then to the
    /// first.
    fn put(&mut self, load: f64) -> Option<usize> {
        let (mut best, mut least, mut lowest) = (None, f64::INFINITY, f64::INFINITY);
        for (i, (_, inverse, sum)) in self.nodes.iter().enumerate() {
            let cost = load * (2.0 * sum + load) * inverse;
            if cost < least || (cost == least && sum * inverse < lowest) {
                (best, least, lowest) = (Some(i), cost, sum * inverse);
            }
        }
        let (node, _, sum) = &mut self.nodes[best?];
        *sum += load;
        Some(*node)
    }
}

/// The paper's greedy algorithm: assigns the sets, in descending order of load, each to the node with the smallest
/// load. Returns the node of each set; `None` if no node has capacity.
///
/// It removes most of the variance of an uneven load, but with few sets often leaves several times that of the best
/// placement; [`improve`] and [`branch_and_bound`] start from its result.
pub fn greedy(loads: &[f64], capacities: &[f64]) -> Option<Vec<usize>> {
    let mut primaries = vec![0; loads.len()];
    let mut filling = Filling::new(capacities, &vec![0.0; capacities.len()]);
    if filling.nodes.is_empty() {
        return None;
    }
    for set in hottest_first(loads) {
        primaries[set] = filling.put(usable(loads[set]))?;
    }
    Some(primaries)
}

/// Moves single sets away from the node with the highest load, then swaps pairs, as long as the variance falls.
/// Examines a bounded number of pairs.
pub fn improve(loads: &[f64], capacities: &[f64], primaries: &mut [usize]) {
    let mut held: Vec<Vec<usize>> = vec![Vec::new(); capacities.len()];
    for (set, node) in primaries.iter().enumerate() {
        if usable(loads[set]) > 0.0 {
            held[*node].push(set);
        }
    }
    let mut descent = Descent {
        loads,
        capacities,
        sums: sums(loads, capacities, primaries),
        held,
        steps: STEPS,
    };
    let mut live: Vec<usize> = (0..capacities.len())
        .filter(|node| usable(capacities[*node]) > 0.0)
        .collect();
    while descent.steps > 0 {
        let filled = |node: &usize| descent.sums[*node] / capacities[*node];
        live.sort_by(|a, b| filled(a).total_cmp(&filled(b)));
        let [coldest, .., hot] = live[..] else { return };
        let others = &live[..live.len() - 1];
        let single = descent.best(hot, &[coldest], false);
        let Some(step) = single.or_else(|| descent.best(hot, others, true)) else {
            return;
        };
        descent.take(hot, step, primaries);
    }
}

/// Move of a set, given by its place at the hot node, to a node, and the set that moves back in exchange.
#[derive(Clone, Copy)]
struct Step {
    set: usize,
    to: usize,
    back: Option<usize>,
}

struct Descent<'a> {
    loads: &'a [f64],
    capacities: &'a [f64],
    sums: Vec<f64>,
    /// Sets with load, by node.
    held: Vec<Vec<usize>>,
    steps: usize,
}

impl Descent<'_> {
    /// The step that reduces the variance most, if any does.
    fn best(&mut self, hot: usize, to: &[usize], swaps: bool) -> Option<Step> {
        let scale = self.sums[hot] * self.sums[hot] / self.capacities[hot];
        let (mut least, mut best) = (-ROUNDING * scale, None);
        for cold in to.iter().copied() {
            let partners = if swaps { self.held[cold].len() } else { 0 };
            for (set, id) in self.held[hot].iter().enumerate() {
                if self.steps < partners + 1 {
                    self.steps = 0;
                    return best;
                }
                self.steps -= partners + 1;
                for back in std::iter::once(None).chain((0..partners).map(Some)) {
                    let given = back.map_or(0.0, |back| self.loads[self.held[cold][back]]);
                    let moved = self.loads[*id] - given;
                    let change = added(-moved, self.sums[hot], self.capacities[hot])
                        + added(moved, self.sums[cold], self.capacities[cold]);
                    if change < least {
                        least = change;
                        best = Some(Step {
                            set,
                            to: cold,
                            back,
                        });
                    }
                }
            }
        }
        best
    }

    fn take(&mut self, hot: usize, step: Step, primaries: &mut [usize]) {
        let set = self.held[hot].swap_remove(step.set);
        let back = step.back.map(|back| self.held[step.to].swap_remove(back));
        let moves = std::iter::once((set, step.to)).chain(back.map(|set| (set, hot)));
        for (set, to) in moves {
            self.sums[primaries[set]] -= self.loads[set];
            self.sums[to] += self.loads[set];
            primaries[set] = to;
            self.held[to].push(set);
        }
    }
}

/// The paper's branch and bound: the best placement of few sets, by examining all placements that may be better than
/// the best known one. `primaries` is the initial placement, and receives the result. Returns whether it is proven the
/// best; false if there are more than 64 sets, or more than `most_visited` partial placements to examine.
pub fn branch_and_bound(
    loads: &[f64],
    capacities: &[f64],
    primaries: &mut [usize],
    most_visited: usize,
) -> bool {
    let mut order = hottest_first(loads);
    order.retain(|set| usable(loads[*set]) > 0.0);
    if order.len() > MAX_BRANCHED {
        return false;
    }
    let squares = |sums: &[f64]| -> f64 {
        let nodes = sums.iter().zip(capacities);
        let live = nodes.filter(|(_, capacity)| usable(**capacity) > 0.0);
        live.map(|(sum, capacity)| sum * sum / capacity).sum()
    };
    let mut search = Search {
        loads,
        capacities,
        live: (0..capacities.len())
            .filter(|node| usable(capacities[*node]) > 0.0)
            .collect(),
        best: squares(&sums(loads, capacities, primaries)),
        best_found: primaries.to_vec(),
        chosen: primaries.to_vec(),
        sums: vec![0.0; capacities.len()],
        visits: most_visited,
        order,
    };
    let left: f64 = search.order.iter().map(|set| loads[*set]).sum();
    let is_best = search.visit(0, 0.0, left);
    primaries.copy_from_slice(&search.best_found);
    is_best
}

struct Search<'a> {
    loads: &'a [f64],
    capacities: &'a [f64],
    live: Vec<usize>,
    order: Vec<usize>,
    best: f64,
    best_found: Vec<usize>,
    chosen: Vec<usize>,
    sums: Vec<f64>,
    visits: usize,
}

impl Search<'_> {
    /// Tries the set at `depth` on each node. `squares` is the sum of squares over capacity so far, `left` the load not
    /// yet placed. Returns whether the search was complete.
    fn visit(&mut self, depth: usize, squares: f64, left: f64) -> bool {
        let Some(set) = self.order.get(depth).copied() else {
            if squares < self.best {
                self.best = squares;
                self.best_found.copy_from_slice(&self.chosen);
            }
            return true;
        };
        if self.visits == 0 {
            return false;
        }
        self.visits -= 1;
        if self.bound(left) >= self.best * (1.0 - ROUNDING) {
            return true;
        }
        let load = self.loads[set];
        let mut nodes = self.live.clone();
        nodes.sort_by(|a, b| {
            let cost = |node: usize| added(load, self.sums[node], self.capacities[node]);
            cost(*a).total_cmp(&cost(*b))
        });
        let mut complete = true;
        let mut tried: Vec<(f64, f64)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            // Equal nodes give equal placements.
            let like = (self.sums[node], self.capacities[node]);
            if tried.contains(&like) {
                continue;
            }
            tried.push(like);
            let more = added(load, self.sums[node], self.capacities[node]);
            self.sums[node] += load;
            self.chosen[set] = node;
            complete &= self.visit(depth + 1, squares + more, left - load);
            // Subtraction would leave a rounding error.
            self.sums[node] = like.0;
        }
        complete
    }

    /// The paper's lower bound on the sum of squares: the remaining load is spread over the least loaded nodes, as if
    /// sets were divisible.
    fn bound(&self, left: f64) -> f64 {
        let mut nodes = self.live.clone();
        let filled = |node: usize| self.sums[node] / self.capacities[node];
        nodes.sort_by(|a, b| filled(*a).total_cmp(&filled(*b)));
        let (mut capacity, mut sum) = (0.0, left);
        let mut poured = 0;
        // Add nodes until the next one is above the level.
        for (i, node) in nodes.iter().enumerate() {
            if i > 0 && sum / capacity <= filled(*node) {
                break;
            }
            capacity += self.capacities[*node];
            sum += self.sums[*node];
            poured = i + 1;
        }
        let above = nodes[poured..].iter();
        let rest: f64 = above
            .map(|node| self.sums[*node] * self.sums[*node] / self.capacities[*node])
            .sum();
        sum * sum / capacity + rest
    }
}

/// Keeps known assignments, and assigns the other sets, the hottest first, each to the node where it adds least to the
/// variance. At least one node must have capacity.
pub(super) fn cheapest_each(
    loads: &[f64],
    capacities: &[f64],
    known: &[Option<usize>],
) -> Vec<usize> {
    let mut sums = vec![0.0; capacities.len()];
    for (load, node) in loads.iter().zip(known) {
        if let Some(node) = node {
            sums[*node] += usable(*load);
        }
    }
    let mut filling = Filling::new(capacities, &sums);
    let mut primaries: Vec<usize> = known.iter().map(|node| node.unwrap_or(0)).collect();
    for set in hottest_first(loads) {
        if known[set].is_none()
            && let Some(node) = filling.put(usable(loads[set]))
        {
            primaries[set] = node;
        }
    }
    primaries
}
