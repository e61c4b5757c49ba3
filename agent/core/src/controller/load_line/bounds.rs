//! Bounds from what was learned.

use super::{
    FIRST_RISE, FIRST_SIGN, FLOOD_JOBS, FLOOD_SAMPLES, Frame, LoadLine, MIN_CORRECTION, MIN_JOBS,
    MIN_OF_LATE, Mode, OPEN_HEADROOM, OPEN_JOBS, RESERVE_JOBS, RESERVE_OF_ROOT, SEEN_JOBS,
};
use crate::{Seconds, Sla};

impl LoadLine {
    /// Bound in jobs while no queue has been seen.
    pub(super) fn open(&self, frame: &Frame) -> f64 {
        let shown = self.shown_rate * self.attainable(&frame.sla);
        let least = if self.has_shown() {
            SEEN_JOBS
        } else {
            frame.hint_jobs.unwrap_or(OPEN_JOBS)
        };
        least.max(OPEN_HEADROOM * frame.peak_jobs).max(shown)
    }

    /// Whether enough requests are behind the recent rate to use it.
    pub(super) fn has_shown(&self) -> bool {
        self.recent.ended >= FLOOD_SAMPLES
    }

    /// Fewest jobs that keep the node busy; if unknown, those that finish within the target at the recent rate. `None` if
    /// nothing has ended yet.
    pub(in crate::controller) fn cautious(&self, sla: &Sla) -> Option<f64> {
        let target = self.attainable(sla);
        match self.rate {
            Some(rate) => Some(self.standing(rate, target)),
            None if self.recent.ended > 0.0 => Some((self.recent.rate() * target).max(MIN_OF_LATE)),
            None => None,
        }
    }

    /// Whether so many jobs are the first sign of a queue, at the highest recent rate, while there is no limit yet.
    pub(in crate::controller) fn is_flooded(&self, jobs: f64, sla: &Sla) -> bool {
        let within = if self.has_shown() {
            FIRST_SIGN * self.shown_rate * self.attainable(sla)
        } else {
            0.0
        };
        self.rate.is_none() && jobs > within.max(FLOOD_JOBS)
    }

    /// Bound in jobs for bursts: those that finish within the target at this rate, at least those that keep it busy.
    pub(super) fn burst(&self, rate: f64, target: f64) -> f64 {
        (rate * target / self.spread).max(self.busy(rate, target))
    }

    /// Fewest jobs that keep the node busy: the needed ones and the reserve.
    pub(super) fn busy(&self, rate: f64, target: f64) -> f64 {
        let need = self.need(rate, target);
        (need + self.reserve * (RESERVE_JOBS + RESERVE_OF_ROOT * need.sqrt())).max(1.0)
    }

    /// Bound in jobs for a standing queue: `busy` with the correction, at least `least`.
    pub(super) fn standing(&self, rate: f64, target: f64) -> f64 {
        (self.busy(rate, target) * self.correction).max(self.least(rate, target))
    }

    /// Correction below which the standing bound no longer falls.
    pub(super) fn least_correction(&self, target: f64) -> f64 {
        match (self.mode, self.rate) {
            (Mode::Standing, Some(rate)) => {
                let part = self.least(rate, target) / self.busy(rate, target);
                part.clamp(MIN_CORRECTION, 1.0)
            }
            _ => MIN_CORRECTION,
        }
    }

    /// Minimum standing bound in jobs: fewer would make nothing faster.
    pub(super) fn least(&self, rate: f64, target: f64) -> f64 {
        MIN_JOBS.min(rate * target).max(self.need(rate, target))
    }

    /// Jobs in a node without a queue at this rate.
    pub(super) fn need(&self, rate: f64, target: f64) -> f64 {
        rate * self.unloaded.unwrap_or(target).min(target)
    }

    /// The objective's delay that the law aims at, in seconds: the target or, if a node without a queue exceeds that,
    /// what it can keep.
    pub(super) fn attainable(&self, sla: &Sla) -> f64 {
        let is_certain = self.rate.is_some() && self.is_measured();
        let unloaded = self.unloaded_objective.filter(|_| is_certain);
        let unloaded = unloaded.unwrap_or(0.0);
        sla.target().get().max(FIRST_RISE * unloaded)
    }

    /// Time without a finished request after which a node with jobs counts as stalled: longer than requests took.
    pub(in crate::controller) fn patience(&self, sla: &Sla) -> Seconds {
        let took = self.measured.map_or(0.0, Seconds::get);
        Seconds(took.max(self.attainable(sla)))
    }
}
