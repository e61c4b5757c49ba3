//! Window of periods, added up until there are enough samples for the objective.

use crate::{Cost, DelayHistogram, Objective, Observation, Seconds, Sla};

/// Standard deviations by which more requests must be late than may be, for the objective to be surely missed.
const SURELY: f64 = 2.0;

/// Measurements since the controller last acted.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    delays: Option<DelayHistogram>,
    failed: u64,
    ended: u64,
    /// Requests whose client left before they were late: no evidence of delay, but no longer in the node.
    left: u64,
    seconds: f64,
    periods: u32,
    peak_backlog: f64,
}

impl Window {
    /// Adds a period; `late` is the result of [`Observation::left_late`].
    pub(super) fn add(
        &mut self,
        observation: &Observation,
        late: Option<&DelayHistogram>,
        backlog: Cost,
    ) {
        let merged = self
            .delays
            .as_mut()
            .is_some_and(|delays| delays.merge(&observation.delays));
        if !merged {
            // The buckets changed, so the service was replaced: start anew with them.
            *self = Window::default();
            self.delays = Some(observation.delays.clone());
        }
        if let (Some(delays), Some(late)) = (&mut self.delays, late) {
            delays.merge(late);
        }
        let count = |delays: Option<&DelayHistogram>| delays.map_or(0, DelayHistogram::count);
        let (late, left) = (count(late), count(observation.left.as_ref()));
        self.failed = self.failed.saturating_add(observation.failed);
        let ended = observation
            .delays
            .count()
            .saturating_add(observation.failed);
        self.ended = self.ended.saturating_add(ended.saturating_add(late));
        self.left = self.left.saturating_add(left - late);
        self.seconds += observation.period.get().max(0.0);
        self.periods += 1;
        self.peak_backlog = self.peak_backlog.max(backlog.get());
    }

    pub(super) fn clear(&mut self) {
        *self = Window::default();
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    pub(super) fn periods(&self) -> u32 {
        self.periods
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    pub(super) fn peak_backlog(&self) -> Cost {
        Cost(self.peak_backlog)
    }

    /// Share of requests that failed, in [0, 1].
    pub(super) fn failed_share(&self) -> f64 {
        if self.ended == 0 {
            0.0
        } else {
            self.failed as f64 / self.ended as f64
        }
    }

    /// Objective over the finished requests. A failed request counts with the target as its delay, so that
    /// failing fast does not raise the bound; one that took longer is in the histogram with its own delay.
    pub(super) fn objective(&self, sla: &Sla) -> Option<Seconds> {
        self.figure(sla, self.failed, sla.target())
    }

    /// The [`objective`](Self::objective) with the oldest unfinished request as an additional sample, if that is
    /// higher.
    pub(super) fn objective_with_oldest(&self, sla: &Sla, age: Seconds) -> Option<Seconds> {
        let finished = self.objective(sla)?;
        if self.failed > 0 {
            return Some(finished);
        }
        let with_oldest = self.figure(sla, 1, age)?;
        Some(if with_oldest > finished {
            with_oldest
        } else {
            finished
        })
    }

    /// Mean delay of the finished requests, in seconds.
    pub(super) fn mean(&self) -> Option<f64> {
        Some(self.delays.as_ref()?.mean()?.get())
    }

    /// The objective, if it exceeds this delay by more than chance: by two standard deviations of the number of requests
    /// that may.
    pub(super) fn surely_over(&self, delay: Seconds, sla: &Sla) -> Option<Seconds> {
        let objective = self.objective(sla).filter(|objective| *objective > delay)?;
        let delays = self.delays.as_ref()?;
        let count = delays.count() as f64;
        let is_sure = match sla.objective {
            Objective::Quantile(quantile) => {
                let may = (1.0 - quantile) * count;
                count - delays.within(delay) > may + SURELY * may.sqrt()
            }
            Objective::Mean => true,
        };
        is_sure.then_some(objective)
    }

    fn figure(&self, sla: &Sla, extra: u64, extra_delay: Seconds) -> Option<Seconds> {
        let delays = self.delays.as_ref()?;
        match sla.objective {
            Objective::Quantile(q) => delays.quantile_with(q, extra, extra_delay),
            Objective::Mean => {
                let count = delays.count();
                let total = (count + extra) as f64;
                if total == 0.0 {
                    return None;
                }
                let sum = delays.mean().map_or(0.0, |mean| mean.get() * count as f64);
                Some(Seconds((sum + extra as f64 * extra_delay.get()) / total))
            }
        }
    }

    /// Mean delay that the jobs in the node predict at the present throughput (Little's law).
    pub(super) fn foretold(&self, jobs: Option<f64>) -> Option<Seconds> {
        let jobs = jobs.filter(|jobs| jobs.is_finite() && *jobs >= 0.0)?;
        let ended = self.ended as f64 + self.left as f64;
        (self.ended > 0 && self.seconds > 0.0).then(|| Seconds(jobs * self.seconds / ended))
    }
}
