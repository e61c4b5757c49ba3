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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const DEFAULT: PiGains = PiGains { kp: 0.4, ki: 0.5 };

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
    }

    /// (z² - 2 r cos(w) z + r²) times the polynomial.
    fn with_pair<const N: usize, const M: usize>(rest: [f64; N], r: f64, w: f64) -> [f64; M] {
        let pair = [1.0, -2.0 * r * w.cos(), r * r];
        let mut product = [0.0; M];
        for (i, a) in rest.iter().enumerate() {
            for (j, b) in pair.iter().enumerate() {
                product[i + j] += a * b;
            }
        }
        product
    }

    proptest! {
        #[test]
        fn a_polynomial_is_stable_if_its_largest_root_is_within_the_unit_circle(
            r in 0.0..1.5_f64, w in 0.0..3.1_f64, q in 0.0..1.5_f64, v in 0.0..3.1_f64, real in -1.5..1.5_f64, scale in 0.1..10.0_f64,
        ) {
            let largest = r.max(q);
            prop_assume!([largest, r.max(real.abs())].iter().all(|it| (it - 1.0).abs() > 1e-3));
            let cubic: [f64; 4] = with_pair([scale, -scale * real], r, w);
            prop_assert_eq!(is_stable(cubic), r.max(real.abs()) < 1.0);
            let square: [f64; 3] = with_pair([scale], q, v);
            let quartic: [f64; 5] = with_pair(square, r, w);
            prop_assert_eq!(is_stable(quartic), largest < 1.0);
        }
    }

    #[test]
    fn a_root_on_the_unit_circle_is_not_stable() {
        assert!(is_stable([1.0, -0.999]));
        assert!(!is_stable([1.0, -1.0]) && !is_stable([2.0, 2.0]));
        assert!(!is_stable([1.0, f64::NAN, 0.0]));
    }

    /// Gains, and the margins' polynomials, were computed with the roots themselves.
    #[test]
    fn poles_are_placed_and_gains_reduced_until_the_loop_bears_its_margins() {
        for [a, b1, b2, spread, periods, kp, integral] in [
            [0.5, 0.5, 0.0, 0.0, 20.0, 0.2, 0.265_9],
            [0.8, 0.4, 0.0, 0.1, 20.0, 0.701_342, 0.217_378],
            [0.3, 0.3, 0.2, 0.05, 60.0, 0.181_818, 0.175_092],
            [0.6, 0.1, 0.6, 0.0, 8.0, 0.371_165, 0.303_681],
            [0.9, 0.2, 0.3, 0.1, 3.0, 0.477_819, 0.232_452],
            [0.0, 1.0, 0.2, 0.0, 10.0, 0.083_333, 0.561_021],
            [0.2, 0.1, 0.9, 0.1, 20.0, 0.090_909, 0.254_998],
        ] {
            let found = placed(Answer { a, b1, b2 }, spread, periods);
            let off = (found.0 - kp).abs().max((found.1 - integral).abs());
            assert!(off < 1e-6, "{found:?}");
        }
    }

    /// A node whose delay follows the bound by the model, under a bound that varies.
    fn taught(a: f64, b1: f64, b2: f64, samples: usize) -> Tuner {
        let mut tuner = Tuner::default();
        let (mut y, mut before) = (0.0, 0.0);
        for k in 0..samples {
            let u = 0.3 * (0.7 * k as f64).sin() + 0.2 * (2.3 * k as f64).cos();
            y = a * y + b1 * u + b2 * before + 0.02;
            before = u;
            tuner.note(50.0 * u.exp(), y.exp(), 20.0, DEFAULT);
        }
        tuner
    }

    #[test]
    fn the_response_is_learned() {
        for (a, b1, b2) in [(0.5, 0.5, 0.0), (0.2, 0.7, 0.3), (0.7, 0.1, 0.4)] {
            let tuner = taught(a, b1, b2, 300);
            for (found, wanted) in tuner.found.iter().zip([a, b1, b2]) {
                assert!((found - wanted).abs() < 0.02, "{:?}", tuner.found);
            }
            assert_eq!(tuner.samples, 299);
            assert!(tuner.missed[0] < 0.01 * tuner.missed[1]);
            let spread = tuner.covariance[1][1] + tuner.covariance[2][2];
            assert!(spread < 0.1 * PRIOR_SPREAD[1].powi(2), "{spread}");
            near(tuner.noise, NOISES.0 * NOISES.0);
        }
    }

    #[test]
    fn gains_approach_those_placed_for_the_response() {
        let tuner = taught(0.2, 0.7, 0.3, 300);
        let wanted = tuner.wanted(20.0, DEFAULT).unwrap();
        let found = tuner.gains(DEFAULT);
        assert!((found.kp - wanted.kp).abs() < 1e-3 && (found.ki - wanted.ki).abs() < 1e-3);
        let [a, b1, b2, _] = tuner.found;
        let variance =
            tuner.covariance[1][1] + tuner.covariance[2][2] + 2.0 * tuner.covariance[1][2];
        let (kp, integral) = placed(Answer { a, b1, b2 }, variance.sqrt(), 20.0);
        // Not below a quarter of the default.
        near(wanted.kp, kp.max(0.25 * DEFAULT.kp));
        near(wanted.kp * wanted.ki, integral.clamp(0.05, 0.4));
    }

    #[test]
    fn a_step_goes_a_fifth_of_the_way() {
        let to = PiGains { kp: 0.9, ki: 1.0 };
        let found = between(DEFAULT, to, APPROACH);
        near(found.kp, 0.5);
        near(found.kp * found.ki, 0.34);
    }

    #[test]
    fn gains_stay_where_little_is_known() {
        assert_eq!(Tuner::default().gains(DEFAULT), DEFAULT);
        assert_eq!(taught(0.5, 0.5, 0.0, 8).wanted(20.0, DEFAULT), None);
        assert!(taught(0.5, 0.5, 0.0, 60).wanted(20.0, DEFAULT).is_some());
        // A delay that does not depend on the bound, or that hardly forgets.
        assert_eq!(taught(0.5, 0.0, 0.01, 300).wanted(20.0, DEFAULT), None);
        assert_eq!(taught(0.97, 0.1, 0.1, 300).wanted(20.0, DEFAULT), None);
        // One that falls as the bound rises is no model.
        let wanted = taught(0.5, -0.3, -0.2, 300).wanted(20.0, DEFAULT);
        assert_eq!(wanted, Some(DEFAULT));
    }

    #[test]
    fn nothing_is_learned_across_a_gap_or_from_what_is_no_number() {
        let mut tuner = taught(0.5, 0.5, 0.0, 20);
        tuner.gap();
        let found = tuner.found;
        tuner.note(50.0, 1.0, 20.0, DEFAULT);
        assert_eq!((tuner.samples, tuner.found), (19, found));
        tuner.note(50.0, 1.0, 20.0, DEFAULT);
        assert_eq!(tuner.samples, 20);
        tuner.note(f64::NAN, 1.0, 20.0, DEFAULT);
        assert_eq!((tuner.samples, tuner.found), (0, PRIOR));
    }
}
