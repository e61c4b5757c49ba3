//! Estimates the work that a bound would have refused if it were enforced.

use plimsoll_core::{Cost, Flow, Observation};

/// Simulates the backlog that the node would have under the bound, next to the actual one.
///
/// Both have the same arrivals and finish the same work. Arrivals that exceed the simulated backlog's bound count as
/// refused. Retries after a refusal are not modelled, nor are requests that wait in a proxy for a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefusalMeter {
    /// Simulated backlog under the bound, in cost units.
    backlog: f64,
    /// Actual backlog at the end of the last period, in cost units.
    actual: Option<f64>,
}

impl RefusalMeter {
    /// Cost that would have been refused in a period, in cost units. Call once per period with the bound in force
    /// during it. `None` if requests ended but the number of jobs is unknown.
    pub fn step(
        &mut self,
        seen: &Observation,
        flow: &Flow,
        mean_cost: Cost,
        bound: Cost,
    ) -> Option<Cost> {
        let (mean_cost, bound) = (mean_cost.get(), bound.get());
        let ended = seen.delays.count().saturating_add(seen.failed);
        // Without any request the number of jobs is often unknown: the node is idle.
        let jobs = seen.jobs.or((ended == 0).then_some(0.0))?;
        let peak = seen.peak_jobs.unwrap_or(0.0).max(jobs) * mean_cost;
        let actual = jobs * mean_cost;
        let Some(before) = self.actual.replace(actual) else {
            self.backlog = actual.min(bound);
            return Some(Cost(0.0));
        };
        let seconds = seen.period.get();
        // The flow's admitted work excludes requests whose clients left.
        let left = seen.left.as_ref().map_or(0, |left| left.count()) as f64 * mean_cost;
        let grown = (flow.admitted - flow.ended) * seconds + left;
        // A burst within the period would have exceeded the bound, too.
        let risen = grown.max(peak - before);
        let refused = (self.backlog + risen - bound).max(0.0);
        self.backlog = (self.backlog + grown).clamp(0.0, bound);
        refused.is_finite().then_some(Cost(refused))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use plimsoll_core::{DelayHistogram, FlowMeter, Seconds};

    use super::*;

    const BOUND: f64 = 40.0;

    fn delays(count: usize) -> DelayHistogram {
        let mut delays = DelayHistogram::empty(DelayHistogram::fine_bounds()).unwrap();
        for _ in 0..count {
            delays.record(Seconds(1.0));
        }
        delays
    }

    #[derive(Default)]
    struct Meters(FlowMeter, RefusalMeter);

    impl Meters {
        fn step(&mut self, seen: &Observation) -> Option<f64> {
            let flow = self.0.measure(seen, 1.0, BOUND).unwrap();
            let refused = self.1.step(seen, &flow, Cost(1.0), Cost(BOUND));
            refused.map(Cost::get)
        }

        /// A period with this number of jobs at its end, and this peak.
        fn period(&mut self, finished: usize, jobs: f64, peak: f64) -> f64 {
            let mut seen = Observation::new(Seconds(1.0), delays(finished));
            seen.jobs = Some(jobs);
            seen.peak_jobs = Some(peak);
            self.step(&seen).unwrap()
        }
    }

    /// Compares with a node that enforces the bound, has the same arrivals and finishes up to 100 per period.
    #[test]
    fn as_much_as_an_obeyed_bound_refuses() {
        for arrivals in [
            vec![150; 30],
            vec![120, 50, 60, 180, 20, 90, 300, 10, 100, 70],
        ] {
            let mut meters = Meters::default();
            let (mut actual, mut obeyed, mut did, mut would) = (0_usize, 0_usize, 0, 0.0);
            meters.period(0, 0.0, 0.0);
            for arrived in arrivals {
                let finished = (actual + arrived).min(100);
                actual = actual + arrived - finished;
                would += meters.period(finished, actual as f64, actual as f64);
                let unfinished = (obeyed + arrived).saturating_sub(finished);
                obeyed = unfinished.min(BOUND as usize);
                did += unfinished - obeyed;
            }
            assert!((would - did as f64).abs() < 1e-6, "{would} {did}");
        }
    }

    #[test]
    fn a_burst_within_a_period_counts() {
        let mut meters = Meters::default();
        meters.period(10, 10.0, 10.0);
        assert_eq!(meters.period(150, 10.0, 100.0), 60.0);
        assert_eq!(meters.period(10, 10.0, 20.0), 0.0);
    }

    #[test]
    fn clients_that_leave_would_have_been_refused() {
        let mut meters = Meters::default();
        let mut refused = Vec::new();
        // Per second 100 requests finish and 50 clients leave, from a queue that stays at 200.
        for _ in 0..20 {
            let mut seen = Observation::new(Seconds(1.0), delays(100));
            seen.jobs = Some(200.0);
            seen.left = Some(delays(50));
            refused.push(meters.step(&seen).unwrap());
        }
        assert_eq!(refused[19], 50.0, "{refused:?}");
    }

    #[test]
    fn unknown_jobs_give_no_estimate() {
        let unknown = |finished| Observation::new(Seconds(1.0), delays(finished));
        let mut meters = Meters::default();
        assert_eq!(meters.step(&unknown(100)), None);
        assert_eq!(meters.step(&unknown(0)), Some(0.0), "idle");
    }
}
