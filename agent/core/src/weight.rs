//! From a bound to what a proxy understands: a weight in percent and a connection limit.

use crate::Cost;

/// HAProxy takes weights of 0..=256; with `weight 100` in the configuration a percent is a unit.
const MAX_PERCENT: f64 = 256.0;

/// Holds a value still while it is off by little, so that noise moves no keys.
#[derive(Clone, Copy, Debug)]
pub struct DeadBand {
    share: f64,
    held: Option<f64>,
}

impl DeadBand {
    /// Values move only when they are off by more than `share` of what is held (0 for none).
    pub fn new(share: f64) -> Self {
        DeadBand { share, held: None }
    }

    /// What stands for this value.
    pub fn hold(&mut self, value: f64) -> f64 {
        match self.held {
            Some(held) if (value - held).abs() <= self.share * held => held,
            _ => *self.held.insert(value),
        }
    }
}

/// Maps what a node can carry to a weight.
#[derive(Clone, Debug)]
pub struct WeightScale {
    full_weight_bound: Option<Cost>,
    /// The most that was carried of late, which stands for 100 % where nothing else does.
    best: f64,
    dead_band: f64,
    current: Option<u16>,
}

/// Share of the best capacity that is left after one period: it halves within two hours at one a second.
const BEST_DECAY: f64 = 0.9999;

impl WeightScale {
    /// `full_weight_bound` is the bound that stands for 100 %, the same on all nodes of a backend; without one it is
    /// the most that the node could carry of late, so that the weight says what is left of it. A weight moves only
    /// when it is off by more than `dead_band` of itself (0 for none), so that a consistent hash does not move keys
    /// for noise.
    pub fn new(full_weight_bound: Option<Cost>, dead_band: f64) -> Self {
        WeightScale {
            full_weight_bound,
            best: 0.0,
            dead_band,
            current: None,
        }
    }

    /// The weight of a node that can carry this much, 1..=256 percent; 100 where that is not known. Never 0: a live
    /// node keeps a floor share, since a node without traffic gives no samples and never recovers.
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

/// The share of `jobs` of proxy number `index` of `proxies`, for a limit set per proxy.
///
/// Shares are whole, at least 1 (HAProxy reads `maxconn:0` as unlimited), and sum to `jobs`
/// rounded down wherever that is at least `proxies`.
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
