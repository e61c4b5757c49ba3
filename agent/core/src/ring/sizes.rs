//! Ring sizes from bounds.

use super::{MAX_NODES, MAX_SLOTS};

/// Error for bounds or slots without possible sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizesError {
    /// More than [`MAX_NODES`] nodes.
    TooManyNodes(usize),
    /// The number of slots is not 1..=[`MAX_SLOTS`], or below the number of live nodes.
    Slots(u32),
}

impl std::fmt::Display for SizesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SizesError::TooManyNodes(count) => {
                write!(f, "{count} nodes, maximum {MAX_NODES}")
            }
            SizesError::Slots(slots) => write!(
                f,
                "{slots} slots: must be within 1..={MAX_SLOTS} and at least one a live node"
            ),
        }
    }
}

impl std::error::Error for SizesError {}

/// Bounds for [`ring_sizes`] of nodes with these capacities: a node without a known one gets the mean of the others,
/// and if none is known all are equal.
pub fn ring_weights(capacities: &[Option<f64>]) -> Vec<f64> {
    let known = |capacity: &Option<f64>| capacity.filter(|it| it.is_finite() && *it > 0.0);
    let (mut sum, mut count) = (0.0, 0.0);
    for capacity in capacities.iter().filter_map(known) {
        sum += capacity;
        count += 1.0;
    }
    let mean = if count > 0.0 { sum / count } else { 1.0 };
    let weights = capacities.iter().map(|it| known(it).unwrap_or(mean));
    weights.collect()
}

/// `H_i`: slots in proportion to the bounds, by largest remainders; ties go to the lower index. They sum to `slots`, or
/// are all 0 if no node is live. A node whose bound is not positive and finite is drained and gets none; any other
/// gets at least one.
pub fn ring_sizes(bounds: &[f64], slots: u32) -> Result<Vec<u32>, SizesError> {
    if bounds.len() > MAX_NODES {
        return Err(SizesError::TooManyNodes(bounds.len()));
    }
    let live = |bound: f64| bound.is_finite() && bound > 0.0;
    let count = bounds.iter().filter(|bound| live(**bound)).count();
    if slots == 0 || slots > MAX_SLOTS || (slots as usize) < count {
        return Err(SizesError::Slots(slots));
    }
    // Relative to the largest, so that the sum of huge bounds stays finite.
    let largest = bounds
        .iter()
        .copied()
        .filter(|b| live(*b))
        .fold(0.0, f64::max);
    let scaled = |bound: f64| if live(bound) { bound / largest } else { 0.0 };
    let total: f64 = bounds.iter().map(|bound| scaled(*bound)).sum();
    let mut sizes = vec![0; bounds.len()];
    if count == 0 {
        return Ok(sizes);
    }
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(count);
    let mut given = 0;
    for (index, bound) in bounds.iter().enumerate().filter(|(_, bound)| live(**bound)) {
        let quota = scaled(*bound) / total * f64::from(slots);
        sizes[index] = quota.floor() as u32;
        given += sizes[index];
        order.push((quota - quota.floor(), index));
    }
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, index) in order.iter().cycle().take((slots - given) as usize) {
        sizes[*index] += 1;
    }
    for (_, index) in order {
        if sizes[index] == 0 {
            let largest = (0..sizes.len()).max_by_key(|i| (sizes[*i], std::cmp::Reverse(*i)));
            if let Some(largest) = largest {
                sizes[largest] -= 1;
                sizes[index] = 1;
            }
        }
    }
    Ok(sizes)
}

/// Whether a change justifies moving keys: a node joined or left, or a size differs by more than `dead_band`, as a
/// share of itself.
pub fn worth_moving(now: &[u32], wanted: &[u32], dead_band: f64) -> bool {
    let at = |sizes: &[u32], index: usize| sizes.get(index).copied().unwrap_or(0);
    (0..now.len().max(wanted.len())).any(|index| {
        let (old, new) = (at(now, index), at(wanted, index));
        (old == 0) != (new == 0) || f64::from(old.abs_diff(new)) > dead_band * f64::from(old)
    })
}
