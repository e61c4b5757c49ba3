//! Fraction of a cluster's traffic to shed, for proxies that apply one fraction to all requests.
//!
//! A proxy that knows the bounds refuses requests one by one. A proxy that only takes a fraction, such as Envoy's
//! `drop_overloads`, needs it to follow load / capacity with a delay of a period or two. See docs/control.md,
//! "Shedding".

use serde::{Deserialize, Serialize};

use crate::Observation;

/// Flow through one node, or a cluster, in a period, in cost units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Cost admitted per second.
    pub admitted: f64,
    /// Cost that ended per second, successful or failed.
    pub ended: f64,
    /// Backlog at the end of the period.
    pub backlog: f64,
    /// Bound on the backlog.
    pub bound: f64,
}

impl Flow {
    /// Whether all values are finite and not negative.
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

/// Derives a node's [`Flow`] from its observations.
#[derive(Clone, Debug, Default)]
pub struct FlowMeter {
    backlog: Option<f64>,
}

impl FlowMeter {
    /// Flow of a period, to be called once a period. The admitted cost is the ended cost plus the growth of the
    /// backlog, which holds at any delay.
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
            // Little's law gives only the period's mean, whose change is mostly noise.
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

/// Determines the fraction of one cluster's traffic to shed.
#[derive(Clone, Debug, Default)]
pub struct Shedder {
    /// Offered load, smoothed, in cost per second.
    offered: Option<f64>,
    /// Throughput, smoothed, in cost per second.
    ended: Option<f64>,
    /// Fraction that passed in the previous period.
    passed: Option<f64>,
}

/// Target backlog, as a share of the bound, around which the nodes' backlogs vary.
const AIM: f64 = 0.8;
/// Share of the gap to the target that is closed in one period. The backlog integrates the admitted cost, and a
/// decision shows two periods later, so 0.6 would oscillate.
const GAP_GAIN: f64 = 0.3;
/// Minimum excess of the admitted over the ended rate without backlog, as a share of the ended rate.
const MIN_ROOM: f64 = 0.25;
/// Minimum admitted rate at any backlog, as a share of the ended rate.
const MIN_ADMITTED: f64 = 0.3;
/// Share of the traffic that always passes; without any, load and capacity would be unknown.
const MIN_PASSED: f64 = 0.02;
/// Fraction below which nothing is shed.
const MIN_SHED: f64 = 0.01;
/// Weight of the newest period.
const SMOOTHING: f64 = 0.5;
/// Relative change above which a value is a load step and is not smoothed.
const STEP: f64 = 0.3;

impl Shedder {
    /// Fraction to shed from now on, 0 to 0.98; to be called once a period.
    ///
    /// `flow` is the sum over the nodes that take traffic, `shed` the fraction in force when the period ended, and
    /// `seconds` its length.
    pub fn step(&mut self, flow: &Flow, shed: f64, seconds: f64) -> f64 {
        let passed = (1.0 - shed).clamp(MIN_PASSED, 1.0);
        let before = self.passed.replace(passed).unwrap_or(passed);
        if !(flow.is_sound() && flow.bound > 0.0 && seconds > 0.0) {
            return 1.0 - passed;
        }
        // Proxies poll at some time in the period, and a node's own period began before it.
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
