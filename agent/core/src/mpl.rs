//! Multiprogramming level: the fewest jobs at which a node reaches nearly its full throughput.
//!
//! Throughput over jobs is modelled as a parabola near its peak (Middle-R, section 3; Heiss and Wagner), estimated by
//! recursive least squares with exponential forgetting. If the fit has no peak, or its peak is outside the sampled
//! range, the level follows the slope. A constant level would reveal nothing about the curve, so it is dithered.

/// Share of a sample's weight that is kept after each period.
const FORGETTING: f64 = 0.93;
/// Minimum samples before the first estimate.
const SAMPLES: u32 = 4;
/// Minimum jobs in a period, as a share of the limit: with fewer, throughput shows demand and not capacity.
const FULL: f64 = 0.7;
/// Minimum standard deviation of the jobs, relative to their mean, for a fit.
const MIN_SPREAD: f64 = 0.02;
/// Maximum position of the peak, as a multiple of the highest recent sample.
const BEYOND: f64 = 1.2;
/// Share of the peak throughput that is given up for fewer jobs, since delay falls by more.
const GIVEN_UP: f64 = 0.005;
/// Maximum relative decrease of the level per period.
const MAX_DOWN: f64 = 0.2;
/// Maximum relative increase of the level per period.
const MAX_UP: f64 = 0.15;
/// Relative amplitude of the dither.
const DITHER: f64 = 0.05;
/// Minimum amplitude of the dither, in jobs.
const MIN_DITHER: f64 = 0.6;
/// Relative fall of both jobs and throughput between two periods that shows the level was past the peak.
const STEP_SEEN: f64 = 0.05;
/// Maximum slope that counts as flat, relative to throughput / jobs.
const FLAT: f64 = 0.02;

/// Position of the node on the throughput curve.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slope {
    /// More jobs increase throughput.
    Rising,
    /// More jobs do not change throughput.
    Flat,
    /// More jobs reduce throughput: thrashing.
    Falling,
    /// Near a peak; the level to move to, in jobs.
    Peak(f64),
}

/// Normal equations: decayed sums of powers of the jobs, and of their products with throughput.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    x: [f64; 5],
    xy: [f64; 3],
}

impl Sums {
    fn add(&mut self, x: f64, y: f64) {
        let mut power = 1.0;
        for i in 0..5 {
            self.x[i] = FORGETTING * self.x[i] + power;
            if i < 3 {
                self.xy[i] = FORGETTING * self.xy[i] + power * y;
            }
            power *= x;
        }
    }

    fn mean(&self) -> f64 {
        self.x[1] / self.x[0]
    }

    fn spread(&self) -> f64 {
        let mean = self.mean();
        (self.x[2] / self.x[0] - mean * mean).max(0.0).sqrt()
    }

    /// Slope of the linear fit.
    fn slope(&self) -> f64 {
        let [n, x, xx, ..] = self.x;
        (n * self.xy[1] - x * self.xy[0]) / (n * xx - x * x)
    }

    /// `y = c[0] + c[1] x + c[2] x²`, by Cramer's rule.
    fn parabola(&self) -> Option<[f64; 3]> {
        let [n, a, b, c, d] = self.x;
        let matrix = [[n, a, b], [a, b, c], [b, c, d]];
        let determinant = |m: &[[f64; 3]; 3]| {
            m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
                - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
                + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
        };
        let whole = determinant(&matrix);
        let scale = n * b * d;
        if whole.abs() <= 1e-9 * scale {
            return None;
        }
        let mut found = [0.0; 3];
        for (column, value) in found.iter_mut().enumerate() {
            let mut replaced = matrix;
            for (row, xy) in replaced.iter_mut().zip(self.xy) {
                row[column] = xy;
            }
            *value = determinant(&replaced) / whole;
        }
        Some(found)
    }
}

/// Estimates a node's multiprogramming level, period by period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MplEstimator {
    sums: Sums,
    samples: u32,
    /// Jobs of the first sample, the unit of the sums, so that powers stay near 1.
    unit: f64,
    most: f64,
    /// Jobs (in units) and throughput of the last sample.
    last: Option<(f64, f64)>,
    level: Option<f64>,
    up: bool,
}

impl Default for MplEstimator {
    fn default() -> Self {
        MplEstimator {
            sums: Sums::default(),
            samples: 0,
            unit: 1.0,
            most: 0.0,
            last: None,
            level: None,
            up: false,
        }
    }
}

impl MplEstimator {
    /// Level in jobs after a period that ended with `jobs` in the node and had this throughput, under a limit of
    /// `limit` jobs. `None` until there is an estimate.
    pub(crate) fn step(&mut self, jobs: f64, throughput: f64, limit: f64) -> Option<f64> {
        let usable = jobs > 0.0 && jobs.is_finite() && throughput > 0.0 && throughput.is_finite();
        // Proxies apply the limit in whole jobs.
        if !usable || jobs < FULL * limit.floor().max(1.0) {
            return self.level;
        }
        // One job at a time reveals nothing about two; the delay's limit must admit them first.
        if limit < 2.0 && self.level.is_some_and(|level| level >= 2.0) {
            return self.level;
        }
        if self.samples == 0 {
            self.unit = jobs;
        }
        self.samples = self.samples.saturating_add(1);
        let x = jobs / self.unit;
        let before = self.last.replace((x, throughput));
        let overshot = before.filter(|(x_before, before)| {
            x < (1.0 - STEP_SEEN) * x_before && throughput < (1.0 - STEP_SEEN) * before
        });
        if let Some((x, throughput)) = overshot {
            // Samples from above the peak would keep pulling the level down for long.
            self.sums = Sums::default();
            self.sums.add(x, throughput);
        }
        self.sums.add(x, throughput);
        self.most = (self.most * FORGETTING).max(x);
        // The delay's limit may be the lower one.
        let level = self.level.unwrap_or(limit).min(limit.max(1.0));
        let wanted = match self.slope() {
            _ if self.samples < SAMPLES => self.dithered(level),
            None => self.dithered(level),
            _ if overshot.is_some() => level * (1.0 + MAX_UP),
            Some(Slope::Rising) => level * (1.0 + MAX_UP),
            Some(Slope::Falling) => level * (1.0 - MAX_DOWN),
            Some(Slope::Flat) => level * (1.0 - DITHER),
            Some(Slope::Peak(peak)) if (peak / level - 1.0).abs() < DITHER => self.dithered(peak),
            Some(Slope::Peak(peak)) => peak,
        };
        let near = wanted.clamp(level * (1.0 - MAX_DOWN), level * (1.0 + MAX_UP));
        // Jobs are whole, so the step up from one is to two.
        let from_one = level < 2.0 && near > level;
        self.level = Some(if from_one { 2.0 } else { near.max(1.0) });
        self.level
    }

    /// Discards the curve but keeps the level, after the node or its work has changed.
    pub(crate) fn forget(&mut self) {
        *self = MplEstimator {
            level: self.level,
            ..MplEstimator::default()
        };
    }

    fn dithered(&mut self, level: f64) -> f64 {
        self.up = !self.up;
        // Some proxies apply whole requests, so that a small relative step would have no effect.
        let step = (DITHER * level).max(MIN_DITHER);
        if self.up {
            level + step
        } else {
            (level - step).max(1.0)
        }
    }

    fn slope(&self) -> Option<Slope> {
        let (mean, spread) = (self.sums.mean(), self.sums.spread());
        if spread < MIN_SPREAD * mean {
            return None;
        }
        let height = self.sums.xy[0] / self.sums.x[0];
        if let Some([base, slope, curve]) = self.sums.parabola()
            && curve < 0.0
        {
            let peak = -slope / (2.0 * curve);
            let top = base + slope * peak / 2.0;
            if peak > 0.0 && peak <= BEYOND * self.most && top > 0.0 && top < 2.0 * height {
                let fewer = peak - (GIVEN_UP * top / -curve).sqrt();
                if fewer > 0.0 && fewer > mean - 3.0 * spread {
                    return Some(Slope::Peak(fewer * self.unit));
                }
            }
        }
        let rise = self.sums.slope() * mean / height;
        Some(if rise > FLAT {
            Slope::Rising
        } else if rise < -FLAT {
            Slope::Falling
        } else {
            Slope::Flat
        })
    }
}
