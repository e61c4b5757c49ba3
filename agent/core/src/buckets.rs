//! Checks that a histogram's buckets can tell timely requests from late ones.

use crate::Sla;

/// Maximum distance of the nearest bucket bound from the SLA, as a share of the SLA.
const NEAR: f64 = 0.3;
/// Recommended buckets, as multiples of the SLA.
const WANTED: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 2.0, 4.0];

/// Problem of a histogram's buckets, and buckets to use instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Whether all buckets end below the target, so that no quantile can show a delay above it. The histogram must
    /// then not raise a bound.
    pub is_refused: bool,
    /// Message for the operator, with the bucket bounds and the SLA in seconds.
    pub problem: String,
    /// Recommended upper bounds, in seconds.
    pub buckets: Vec<f64>,
}

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let buckets: Vec<_> = self.buckets.iter().map(f64::to_string).collect();
        write!(f, "{}; use buckets {}", self.problem, buckets.join(", "))
    }
}

/// Advice for a histogram with these finite upper bounds, in seconds and increasing; `None` if they suffice.
pub fn advise(upper_bounds: &[f64], sla: &Sla) -> Option<Advice> {
    let (promise, target) = (sla.delay.get(), sla.target().get());
    let last = upper_bounds.last().copied().unwrap_or(0.0);
    let is_refused = last < target;
    let is_near = |bound: &f64| (bound / promise - 1.0).abs() <= NEAR;
    let problem = if last < promise {
        format!("the last bucket ends at {last} s, below the SLA of {promise} s")
    } else if !upper_bounds.iter().any(is_near) {
        let above = upper_bounds.partition_point(|bound| *bound < promise);
        let below = above.checked_sub(1).map_or(0.0, |at| upper_bounds[at]);
        let above = upper_bounds[above];
        format!(
            "no bucket ends within 30 % of the SLA of {promise} s: the nearest are {below} s and {above} s"
        )
    } else {
        return None;
    };
    Some(Advice {
        is_refused,
        problem,
        buckets: WANTED.map(|part| round(part * promise)).to_vec(),
    })
}

/// Rounds to three significant digits.
fn round(seconds: f64) -> f64 {
    let digits = 2 - seconds.log10().floor() as i32;
    // Division by a whole number gives the float nearest to the decimal; multiplication by 0.001 does not.
    match digits {
        0.. => (seconds * 10_f64.powi(digits)).round() / 10_f64.powi(digits),
        _ => (seconds / 10_f64.powi(-digits)).round() * 10_f64.powi(-digits),
    }
}
