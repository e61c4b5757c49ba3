//! Learning from each period: rate, unloaded delay, spread and correction.

use super::{
    CLEARLY, DISOBEYED, FASTER, FASTEST_GROWTH, FIRST_JOBS, FIRST_RISE, FIRST_SIGN, FULL, Frame,
    LIGHT, LOWERED, LoadLine, MIN_SEEN, Mode, PERIODS, Period, RAISED, RATE_SAMPLES,
    RESTED_PERIODS, SAMPLES, SLOWER, SPREAD_WEIGHT, SPREADS, UNHURRIED, UNQUEUED,
};
use crate::{Cost, DelayHistogram, Observation, Seconds, Sla};

impl LoadLine {
    pub(super) fn period(&mut self, seen: &Observation, late: Option<&DelayHistogram>) -> Period {
        let late_count = late.map_or(0, DelayHistogram::count) as f64;
        let ended = seen.delays.count() as f64 + late_count;
        let sum = seen.delays.sum().get() + late.map_or(0.0, |late| late.sum().get());
        // Requests that took this long were already running in the empty periods before.
        let empty = std::mem::take(&mut self.empty_seconds).min(sum / ended);
        let seconds = seen.period.get().max(1e-3) + empty;
        let by_little = seen.mean_jobs.unwrap_or(sum / seconds);
        let before = self.jobs_before;
        self.jobs_before = seen.jobs;
        let counted = seen
            .jobs
            .map_or(0.0, |jobs| (jobs + before.unwrap_or(jobs)) / 2.0);
        let jobs = by_little.max(counted);
        let rate = ended / seconds;
        Period {
            ended,
            seconds,
            rate,
            jobs,
            delay: jobs / rate,
            refused: seen.refused_share,
        }
    }

    /// Updates spread and correction from the objective measured over enough samples.
    pub(super) fn judge(&mut self, measured: Option<Seconds>, use_of: f64, frame: &Frame) {
        let (Some(measured), Some(mean)) = (measured, self.window.mean()) else {
            return;
        };
        if mean > 0.0 && use_of >= 0.5 * FULL {
            let spread = (measured.get() / mean).clamp(SPREADS.0, SPREADS.1);
            self.spread += SPREAD_WEIGHT * (spread - self.spread);
        }
        if self.rate.is_none() || use_of > DISOBEYED {
            return;
        }
        self.is_late = measured > frame.sla.target();
        let target = self.attainable(&frame.sla);
        let error = ((target - measured.get()) / target).max(-1.0);
        if error < 0.0 && use_of >= 0.5 * FULL {
            if frame.is_applied && self.is_measured() {
                // Stop at the correction that has no more effect on the bound, or it would wind down.
                let least = self.least_correction(target).min(self.correction);
                self.correction = (self.correction * (1.0 + LOWERED * error)).max(least);
            }
        } else {
            self.correction = (self.correction * RAISED).min(1.0);
        }
    }

    /// Updates rate and unloaded delay. Returns whether the node had no queue.
    pub(super) fn learn(
        &mut self,
        period: &Period,
        is_full: bool,
        foretold: f64,
        target: f64,
    ) -> bool {
        let Some(rate) = self.rate else {
            let unloaded = self.unloaded.unwrap_or(0.0);
            let waits = period.delay.max(foretold);
            let is_queue = foretold * period.rate > FIRST_JOBS || period.jobs > FIRST_JOBS;
            // The bound is filled and requests take clearly longer than in an unloaded node.
            let is_slower = is_full && self.unloaded_seen() && waits > CLEARLY * unloaded;
            let is_late = waits > FIRST_SIGN * target && waits > FIRST_RISE * unloaded;
            if !(is_queue && (is_late || is_slower)) {
                self.rest(period);
                return true;
            }
            if self.has_shown() || self.periods >= PERIODS {
                self.observe_rate(period.rate.max(self.recent.rate()));
                self.rate_samples = period.ended;
                if self
                    .unloaded
                    .is_none_or(|known| known > period.delay / CLEARLY)
                {
                    // It may have been measured with a queue.
                    self.unloaded = Some(period.delay / 2.0);
                    self.rested = 0.0;
                    self.unloaded_objective = None;
                }
            }
            return false;
        };
        let recent = self.recent.rate();
        let is_queued = foretold > target;
        if is_full || is_queued {
            let weight = period.ended / (self.rate_samples + period.ended);
            self.rate_samples = (self.rate_samples + period.ended).min(RATE_SAMPLES);
            let noise = self.recent.noise() * rate;
            let may_lower = self.is_rate_of_node(target);
            let is_lower = may_lower && recent < rate - noise;
            if self.mode != Mode::Standing && (is_lower || recent > rate + noise) {
                // The change is larger than noise: the node's capacity has changed.
                self.rate_samples = self.recent.ended;
                self.observe_rate(recent);
                return false;
            }
            // A rate under a bound that starves the node is not its capacity.
            if may_lower && (self.mode != Mode::Standing || is_queued) {
                self.observe_rate(rate + weight * (period.rate - rate));
            }
        } else if recent > rate * (1.0 + self.recent.noise()) {
            // The node finishes more than the learned rate.
            self.observe_rate(recent);
        } else if recent > UNHURRIED * rate
            && self.unloaded_seen()
            && period.delay < UNQUEUED * self.unloaded.unwrap_or(0.0)
        {
            // A node that gets no more work than the learned rate could never show a higher one.
            self.observed_rate = self.observed_rate.or(self.rate);
            self.rate = Some(recent / UNHURRIED);
        }
        let delay = self.not_by_chance(period.delay, period.ended);
        if period.ended >= MIN_SEEN && delay < self.unloaded.unwrap_or(0.0) {
            self.unloaded = Some(delay);
        }
        let is_rested = !is_full && period.rate < LIGHT * rate;
        if is_rested {
            self.rest(period);
        }
        is_rested
    }

    /// Updates the lowest mean delay from the present window.
    pub(super) fn learn_fastest(&mut self) {
        let known = self.fastest.map(|known| known * FASTEST_GROWTH);
        let mean = self.window.mean();
        let mean = mean.map(|mean| self.not_by_chance(mean, self.window.ended() as f64));
        self.fastest = match (known, mean) {
            (Some(known), Some(mean)) => Some(known.min(mean)),
            (known, mean) => known.or(mean),
        };
    }

    /// An upper limit of the mean delay of which so many requests have shown this one: where delays differ much, few of
    /// them may be short by chance.
    fn not_by_chance(&self, delay: f64, ended: f64) -> f64 {
        let measured = self.measured.map_or(0.0, Seconds::get);
        let spread = self.spread.max(measured / delay);
        delay * (1.0 + (spread - 1.0) / ended.sqrt())
    }

    /// Sets the rate to one that the node showed.
    pub(super) fn observe_rate(&mut self, rate: f64) {
        self.rate = Some(rate);
        self.observed_rate = None;
    }

    /// Updates the objective's unloaded delay from a period without a queue.
    pub(super) fn rest_objective(
        &mut self,
        seen: &Observation,
        late: Option<&DelayHistogram>,
        sla: &Sla,
    ) {
        self.rested_window.add(seen, late, Cost(0.0));
        let ended = self.rested_window.ended();
        let is_enough = ended >= SAMPLES && self.rested_window.periods() >= RESTED_PERIODS;
        if !is_enough && (ended as f64) < RATE_SAMPLES {
            return;
        }
        if let Some(objective) = self.rested_window.objective(sla).map(Seconds::get) {
            let known = self.unloaded_objective.unwrap_or(objective);
            self.unloaded_objective = Some(known + SPREAD_WEIGHT * (objective - known));
        }
        self.rested_window.clear();
    }

    /// Updates the unloaded delay from a period without a queue.
    pub(super) fn rest(&mut self, period: &Period) {
        let delay = period.delay;
        self.unloaded = Some(self.unloaded.map_or(delay, |known| {
            let weight = if delay < known { FASTER } else { SLOWER };
            let share = (period.ended / SAMPLES as f64).min(1.0);
            known + weight * share * (delay - known)
        }));
        self.rested += period.ended;
    }

    /// Whether a lower throughput under a filled bound is the node's, and not that of a bound below what an unloaded node
    /// needs: that is known, or requests are in time.
    fn is_rate_of_node(&self, target: f64) -> bool {
        let is_in_time = |measured: Seconds| measured.get() <= target;
        self.is_measured() || self.measured.is_some_and(is_in_time)
    }

    /// Whether `unloaded` was measured without a queue, in a node that was not full or had too few jobs.
    pub(super) fn is_measured(&self) -> bool {
        self.is_proven || self.unloaded_seen()
    }

    /// Whether `unloaded` was measured on a node that was not full, over at least `SAMPLES` requests.
    pub(super) fn unloaded_seen(&self) -> bool {
        self.rested >= SAMPLES as f64
    }
}
