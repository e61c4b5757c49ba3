//! The multiprogramming level: the fewest jobs at which a node does nearly all that it can.
//!
//! Throughput over jobs is taken for a parabola near its peak (Middle-R, section 3; Heiss and Wagner), found by
//! recursive least squares with exponential forgetting. Where it is none, or its peak is not where there were
//! samples, the level climbs the slope. A level that stands still says nothing of the curve, so it is moved a
//! little to and fro.

/// What is left of a sample's weight after a period.
const FORGETTING: f64 = 0.93;
/// No estimate before as many samples.
const SAMPLES: u32 = 4;
/// A period in which fewer jobs than this part of the level were in the node shows demand, not the node.
const FULL: f64 = 0.7;
/// The least spread of the jobs, relative to their mean, that tells a curve from noise.
const MIN_SPREAD: f64 = 0.02;
/// The peak may be so much further than the samples reach.
const BEYOND: f64 = 1.2;
/// Throughput that is given up for fewer jobs, as a part of the peak: delay falls by more.
const GIVEN_UP: f64 = 0.005;
/// The level moves by no more in a period.
const MAX_DOWN: f64 = 0.2;
const MAX_UP: f64 = 0.15;
/// By how much it is moved to learn something.
const DITHER: f64 = 0.05;
/// At least so much, in jobs.
const MIN_DITHER: f64 = 0.6;
/// A step between two periods, of jobs and of throughput, that is taken for one.
const STEP_SEEN: f64 = 0.05;
/// Rising less than this part of the throughput for each doubling of the jobs is flat.
const FLAT: f64 = 0.02;

/// Where the node is on the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slope {
    /// More jobs would do more.
    Rising,
    /// They would do as much.
    Flat,
    /// They would do less: thrashing.
    Falling,
    /// The level to go to.
    Peak(f64),
}

/// Decayed sums of powers of the jobs, and of those times throughput: the normal equations.
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

    /// The straight line: its slope.
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

/// Finds a node's multiprogramming level, one period at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MplEstimator {
    sums: Sums,
    samples: u32,
    /// Jobs of the first sample: the unit of the sums, so that their powers stay near 1.
    unit: f64,
    most: f64,
    /// The last sample.
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
    /// The level after a period that ended with `jobs` in the node and did `throughput` under a limit of `limit`
    /// jobs. `None` until there is one.
    pub(crate) fn step(&mut self, jobs: f64, throughput: f64, limit: f64) -> Option<f64> {
        let usable = jobs > 0.0 && jobs.is_finite() && throughput > 0.0 && throughput.is_finite();
        // Proxies apply it in whole jobs.
        if !usable || jobs < FULL * limit.floor().max(1.0) {
            return self.level;
        }
        // One job at a time says nothing of two: the other limit has to let them in first.
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
            // Past the peak, what was seen above it would go on saying "fewer" for long.
            self.sums = Sums::default();
            self.sums.add(x, throughput);
        }
        self.sums.add(x, throughput);
        self.most = (self.most * FORGETTING).max(x);
        // The other limit may be the tighter one.
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
        // Jobs are whole: from one up is to two.
        let from_one = level < 2.0 && near > level;
        self.level = Some(if from_one { 2.0 } else { near.max(1.0) });
        self.level
    }

    /// Forgets the curve, not the level: the node or its work has changed.
    pub(crate) fn forget(&mut self) {
        *self = MplEstimator {
            level: self.level,
            ..MplEstimator::default()
        };
    }

    fn dithered(&mut self, level: f64) -> f64 {
        self.up = !self.up;
        // Bounds are whole requests in some proxies: a small level would not move at all.
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
