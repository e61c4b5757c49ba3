//! The SLA, and a delay's distance from it.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// Statistic of the delay distribution that is held at the SLA.
///
/// The papers hold the mean, with which about half of the work is late. Timely throughput needs a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The mean delay (Chronos-C, section 3).
    Mean,
    /// A quantile of the delay, between 0 and 1 (exclusive).
    Quantile(f64),
}

/// SLA of a service: `S_t` and `T_v` of Chronos-C section 3, and the statistic and set point for them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sla {
    /// `S_t`: promised service delay.
    pub delay: Seconds,
    /// `T_v`: time within which a transient must have settled at `S_t`.
    pub settling: Seconds,
    /// Statistic that is held at `S_t`.
    pub objective: Objective,
    /// Set point as a fraction of `S_t`, in (0, 1]; below 1 it leaves room for noise.
    pub set_point: f64,
}

impl Sla {
    /// Target delay of the controller: `S_t` times the set point.
    pub fn target(&self) -> Seconds {
        Seconds(self.delay.get() * self.set_point)
    }

    /// Error relative to the target, `(S - s) / S`, clamped to [-1, 1] so that one period of extreme delay does not
    /// outweigh others. Positive below the target.
    pub fn relative_error(&self, delay: Seconds) -> f64 {
        let target = self.target().get();
        ((target - delay.get()) / target).clamp(-1.0, 1.0)
    }
}
