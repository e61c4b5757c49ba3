//! Detection of a standing queue, and the search for the fewest jobs that keep the node busy.

use super::{
    CONTENDED, CONTENTION_SEEN, CREDIBLE, DESCENT, DRAINED, DRAINED_UNKNOWN, Frame, GROWTH, HARMED,
    LEVEL_SAMPLES, LOW, LoadLine, MAX_PAUSE, Mode, PRESSED, PROBE, Period, Probed, RATE_SAMPLES,
    RELEASED, REMEMBERED, RESERVE_DECAY, SAMPLES, STANDING_KNOWN, STANDING_UNKNOWN, STARVED,
    UNHARMED,
};
use crate::Seconds;

impl LoadLine {
    /// Updates the mode and, in [`Mode::Standing`], the reserve. Returns whether the bound starved the node.
    pub(super) fn change_mode(
        &mut self,
        period: &Period,
        rate: f64,
        is_full: bool,
        use_of: f64,
        frame: &Frame,
    ) -> bool {
        let target = self.attainable(&frame.sla);
        match self.mode {
            Mode::Burst => {
                if is_full {
                    self.burst_rate
                        .add(period.ended, period.seconds, RATE_SAMPLES);
                }
                let needed = if self.since_standing < REMEMBERED || period.refused.is_some() {
                    STANDING_KNOWN
                } else {
                    STANDING_UNKNOWN
                };
                let pressed = period.refused.is_none_or(|refused| refused >= PRESSED);
                if self.full_periods >= needed && pressed {
                    self.mode = Mode::Standing;
                    if self.since_standing >= REMEMBERED {
                        self.restart_standing();
                        self.best = 0.0;
                    }
                    self.since_standing = 0;
                    if frame.is_applied && !self.is_measured() && self.pauses == 0 {
                        // If that is too low, the fall of throughput shows it at once.
                        let low = LOW * target;
                        self.unloaded = Some(self.unloaded.map_or(low, |known| known.min(low)));
                    }
                }
                false
            }
            Mode::Standing => {
                let is_over = match period.refused {
                    Some(refused) if refused < RELEASED => true,
                    Some(refused) if refused >= PRESSED => false,
                    Some(_) => use_of < DRAINED,
                    None => self.drained_periods >= DRAINED_UNKNOWN,
                };
                if is_over {
                    self.end_probe();
                    self.mode = Mode::Burst;
                    self.full_periods = 0;
                    return false;
                }
                self.since_standing = 0;
                if !frame.is_applied {
                    // Throughput is no response to a bound that is not applied.
                    let here = self.standing_rate.rate();
                    if here > rate * (1.0 + self.standing_rate.noise()) {
                        self.observe_rate(here);
                    }
                    return false;
                }
                if self.unloaded_seen() && is_full && self.is_contended() {
                    self.reserve = self.reserve.min(CONTENDED);
                }
                let here = self.standing_rate.rate();
                let starved = here < rate * (1.0 - STARVED * self.standing_rate.noise());
                if starved {
                    self.give_back(here, rate, frame);
                } else {
                    if !self.probe(here, rate, frame) {
                        self.descend(here, target);
                    }
                    if here > rate * (1.0 + self.standing_rate.noise()) {
                        self.observe_rate(here);
                    }
                }
                starved
            }
        }
    }

    /// Raises the bound again after throughput fell with it.
    fn give_back(&mut self, here: f64, rate: f64, frame: &Frame) {
        let target = self.attainable(&frame.sla);
        let slow = self
            .standing_window
            .surely_over(Seconds(target), &frame.sla);
        let slow = slow
            .map(Seconds::get)
            .filter(|_| self.is_credible(frame.bound_jobs / here));
        self.restart_standing();
        if let Some(observed) = self.observed_rate {
            // The node did not reach the supposed rate.
            self.observe_rate(observed.max(here));
            return;
        }
        // Too few jobs for a queue, and late all the same: requests take that long by themselves.
        if let (Some(slow), false) = (slow, self.is_measured()) {
            self.prove(slow, here, frame);
            return;
        }
        self.unloaded_objective = self.unloaded_objective.or(slow);
        if self.is_measured() {
            self.reserve *= GROWTH;
        } else {
            let more = (GROWTH - 1.0) * self.busy(rate, target) / rate;
            self.unloaded = self.unloaded.map(|known| known + more);
            self.rest_from_descent();
        }
        if self.busy(rate, target) >= rate * target / self.spread {
            // The bound is already that of a burst, so the node itself became slower.
            self.observe_rate(here);
            self.reserve = 1.0;
        }
    }

    /// Whether requests may take so long by themselves: not where they were done in much less, whatever the load.
    fn is_credible(&self, delay: f64) -> bool {
        self.fastest
            .is_none_or(|fastest| delay <= CREDIBLE * fastest)
    }

    /// Ends a probe without a result.
    fn end_probe(&mut self) {
        if let Some(before) = self.probed.take() {
            self.unloaded = Some(before.unloaded);
        }
    }

    /// Records delays of a node that had too few jobs for a queue.
    fn prove(&mut self, objective: f64, here: f64, frame: &Frame) {
        self.unloaded = Some(frame.bound_jobs / here);
        self.unloaded_objective = Some(objective);
        self.is_proven = true;
        self.probed = None;
        self.rest_from_descent();
    }

    /// Tries more jobs where requests are late although as few are admitted as an assumed unloaded delay needs: if
    /// throughput rises with them, there was no queue, and requests take that long by themselves. Returns whether a
    /// probe goes on.
    fn probe(&mut self, here: f64, rate: f64, frame: &Frame) -> bool {
        if self.is_measured() || self.standing_rate.ended < SAMPLES as f64 {
            return self.probed.is_some();
        }
        let target = Seconds(self.attainable(&frame.sla));
        let slow = self.standing_window.surely_over(target, &frame.sla);
        match self.probed.take() {
            Some(before) => match slow {
                Some(slow)
                    if here > before.rate * (1.0 + self.standing_rate.noise())
                        && self.is_credible(frame.bound_jobs / here) =>
                {
                    self.prove(slow.get(), here, frame);
                }
                _ => {
                    self.unloaded = Some(before.unloaded);
                    self.rest_from_descent();
                }
            },
            None if self.pause == 0 && slow.is_some() => {
                let unloaded = self.unloaded.unwrap_or(0.0);
                self.probed = Some(Probed {
                    unloaded,
                    rate: here,
                });
                self.unloaded = Some(unloaded + (PROBE - 1.0) * frame.bound_jobs / rate);
            }
            None => return false,
        }
        self.restart_standing();
        true
    }

    /// Tries fewer jobs after throughput did not fall, while the unloaded delay is not known.
    pub(super) fn descend(&mut self, here: f64, target: f64) {
        if self.reserve > 1.0 {
            self.reserve = (self.reserve * RESERVE_DECAY).max(1.0);
        }
        self.pause = self.pause.saturating_sub(1);
        if self.unloaded_seen() || self.pause > 0 || self.standing_rate.ended < LEVEL_SAMPLES {
            return;
        }
        if self.unloaded.unwrap_or(0.0) <= LOW * target && !self.is_contended() {
            return;
        }
        let by = if here >= self.best * (1.0 - UNHARMED) {
            self.best = self.best.max(here);
            DESCENT
        } else if here < self.best * (1.0 - HARMED) {
            self.rest_from_descent();
            1.0 / DESCENT
        } else {
            return;
        };
        self.unloaded = self.unloaded.map(|known| known * by);
        self.restart_standing();
    }

    /// Whether the node finishes clearly more with fewer jobs (contention).
    pub(super) fn is_contended(&self) -> bool {
        let (few, many) = (&self.standing_rate, &self.burst_rate);
        let chance = few.noise().hypot(many.noise());
        many.ended > 0.0 && few.rate() > many.rate() * (1.0 + (0.5 * chance).max(CONTENTION_SEEN))
    }

    pub(super) fn rest_from_descent(&mut self) {
        self.pauses = (2 * self.pauses + 4).min(MAX_PAUSE);
        self.pause = self.pauses;
    }
}
