//! Closed loop of a PI controller and a model: poles, margins, and step response.

use std::f64::consts::PI;

use nalgebra::Complex;
use plimsoll_core::{PiForm, PiGains};
use serde::Serialize;

use crate::{
    arx::Arx,
    polynomial::{Polynomial, RootError},
};

/// Points of the unit circle at which margins are first searched.
const POINTS: usize = 500;
/// Bisections of an interval between two of them, down to the last digits.
const HALVINGS: usize = 60;
/// Distance from its final value, as a share of the step, within which the response has settled.
pub const SETTLED: f64 = 0.02;
/// Minimum periods of a step response.
const MIN_PERIODS: usize = 20;
/// Maximum periods of a step response.
const MAX_PERIODS: usize = 10_000;

/// Control loop: `C(z) G(z)` open, with the target as its input when closed.
#[derive(Clone, Debug)]
pub struct ControlLoop {
    /// Transfer function of the controller, from the error to the bound.
    controller: (Polynomial, Polynomial),
    plant: (Polynomial, Polynomial),
    /// Open loop: `C(z) G(z)`.
    open: (Polynomial, Polynomial),
    /// Characteristic polynomial of the closed loop.
    characteristic: Polynomial,
}

/// Stability margins of a stable loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Margins {
    /// Gain margin, as a factor; `None` if it is unlimited.
    pub gain: Option<f64>,
    /// Phase margin in degrees; `None` if the loop's gain never is 1.
    pub phase_degrees: Option<f64>,
    /// Modulus margin: minimum distance of `C(z) G(z)` from -1 on the unit circle, 1 / peak sensitivity.
    pub modulus: f64,
}

/// Response of a stable loop at rest to a step of its target from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Delay per period, from the step on.
    pub delay: Vec<f64>,
    /// Bound per period, likewise.
    pub bound: Vec<f64>,
    /// Overshoot of the delay, as a share of the step.
    pub overshoot: f64,
    /// Periods until the delay stays within 2 % of the step.
    pub settling_periods: usize,
}

impl ControlLoop {
    /// Creates the loop of a model with Chronos eq. 7, or with Chronos-C eq. 5 taken literally.
    pub fn new(plant: &Arx, gains: PiGains, form: PiForm) -> Self {
        // K_P [(K_I + 1) z - 1] / (z - 1), from eq. 8.
        let numerator = Polynomial::new(&[gains.kp * (gains.ki + 1.0), -gains.kp]);
        let integrator = Polynomial::new(&[1.0, -1.0]);
        let controller = match form {
            PiForm::Velocity => (numerator, integrator),
            // The law's output is added to the last step, and the step to the bound.
            PiForm::DoubleIntegrating => (
                numerator.times(&Polynomial::new(&[1.0, 0.0])),
                integrator.times(&integrator),
            ),
        };
        let plant = (plant.numerator(), plant.denominator());
        let open = (controller.0.times(&plant.0), controller.1.times(&plant.1));
        Self {
            characteristic: open.0.plus(&open.1),
            controller,
            plant,
            open,
        }
    }

    /// Poles of the closed loop, the slowest first.
    pub fn poles(&self) -> Result<Vec<Complex<f64>>, RootError> {
        self.characteristic.roots()
    }

    /// Whether all of these are inside the unit circle.
    pub fn is_stable(poles: &[Complex<f64>]) -> bool {
        poles.iter().all(|pole| pole.norm() < 1.0)
    }

    /// Margins, meaningful for a stable loop only.
    pub fn margins(&self) -> Margins {
        let at = |point: usize| PI * (point as f64 / POINTS as f64).powi(2);
        let angles: Vec<f64> = (1..=POINTS).map(at).collect();
        let open: Vec<Complex<f64>> = angles.iter().map(|angle| self.at(*angle)).collect();
        let mut gain: Option<f64> = None;
        let mut phase_degrees: Option<f64> = None;
        let mut note_gain = |value: Complex<f64>| {
            let factor = -1.0 / value.re;
            if factor > 1.0 {
                gain = Some(gain.map_or(factor, |least| least.min(factor)));
            }
        };
        for (pair, angle) in open.windows(2).zip(angles.windows(2)) {
            if pair[0].im * pair[1].im < 0.0 {
                note_gain(self.at(root(angle, |angle| self.at(angle).im)));
            }
            if (pair[0].norm() - 1.0) * (pair[1].norm() - 1.0) < 0.0 {
                let crossing = self.at(root(angle, |angle| self.at(angle).norm() - 1.0));
                let margin = (-crossing).arg().abs().to_degrees();
                phase_degrees = Some(phase_degrees.map_or(margin, |least| least.min(margin)));
            }
        }
        // The last point, z = -1, is real.
        if let Some(last) = open.last() {
            note_gain(*last);
        }
        Margins {
            gain,
            phase_degrees,
            modulus: self.modulus_margin(&angles, &open),
        }
    }

    fn modulus_margin(&self, angles: &[f64], open: &[Complex<f64>]) -> f64 {
        let distances: Vec<f64> = open.iter().map(|open| (open + 1.0).norm()).collect();
        let nearest = (0..distances.len())
            .min_by(|x, y| distances[*x].total_cmp(&distances[*y]))
            .unwrap_or(0);
        let (mut low, mut high) = (
            angles[nearest.saturating_sub(1)],
            angles[(nearest + 1).min(angles.len() - 1)],
        );
        let distance = |angle: f64| (self.at(angle) + 1.0).norm();
        for _ in 0..HALVINGS {
            let third = (high - low) / 3.0;
            match distance(low + third) < distance(high - third) {
                true => high -= third,
                false => low += third,
            }
        }
        distance((low + high) / 2.0).min(distances[nearest])
    }

    /// `C(z) G(z)` at an angle of the unit circle.
    fn at(&self, angle: f64) -> Complex<f64> {
        let z = Complex::from_polar(1.0, angle);
        self.open.0.at(z) / self.open.1.at(z)
    }

    /// False if the step response overshoots by more than `overshoot`, or has not settled after `periods`; true if this
    /// does not show soon after.
    pub(crate) fn may_settle(&self, periods: usize, overshoot: f64) -> bool {
        let seen = periods.min(MAX_PERIODS).saturating_add(MIN_PERIODS);
        let mut answer = StepResponse::new(&self.open.0, &self.characteristic);
        (0..seen).all(|k| {
            let delay = answer.next();
            delay <= 1.0 + overshoot && (k < periods || (delay - 1.0).abs() <= SETTLED)
        })
    }

    /// Step response; `poles` are those of [`Self::poles`], all inside the unit circle.
    pub fn step(&self, poles: &[Complex<f64>]) -> Step {
        let slowest = poles.first().map_or(0.0, |pole| pole.norm());
        // Twice the time in which the slowest mode decays to a thousandth.
        let periods = 2.0 * 1e-3f64.ln() / slowest.max(f64::MIN_POSITIVE).ln();
        let periods = (periods as usize).clamp(MIN_PERIODS, MAX_PERIODS);
        let delay = StepResponse::new(&self.open.0, &self.characteristic).take(periods);
        let to_bound = self.controller.0.times(&self.plant.1);
        let bound = StepResponse::new(&to_bound, &self.characteristic).take(periods);
        let most = delay.iter().fold(0.0f64, |most, value| most.max(*value));
        let unsettled = delay.iter().rposition(|s| (s - 1.0).abs() > SETTLED);
        Step {
            overshoot: (most - 1.0).max(0.0),
            settling_periods: unsettled.map_or(0, |last| last + 1),
            delay,
            bound,
        }
    }
}

/// Root of a function with opposite signs at the ends of an interval.
fn root(interval: &[f64], of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (interval[0], interval[1]);
    let sign = of(low).signum();
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match of(middle).signum() == sign {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// Response of `numerator / denominator` to a step from 0 to 1, period by period.
struct StepResponse<'a> {
    numerator: &'a [f64],
    denominator: &'a [f64],
    lag: usize,
    answers: Vec<f64>,
}

impl<'a> StepResponse<'a> {
    fn new(numerator: &'a Polynomial, denominator: &'a Polynomial) -> Self {
        Self {
            numerator: numerator.coefficients(),
            denominator: denominator.coefficients(),
            lag: denominator.degree() - numerator.degree(),
            answers: Vec::new(),
        }
    }

    fn next(&mut self) -> f64 {
        let felt = (self.answers.len() + 1).saturating_sub(self.lag);
        let input: f64 = self.numerator.iter().take(felt).sum();
        let past = self.denominator[1..].iter().zip(self.answers.iter().rev());
        let fed_back: f64 = past.map(|(a, y)| a * y).sum();
        let answer = (input - fed_back) / self.denominator[0];
        self.answers.push(answer);
        answer
    }

    fn take(mut self, periods: usize) -> Vec<f64> {
        for _ in 0..periods {
            self.next();
        }
        self.answers
    }
}
