//! Self-tuning: estimates the response of the delay to the bound in closed loop, and computes gains for it.
//!
//! The model is `ln y(k) = a ln y(k-1) + b₁ ln d(k) + b₂ ln d(k-1) + c`, with `y` the delay over the target and `d`
//! the bound in force. In logarithms its gain is that of the relative law, whatever the service's delay. It is
//! estimated by recursive least squares with selective forgetting (Åström and Wittenmark, *Adaptive Control*,
//! chapter 2; Parkum, Poulsen and Holst 1992): the level `c` drifts and jumps with load and capacity, the response
//! does not.

use super::PiGains;

const PARAMETERS: usize = 4;
const LEVEL: usize = 3;
/// Initial parameters: a queue that follows its bound halfway within a period, the node of the default gains.
const PRIOR: [f64; PARAMETERS] = [0.5, 0.5, 0.0, 0.0];
/// Standard deviations of `PRIOR`, and maximum ones of the estimate: a loop that stands still carries no
/// information, and must not let the next sample overturn the estimate.
const PRIOR_SPREAD: [f64; PARAMETERS] = [0.3, 0.3, 0.3, 10.0];
/// Share of a sample's weight that is kept after the next sample.
const FORGETTING: f64 = 0.99;
/// Standard deviation of the level's drift per period.
const DRIFT: f64 = 0.01;
/// Prediction error, in standard deviations, above which the level has jumped.
const JUMP: f64 = 3.0;
/// Initial standard deviation of the noise in the logarithm of the delay.
const NOISE: f64 = 0.1;
/// Range of that standard deviation.
const NOISES: (f64, f64) = (0.01, 0.5);
/// Weight of the newest prediction error.
const NEWEST: f64 = 0.05;
/// Minimum samples before gains are computed.
const SAMPLES: u32 = 8;
/// Share of the prior's variance that must be gone before gains are computed.
const KNOWN: f64 = 0.5;
/// Minimum steady-state gain that is distinguished from no response.
const MIN_ANSWER: f64 = 0.05;
/// Maximum `a` for which gains are computed.
const MAX_MEMORY: f64 = 0.95;
/// Range to which the delay / target ratio is clamped.
const RATIOS: (f64, f64) = (0.05, 20.0);
/// Time constants until a step has settled to 2 %.
const SETTLED: f64 = 4.0;
/// Share of the SLA's settling time that the linear loop may take: a load step saturates the error, which takes
/// longer.
const PART: f64 = 0.5;
/// Range of the slower pole.
const POLES: (f64, f64) = (0.4, 0.9);
/// Minimum loop gain of the proportional term, which gives damping if the model errs.
const MIN_PROPORTIONAL: f64 = 0.1;
/// Range of the tuned gains, as multiples of the default ones.
const MULTIPLES: (f64, f64) = (0.25, 2.0);
/// Maximum relative standard deviation per period that noise may cause in the bound.
const JITTER: f64 = 0.05;
/// Gain factor with which the loop must still be stable.
const GAIN_MARGIN: f64 = 1.6;
/// Gain factor with which it must be stable with one more period of dead time than the model has.
const DEAD_MARGIN: f64 = 1.2;
/// Share of the distance to the computed gains that is covered in one step.
const APPROACH: f64 = 0.2;

/// Tunes the gains for one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuner {
    found: [f64; PARAMETERS],
    covariance: [[f64; PARAMETERS]; PARAMETERS],
    noise: f64,
    samples: u32,
    /// Smoothed squared prediction errors: of the model, and of predicting the previous period's delay.
    missed: [f64; 2],
    /// Bound of the first sample, the unit of later ones, so that their logarithms are near 0.
    unit: Option<f64>,
    /// Logarithms of delay and bound in the previous period.
    before: Option<[f64; 2]>,
    gains: Option<PiGains>,
}

impl Default for Tuner {
    fn default() -> Self {
        let mut covariance = [[0.0; PARAMETERS]; PARAMETERS];
        for (i, spread) in PRIOR_SPREAD.iter().enumerate() {
            covariance[i][i] = spread * spread;
        }
        Tuner {
            found: PRIOR,
            covariance,
            noise: NOISE * NOISE,
            samples: 0,
            missed: [0.0; 2],
            unit: None,
            before: None,
            gains: None,
        }
    }
}

impl Tuner {
    /// Gains in use; `default` until others are tuned.
    pub(super) fn gains(&self, default: PiGains) -> PiGains {
        self.gains.unwrap_or(default)
    }

    /// Marks a period whose delay was not caused by the bound.
    pub(super) fn gap(&mut self) {
        self.before = None;
    }

    /// Learns from a period in which the bound was filled: `ratio` is delay / target, `periods` the SLA's settling
    /// time in periods.
    pub(super) fn note(&mut self, bound: f64, ratio: f64, periods: f64, default: PiGains) {
        let y = ratio.clamp(RATIOS.0, RATIOS.1).ln();
        let u = (bound / *self.unit.get_or_insert(bound)).ln();
        if !(y.is_finite() && u.is_finite()) {
            *self = Tuner::default();
            return;
        }
        let Some([y_before, u_before]) = self.before.replace([y, u]) else {
            return;
        };
        self.learn([y_before, u, u_before, 1.0], y);
        if let Some(wanted) = self.wanted(periods, default) {
            self.gains = Some(between(self.gains(default), wanted, APPROACH));
        }
    }

    fn learn(&mut self, x: [f64; PARAMETERS], y: f64) {
        self.forget();
        let error = y - dot(&x, &self.found);
        let mut along = times(&self.covariance, &x);
        let variance = self.noise + dot(&x, &along);
        let jumped = self.samples >= SAMPLES && error * error > JUMP * JUMP * variance;
        if jumped {
            self.covariance[LEVEL][LEVEL] += error * error;
            along = times(&self.covariance, &x);
        } else {
            let noise = self.noise + NEWEST * (error * error * self.noise / variance - self.noise);
            self.noise = noise.clamp(NOISES.0 * NOISES.0, NOISES.1 * NOISES.1);
            for (missed, error) in self.missed.iter_mut().zip([error, y - x[0]]) {
                *missed += NEWEST * (error * error - *missed);
            }
        }
        let variance = self.noise + dot(&x, &along);
        for (i, found) in self.found.iter_mut().enumerate() {
            *found += along[i] / variance * error;
        }
        for i in 0..PARAMETERS {
            for j in 0..PARAMETERS {
                self.covariance[i][j] -= along[i] * along[j] / variance;
            }
        }
        self.samples = self.samples.saturating_add(1);
        let mut numbers = self.found.iter().chain(self.covariance.iter().flatten());
        let sound = numbers.all(|number| number.is_finite())
            && (0..PARAMETERS).all(|i| self.covariance[i][i] > 0.0);
        if !sound {
            *self = Tuner {
                gains: self.gains,
                ..Tuner::default()
            };
        }
    }

    /// Increases the estimate's covariance, at most to the prior's.
    fn forget(&mut self) {
        let mut scale = [1.0; PARAMETERS];
        for (i, scale) in scale.iter_mut().enumerate() {
            let variance = self.covariance[i][i];
            if i == LEVEL {
                self.covariance[i][i] = variance + DRIFT * DRIFT;
            } else if variance > 0.0 {
                let most = PRIOR_SPREAD[i] * PRIOR_SPREAD[i] / variance;
                *scale = (1.0 / FORGETTING).min(most).max(1.0).sqrt();
            }
        }
        for (row, of_row) in self.covariance.iter_mut().zip(scale) {
            for (entry, of_column) in row.iter_mut().zip(scale) {
                *entry *= of_row * of_column;
            }
        }
    }

    /// Gains for the estimated response: the default ones if the estimate is implausible or predicts nothing, `None` if
    /// too little is known.
    fn wanted(&self, periods: f64, default: PiGains) -> Option<PiGains> {
        if self.samples < SAMPLES {
            return None;
        }
        let [a, b1, b2, _] = self.found;
        if self.missed[0] > self.missed[1] || b1 + b2 < 0.0 {
            return Some(default);
        }
        let variance = self.covariance[1][1] + self.covariance[2][2] + 2.0 * self.covariance[1][2];
        let prior = PRIOR_SPREAD[1].powi(2) + PRIOR_SPREAD[2].powi(2);
        if variance > (1.0 - KNOWN) * prior || b1 + b2 < MIN_ANSWER || a > MAX_MEMORY {
            return None;
        }
        let spread = variance.max(0.0).sqrt();
        let wanted = placed(
            Answer {
                a: a.max(0.0),
                b1,
                b2,
            },
            spread,
            periods,
        );
        let sum = default.kp * (1.0 + default.ki);
        let most = (JITTER / self.noise.sqrt()).clamp(sum, MULTIPLES.1 * sum);
        let (kp, integral) = wanted;
        let scale = (most / (kp + integral)).min(1.0);
        let within = |gain: f64, default: f64| {
            (gain * scale).clamp(MULTIPLES.0 * default, MULTIPLES.1 * default)
        };
        let kp = within(kp, default.kp);
        Some(PiGains {
            kp,
            ki: within(integral, default.kp * default.ki) / kp,
        })
    }
}

#[derive(Clone, Copy)]
struct Answer {
    a: f64,
    b1: f64,
    b2: f64,
}

/// `K_P` and `K_P K_I` that place the closed loop's poles so that it settles within `periods`, reduced until the loop
/// is stable with its margins.
///
/// With the plant taken as `b z / (z - a)`, `b = b₁ + b₂`, and the law `K_P [(K_I + 1) z - 1] / (z (z - 1))` the poles
/// are the roots of `z² - (1 + a - K_P (K_I + 1) b) z + a - K_P b`.
fn placed(answer: Answer, spread: f64, periods: f64) -> (f64, f64) {
    let Answer { a, b1, b2 } = answer;
    // The gain may be larger by its uncertainty.
    let b = b1 + b2 + spread;
    let slow = (-SETTLED / (PART * periods)).exp().clamp(POLES.0, POLES.1);
    let product = (slow * slow).min(a - MIN_PROPORTIONAL);
    let fast = product / slow;
    let mut kp = (a - product) / b;
    let mut integral = (1.0 - slow) * (1.0 - fast) / b;
    let larger = b / (b1 + b2);
    let answer = Answer {
        a,
        b1: larger * b1,
        b2: larger * b2,
    };
    for _ in 0..40 {
        if bears(answer, kp, integral) {
            break;
        }
        kp *= 0.9;
        integral *= 0.9;
    }
    (kp, integral)
}

/// Whether the loop is stable with [`GAIN_MARGIN`], and with [`DEAD_MARGIN`] and one more period of dead time. Its
/// poles are the roots of `z (z - 1) (z - a) + (g z - K_P) (b₁ z + b₂)`, `g = K_P (K_I + 1)`.
fn bears(answer: Answer, kp: f64, integral: f64) -> bool {
    let Answer { a, b1, b2 } = answer;
    let with = |margin: f64| {
        let (kp, g) = (margin * kp, margin * (kp + integral));
        [g * b1, g * b2 - kp * b1, -kp * b2]
    };
    let [c2, c1, c0] = with(GAIN_MARGIN);
    let [d2, d1, d0] = with(DEAD_MARGIN);
    is_stable([1.0, -1.0 - a + c2, a + c1, c0]) && is_stable([1.0, -1.0 - a, a + d2, d1, d0])
}

/// Whether all roots are within the unit circle (Schur and Cohn). Coefficients from the highest power.
fn is_stable<const N: usize>(mut coefficients: [f64; N]) -> bool {
    for degree in (1..N).rev() {
        let reflection = coefficients[degree] / coefficients[0];
        if reflection.is_nan() || reflection.abs() >= 1.0 {
            return false;
        }
        let before = coefficients;
        for i in 0..degree {
            coefficients[i] = before[i] - reflection * before[degree - i];
        }
    }
    true
}

/// Interpolates `kp` and `kp · ki`; `part` is 0 for `from`, 1 for `to`.
fn between(from: PiGains, to: PiGains, part: f64) -> PiGains {
    let mean = |from: f64, to: f64| from + part * (to - from);
    let kp = mean(from.kp, to.kp);
    PiGains {
        kp,
        ki: mean(from.kp * from.ki, to.kp * to.ki) / kp,
    }
}

fn dot(a: &[f64; PARAMETERS], b: &[f64; PARAMETERS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn times(
    matrix: &[[f64; PARAMETERS]; PARAMETERS],
    vector: &[f64; PARAMETERS],
) -> [f64; PARAMETERS] {
    matrix.map(|row| dot(&row, vector))
}
