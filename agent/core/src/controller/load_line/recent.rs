//! Rate over the last requests, and the noise in it.

use super::{DEVIATIONS, MIN_CHANGE};

/// Throughput over the most recent requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    pub(super) ended: f64,
    pub(super) seconds: f64,
}

impl Recent {
    /// Adds a period. Of what was there before a tenth or more is forgotten.
    pub(super) fn add(&mut self, ended: f64, seconds: f64, samples: f64) {
        self.add_to(ended, seconds, (1.0 - ended / samples).clamp(0.0, 0.9));
    }

    /// Adds a period, and forgets only what exceeds `samples`: for a bound that stays as it is.
    pub(super) fn add_slowly(&mut self, ended: f64, seconds: f64, samples: f64) {
        self.add_to(ended, seconds, (1.0 - ended / samples).max(0.0));
    }

    fn add_to(&mut self, ended: f64, seconds: f64, left: f64) {
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
