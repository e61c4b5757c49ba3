//! The control laws: from an error to the bound wanted next.

use super::settings::{Law, PiForm, PiGains};

/// What a law remembers between steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LawState {
    error_before: Option<f64>,
    step_before: f64,
}

/// The double integrator's relative step is kept inside these, or one bad period empties the node.
const DOUBLE_STEP: std::ops::RangeInclusive<f64> = -0.5..=1.0;

impl LawState {
    /// The bound this law wants. `error` is relative to the target, `delay_ratio` is delay over target.
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

    /// `K_P [(K_I + 1) e(k) - e(k-1)]`; after a gap `e(k-1)` is taken as `e(k)`, which is bumpless.
    fn pi_change(&mut self, gains: PiGains, error: f64) -> f64 {
        let before = self.error_before.unwrap_or(error);
        self.error_before = Some(error);
        gains.kp * ((gains.ki + 1.0) * error - before)
    }

    /// Notes the error of a period in which the bound was held.
    pub(super) fn hold(&mut self, error: Option<f64>) {
        self.error_before = error.or(self.error_before);
        self.step_before = 0.0;
    }

    /// Forgets the past, after a gap or an operator's value.
    pub(super) fn reset(&mut self) {
        *self = LawState::default();
    }
}
