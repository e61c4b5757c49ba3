//! Control laws: each computes the next bound from the control error.

use super::settings::{Law, PiForm, PiGains};

/// State of a law between steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LawState {
    error_before: Option<f64>,
    step_before: f64,
}

/// Limits of the double integrator's relative step; without them, one bad period would empty the node.
const DOUBLE_STEP: std::ops::RangeInclusive<f64> = -0.5..=1.0;

impl LawState {
    /// Next bound by this law, in cost units. `error` is relative to the target, `delay_ratio` is delay / target.
    pub(super) fn wanted(
        &mut self,
        law: &Law,
        bound: f64,
        nominal: f64,
        error: f64,
        delay_ratio: f64,
    ) -> f64 {
        match *law {
            Law::Pi { gains, form } => {
                let change = self.pi_change(gains, error);
                let step = match form {
                    PiForm::Velocity => change,
                    PiForm::DoubleIntegrating => {
                        (self.step_before + change).clamp(*DOUBLE_STEP.start(), *DOUBLE_STEP.end())
                    }
                };
                self.step_before = step;
                bound * (1.0 + step)
            }
            Law::InverseDelay => nominal / delay_ratio.max(f64::MIN_POSITIVE),
            Law::Proportional { gain } => nominal * (1.0 + gain * error),
            Law::Fixed | Law::LoadLine => nominal,
        }
    }

    /// `K_P [(K_I + 1) e(k) - e(k-1)]`. After a gap, `e(k-1)` is taken as `e(k)`, for a bumpless transfer.
    fn pi_change(&mut self, gains: PiGains, error: f64) -> f64 {
        let before = self.error_before.unwrap_or(error);
        self.error_before = Some(error);
        gains.kp * ((gains.ki + 1.0) * error - before)
    }

    /// Records the error of a period in which the bound was held.
    pub(super) fn hold(&mut self, error: Option<f64>) {
        self.error_before = error.or(self.error_before);
        self.step_before = 0.0;
    }

    /// Clears the state, after a gap or an operator's value.
    pub(super) fn reset(&mut self) {
        *self = LawState::default();
    }
}
