//! How much of a cluster's traffic its proxies refuse, for proxies that take one fraction for all.
//!
//! A proxy that knows the bounds refuses request by request. One that only knows a fraction, such as
//! Envoy's `drop_overloads`, needs that fraction to follow load over capacity at a delay of a period
//! or two. See docs/control.md, "Shedding".

use serde::{Deserialize, Serialize};

use crate::Observation;

/// What went through one node, or through a cluster, in a period; cost units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Cost admitted per second.
    pub admitted: f64,
    /// Cost that ended per second, well or not.
    pub ended: f64,
    /// Backlog at the end.
    pub backlog: f64,
    /// Backlog bound.
    pub bound: f64,
}

impl Flow {
    /// Whether every figure is finite and none is negative.
    pub fn is_sound(&self) -> bool {
        let figures = [self.admitted, self.ended, self.backlog, self.bound];
        figures
            .iter()
            .all(|figure| (0.0..=f64::MAX).contains(figure))
    }
}

impl std::iter::Sum for Flow {
    fn sum<I: Iterator<Item = Flow>>(flows: I) -> Flow {
        flows.fold(Flow::default(), |all, one| Flow {
            admitted: all.admitted + one.admitted,
            ended: all.ended + one.ended,
            backlog: all.backlog + one.backlog,
            bound: all.bound + one.bound,
        })
    }
}

/// Finds a node's [`Flow`] from its observations.
#[derive(Clone, Debug, Default)]
pub struct FlowMeter {
    backlog: Option<f64>,
}

impl FlowMeter {
    /// One call per period. What was admitted is what ended and what the backlog grew by: that holds
    /// at every moment, whatever the delay is.
    pub fn measure(&mut self, seen: &Observation, mean_cost: f64, bound: f64) -> Option<Flow> {
        let seconds = seen.period.get();
        if !(seconds.is_finite() && seconds > 0.0) {
            return None;
        }
        let finished = seen.delays.count() as f64;
        let well = seen
            .finished_cost
            .map_or(finished * mean_cost, |cost| cost.get());
        let ended = (well + seen.failed as f64 * mean_cost) / seconds;
        let (jobs, grown) = match seen.jobs {
            Some(jobs) => {
                let backlog = jobs * mean_cost;
                let before = self.backlog.replace(backlog).unwrap_or(backlog);
                (jobs, backlog - before)
            }
            // Little's law gives the mean of a period, from what ended: its change is mostly noise.
            None => {
                self.backlog = None;
                let mean = seen.delays.mean().map_or(0.0, |mean| mean.get());
                (finished * mean / seconds, 0.0)
            }
        };
        let flow = Flow {
            admitted: (ended + grown / seconds).max(0.0),
            ended,
            backlog: jobs * mean_cost,
            bound,
        };
        flow.is_sound().then_some(flow)
    }
}

/// Finds the fraction to shed of one cluster's traffic.
#[derive(Clone, Debug, Default)]
pub struct Shedder {
    /// Smoothed, cost per second.
    offered: Option<f64>,
    /// Smoothed, cost per second.
    ended: Option<f64>,
    /// What passed in the period before.
    passed: Option<f64>,
}

/// The backlog aimed at, as a share of the bound: what nodes hold one by one varies around it.
const AIM: f64 = 0.8;
/// Share of the gap to that backlog that is to be closed in one period. Backlog is the integral of what
/// is admitted, and what is decided shows two periods later, so that 0.6 would oscillate.
const GAP_GAIN: f64 = 0.3;
/// Without backlog at least this share more is admitted than what ends.
const MIN_ROOM: f64 = 0.25;
/// With whatever backlog at least this share of what ends is admitted.
const MIN_ADMITTED: f64 = 0.3;
/// Share of the traffic that always passes: without any, nothing would be known of load and capacity.
const MIN_PASSED: f64 = 0.02;
/// Less than this is noise.
const MIN_SHED: f64 = 0.01;
/// Weight of the newest period.
const SMOOTHING: f64 = 0.5;
/// A change by more than this share is a step of the load: believed at once, not smoothed.
const STEP: f64 = 0.3;

impl Shedder {
    /// One step a period: the fraction to shed from now on, 0 to 0.98.
    ///
    /// `flow` is the sum over the nodes that take traffic; `shed` is the fraction that proxies had in
    /// force when the period ended; `seconds` is its length.
    pub fn step(&mut self, flow: &Flow, shed: f64, seconds: f64) -> f64 {
        let passed = (1.0 - shed).clamp(MIN_PASSED, 1.0);
        let before = self.passed.replace(passed).unwrap_or(passed);
        if !(flow.is_sound() && flow.bound > 0.0 && seconds > 0.0) {
            return 1.0 - passed;
        }
        // A proxy asks some time in the period, and a node's own period began before.
        let offered = follow(&mut self.offered, flow.admitted * 2.0 / (passed + before));
        let ended = follow(&mut self.ended, flow.ended);
        let gap = AIM - flow.backlog / flow.bound;
        let mut rate = GAP_GAIN * flow.bound / seconds;
        if gap > 0.0 {
            rate = rate.max(MIN_ROOM * ended);
        }
        let wanted = (ended + rate * gap).max(MIN_ADMITTED * ended);
        let shed = if wanted < offered {
            (1.0 - wanted / offered).min(1.0 - MIN_PASSED)
        } else {
            0.0
        };
        if shed < MIN_SHED { 0.0 } else { shed }
    }
}

fn follow(known: &mut Option<f64>, new: f64) -> f64 {
    let value = match *known {
        Some(old) if (new - old).abs() <= STEP * old => old + SMOOTHING * (new - old),
        _ => new,
    };
    *known = Some(value);
    value
}
