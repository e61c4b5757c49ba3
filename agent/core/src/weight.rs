//! From a bound to what a proxy understands: a weight in percent and a connection limit.

use crate::Cost;

/// HAProxy takes weights of 0..=256; with `weight 100` in the configuration a percent is a unit.
const MOST_PERCENT: f64 = 256.0;

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

/// Maps a bound to a weight, the same way on every node of a cluster.
#[derive(Clone, Debug)]
pub struct WeightScale {
    full_weight_bound: Cost,
    dead_band: f64,
    current: Option<u16>,
}

impl WeightScale {
    /// `full_weight_bound` is the bound that stands for 100 %; it must be the same on all nodes of
    /// a backend. A weight moves only when it is off by more than `dead_band` of itself (0 for
    /// none), so that a consistent hash does not move keys for noise.
    pub fn new(full_weight_bound: Cost, dead_band: f64) -> Self {
        WeightScale {
            full_weight_bound,
            dead_band,
            current: None,
        }
    }

    /// The weight for this bound, 1..=256 percent. Never 0: a live node keeps a floor share, since
    /// a node without traffic gives no samples and never recovers.
    pub fn percent(&mut self, bound: Cost) -> u16 {
        let exact = 100.0 * bound.get() / self.full_weight_bound.get();
        let exact = if exact.is_finite() {
            exact.clamp(1.0, MOST_PERCENT)
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
