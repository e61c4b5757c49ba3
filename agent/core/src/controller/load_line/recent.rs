//! Rate over the last requests, and the noise in it.

use super::{DEVIATIONS, MIN_CHANGE};

/// Throughput over the most recent requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    pub(super) ended: f64,
    pub(super) seconds: f64,
}

impl Recent {
    pub(super) fn add(&mut self, ended: f64, seconds: f64, samples: f64) {
        let left = (1.0 - ended / samples).clamp(0.0, 0.9);
        self.ended = left * self.ended + ended;
        self.seconds = left * self.seconds + seconds;
    }

    /// Relative change of the rate that is more than chance.
    pub(super) fn noise(&self) -> f64 {
        (DEVIATIONS / self.ended.max(1.0).sqrt()).max(MIN_CHANGE)
    }

    pub(super) fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.ended / self.seconds
        } else {
            0.0
        }
    }
}
