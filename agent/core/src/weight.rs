//! Weights in percent and connection limits for proxies.

use crate::Cost;

/// Maximum weight: HAProxy takes 0..=256, and with `weight 100` in its configuration one unit is a percent.
const MAX_PERCENT: f64 = 256.0;

/// Holds a value as long as it changes little, so that noise moves no keys.
#[derive(Clone, Copy, Debug)]
pub struct DeadBand {
    share: f64,
    held: Option<f64>,
}

impl DeadBand {
    /// Creates a dead band: a new value is taken only if it differs from the held one by more than `share` of that;
    /// with 0 always.
    pub fn new(share: f64) -> Self {
        DeadBand { share, held: None }
    }

    /// Updates the held value if necessary, and returns it.
    pub fn hold(&mut self, value: f64) -> f64 {
        match self.held {
            Some(held) if (value - held).abs() <= self.share * held => held,
            _ => *self.held.insert(value),
        }
    }
}

/// Maps a node's capacity to a weight.
#[derive(Clone, Debug)]
pub struct WeightScale {
    full_weight_bound: Option<Cost>,
    /// Highest recent capacity, which corresponds to 100 % without a configured bound.
    best: f64,
    dead_band: f64,
    current: Option<u16>,
}

/// Factor per period on the highest recent capacity: at one period a second it halves within two hours.
const BEST_DECAY: f64 = 0.9999;

impl WeightScale {
    /// Creates a scale. `full_weight_bound` is the bound for 100 %, the same on all nodes of a backend; without one
    /// it is the node's highest recent capacity. A weight changes only if it differs by more than `dead_band` of
    /// itself (with 0 always), so that noise moves no keys of a consistent hash.
    pub fn new(full_weight_bound: Option<Cost>, dead_band: f64) -> Self {
        WeightScale {
            full_weight_bound,
            best: 0.0,
            dead_band,
            current: None,
        }
    }

    /// Weight of a node with this capacity, 1..=256 percent; 100 if unknown. Never 0, since a node without traffic
    /// gives no samples and would never recover.
    pub fn percent(&mut self, carried: Option<Cost>) -> u16 {
        let exact = match (carried, self.full_weight_bound) {
            (None, _) => 100.0,
            (Some(carried), Some(full)) => 100.0 * carried.get() / full.get(),
            (Some(carried), None) => {
                self.best = carried.get().max(self.best * BEST_DECAY);
                100.0 * carried.get() / self.best
            }
        };
        let exact = if exact.is_finite() {
            exact.clamp(1.0, MAX_PERCENT)
        } else {
            1.0
        };
        if let Some(current) = self.current {
            let held = f64::from(current);
            if (exact - held).abs() <= self.dead_band * held {
                return current;
            }
        }
        let rounded = exact.round() as u16;
        self.current = Some(rounded);
        rounded
    }
}

/// Share of `jobs` for proxy number `index` of `proxies`, for a limit per proxy.
///
/// Shares are integers, at least 1 (HAProxy reads `maxconn:0` as unlimited). They sum to `jobs` rounded down, if that
/// is at least `proxies`.
pub fn share_of_jobs(jobs: f64, proxies: u32, index: u32) -> u32 {
    let proxies = proxies.max(1);
    let whole = if jobs.is_finite() {
        jobs.floor().clamp(0.0, f64::from(u32::MAX / 2))
    } else {
        0.0
    } as u32;
    let extra = u32::from(index < whole % proxies);
    (whole / proxies + extra).max(1)
}
