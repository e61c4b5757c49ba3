//! What was promised, and how far a period was from it.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// Which figure of the delay distribution is held at the SLA.
///
/// The papers hold the mean, which leaves about half of the work late when the mean stands at the
/// SLA. Timely throughput wants a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The mean delay (Chronos-C, section 3).
    Mean,
    /// A quantile of the delay, between 0 and 1 exclusive.
    Quantile(f64),
}

/// `S_t` and `T_v` of Chronos-C section 3, and how they are held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sla {
    /// `S_t`: the service delay promised.
    pub delay: Seconds,
    /// `T_v`: the time within which a transient must be back at `S_t`.
    pub settling: Seconds,
    /// What is held at `S_t`.
    pub objective: Objective,
    /// Set point as a fraction of `S_t`, in (0, 1]: the room left for noise above it.
    pub set_point: f64,
}

impl Sla {
    /// The delay the controller aims at: `S_t` times the set point.
    pub fn target(&self) -> Seconds {
        Seconds(self.delay.get() * self.set_point)
    }

    /// The error relative to the target, `(S - s) / S`, clamped to [-1, 1] so that one period of
    /// extreme delay cannot outweigh the ones around it. Positive when there is room.
    pub fn relative_error(&self, delay: Seconds) -> f64 {
        let target = self.target().get();
        ((target - delay.get()) / target).clamp(-1.0, 1.0)
    }
}
