//! The load line: admits bursts up to the target at the learned rate, and drains standing queues.
//!
//! The law works in jobs. By Little's law, a node that finishes `rate` requests/s holds `rate · target` jobs when each
//! takes the target: this is the bound for a burst. If it stays filled although proxies refuse what does not fit, the
//! queue only adds delay (CoDel's insight), and the bound falls to the fewest jobs that keep the node busy:
//! `rate · unloaded` and a reserve. If throughput falls with the bound, the bound rises again at once.

mod bounds;
mod learning;
mod recent;
mod standing;

use serde::{Deserialize, Serialize};

use recent::Recent;

use super::window::Window;
use crate::{Cost, DelayHistogram, Observation, Reason, Seconds, Sla};

/// Minimum bound, in jobs, while no queue has been seen and too few requests have ended to estimate a rate.
pub(super) const OPEN_JOBS: f64 = 64.0;
/// Minimum bound, in jobs, while no queue has been seen but a recent rate is known.
const SEEN_JOBS: f64 = 8.0;
/// Minimum bound while no queue has been seen, as a multiple of the recent peak: it limits floods but not normal load.
const OPEN_HEADROOM: f64 = 2.0;
/// Mean jobs in a period, as a share of the bound, from which the bound counts as filled.
const FULL: f64 = 0.8;
/// Share of the bound below which the queue is no longer a standing one.
const DRAINED: f64 = 0.6;
/// Periods below it that end a standing queue, if refusals are not known: proxies fill their shares of a bound that was
/// cut with a delay.
const DRAINED_UNKNOWN: u32 = 2;
/// Share of requests refused from which the node counts as overloaded.
const PRESSED: f64 = 0.1;
/// Share of requests refused below which the overload is over.
const RELEASED: f64 = 0.02;
/// Full periods until a queue counts as standing, if refusals are known.
const STANDING_KNOWN: u32 = 1;
/// The same if refusals are not known: at high load, passing bursts also fill the bound for one or two periods.
const STANDING_UNKNOWN: u32 = 3;
/// Periods without a finished request after which no queue counts as standing.
const EMPTY_PERIODS: u32 = 3;
/// Periods after an overload within which the next one is detected after `STANDING_KNOWN` periods.
const REMEMBERED: u32 = 30;
/// Mean delay, as a share of the target, from which a node without a known rate counts as full.
const FIRST_SIGN: f64 = 0.6;
/// Ratio of a full node's delay to the unloaded one from which the latter is trusted, and the node counts as full.
const CLEARLY: f64 = 3.0;
/// Mean delay, as a multiple of the unloaded delay, from which it counts as queueing and not as slow requests.
const FIRST_RISE: f64 = 1.5;
/// Jobs above which a node without a known rate can have a queue.
const FIRST_JOBS: f64 = 3.0;
/// Constant part of the reserve, in jobs: the jobs beyond those of an unloaded node that keep it from idling.
const RESERVE_JOBS: f64 = 1.5;
/// Part of the reserve that grows with the square root of the needed jobs (square-root staffing; Halfin and Whitt,
/// Operations Research 29(3), 1981).
const RESERVE_OF_ROOT: f64 = 2.0;
/// Minimum bound in jobs for a standing queue, if so many finish within the target: fewer would make nothing faster.
const MIN_JOBS: f64 = 3.0;
/// Maximum reserve factor of a node that finished more with fewer jobs (contention).
const CONTENDED: f64 = 0.4;
/// Minimum relative increase of throughput with fewer jobs that counts as contention.
const CONTENTION_SEEN: f64 = 0.1;
/// Requests over which the recent rate is a mean.
const RECENT_SAMPLES: f64 = 200.0;
/// Maximum requests over which the rate is a mean.
const RATE_SAMPLES: f64 = 1000.0;
/// Standard deviations by which a rate must differ from the known one to count as a change.
const DEVIATIONS: f64 = 2.0;
/// Minimum relative difference of two rates that counts as a change.
const MIN_CHANGE: f64 = 0.05;
/// Factor on the noise for a bound that starves the node: it is tested every period, so chance has as many tries.
const STARVED: f64 = 1.5;
/// Factor on the unloaded delay for each attempt with fewer jobs, while it was only seen under load.
const DESCENT: f64 = 0.9;
/// Factor on the jobs of a node that is late with the fewest.
const PROBE: f64 = 1.5;
/// Maximum periods without such an attempt after throughput fell; the pause about doubles each time.
const MAX_PAUSE: u32 = 300;
/// Factor per period on a reserve above 1.
const RESERVE_DECAY: f64 = 0.99;
/// Minimum requests in a period for its mean delay to lower the unloaded delay.
const MIN_SEEN: f64 = 10.0;
/// Relative loss of throughput against the best up to which the descent continues.
const UNHARMED: f64 = 0.02;
/// Relative loss of throughput above which the last step of the descent is undone.
const HARMED: f64 = 0.05;
/// Requests at one bound before its throughput is compared.
const LEVEL_SAMPLES: f64 = 180.0;
/// Unloaded delay, as a share of the target, at which the descent ends, unless there is contention.
const LOW: f64 = 0.1;
/// Factor on the reserve when throughput fell with the bound.
const GROWTH: f64 = 1.3;
/// Factor on a filled bound per period while no queue has been seen.
const HINT_GROWTH: f64 = 2.0;
/// Requests over which the objective is judged.
const SAMPLES: u64 = 100;
/// Periods after which it is judged over fewer.
const PERIODS: u32 = 10;
/// Periods without a queue after which the objective's unloaded delay is measured over fewer than `RATE_SAMPLES`
/// requests: fewer are often too few to tell its quantile from the next one.
const RESTED_PERIODS: u32 = 100;
/// Share by which the correction falls when the objective exceeds the target by 100 %.
const LOWERED: f64 = 0.3;
/// Factor by which the correction rises when the objective is met.
const RAISED: f64 = 1.1;
/// Minimum correction.
const MIN_CORRECTION: f64 = 0.05;
/// Jobs as a multiple of the bound above which the bound is not obeyed, so that delays do not show its effect.
const DISOBEYED: f64 = 1.25;
/// Range of the spread: the objective's delay as a multiple of the mean delay.
const SPREADS: (f64, f64) = (1.0, 4.0);
/// Weight of a new value in the spread.
const SPREAD_WEIGHT: f64 = 0.2;
/// Initial spread: between that of equal requests, 1, and of exponential ones, 3.
const SPREAD: f64 = 1.6;
/// Weight of a new mean delay in the unloaded delay, if it is lower.
const FASTER: f64 = 0.5;
/// The same if it is higher.
const SLOWER: f64 = 0.05;
/// Factor on the lowest mean delay each time that it is judged: after a deployment, requests may take longer.
const FASTEST_GROWTH: f64 = 1.01;
/// Multiple of the lowest mean delay up to which requests may take that long by themselves.
const CREDIBLE: f64 = 2.0;
/// Factor per period on the highest recent rate.
const SHOWN_DECAY: f64 = 0.999;
/// Delay, as a multiple of the unloaded one, below which a node has no queue.
const UNQUEUED: f64 = 1.3;
/// Maximum share of its capacity that a node without a queue is taken to be using.
const UNHURRIED: f64 = 0.8;
/// Minimum bound in jobs that is derived from the recent rate.
const MIN_OF_LATE: f64 = 4.0;
/// Number of jobs that never counts as a flood.
const FLOOD_JOBS: f64 = 5.0;
/// Minimum requests behind the recent rate before it is used for a prediction or a limit.
const FLOOD_SAMPLES: f64 = 20.0;
/// Share of the known rate below which the load is light.
const LIGHT: f64 = 0.6;

/// Learned state of a node that is kept across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Throughput of the full node, in requests/s.
    pub rate: f64,
    /// Mean delay of a request without a queue.
    pub unloaded: Seconds,
    /// Ratio of the objective's delay to the mean delay in a full node, 1 to 4.
    pub spread: f64,
    /// Mean cost of a request.
    pub mean_cost: Cost,
    /// The objective's delay without a queue; `None` if not measured yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unloaded_objective: Option<Seconds>,
    /// Whether `unloaded` was measured without a queue, and is not a guess under load.
    #[serde(default = "measured")]
    pub is_measured: bool,
}

/// Earlier versions took each for measured.
fn measured() -> bool {
    true
}

impl Learned {
    /// Whether every value is finite and in its range.
    pub fn is_sound(&self) -> bool {
        let positive = |figure: f64| figure.is_finite() && figure > 0.0;
        let delay = |delay: Seconds| delay.get().is_finite() && delay.get() >= 0.0;
        positive(self.rate)
            && delay(self.unloaded)
            && self.unloaded_objective.is_none_or(delay)
            && (SPREADS.0..=SPREADS.1).contains(&self.spread)
            && positive(self.mean_cost.get())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Bursts are admitted up to the target; while no rate is known, nothing is limited.
    #[default]
    Burst,
    /// The queue stands: the bound is the fewest jobs that keep the node busy.
    Standing,
}

/// State before more jobs were tried: the assumed unloaded delay, and throughput.
#[derive(Clone, Copy, Debug)]
struct Probed {
    unloaded: f64,
    rate: f64,
}

/// The state of the law.
#[derive(Clone, Debug)]
pub(super) struct LoadLine {
    mode: Mode,
    /// Throughput when full, in requests/s, and the number of requests behind it.
    rate: Option<f64>,
    rate_samples: f64,
    /// The rate last observed, if `rate` is a higher one that the node is only supposed to reach.
    observed_rate: Option<f64>,
    /// Recent throughput, whether full or not.
    recent: Recent,
    unloaded: Option<f64>,
    /// Number of requests behind `unloaded` that ended while the node was not full.
    rested: f64,
    /// Whether `unloaded` was measured while fewer jobs starved the node, so that there was no queue.
    is_proven: bool,
    /// The objective's delay without a queue, and the periods since it was last updated that had none.
    unloaded_objective: Option<f64>,
    rested_window: Window,
    /// Periods until fewer jobs are tried again; `pauses` is the length of the last pause.
    pause: u32,
    pauses: u32,
    spread: f64,
    /// Mean cost of a request, smoothed over about `RATE_SAMPLES` requests.
    cost: Option<f64>,
    /// Periods since the start.
    periods: u32,
    window: Window,
    /// The objective when requests last ended.
    measured: Option<Seconds>,
    /// Factor on the bound from the measured objective, `MIN_CORRECTION` to 1.
    correction: f64,
    /// Whether the objective was above the target when last judged.
    is_late: bool,
    /// Factor on the reserve from the measured throughput.
    reserve: f64,
    /// Throughput while full at the burst's bound.
    burst_rate: Recent,
    /// Throughput while full since the queue counts as standing.
    standing_rate: Recent,
    /// Delays of the same periods.
    standing_window: Window,
    /// State before a probe with more jobs.
    probed: Option<Probed>,
    /// Lowest mean delay of enough requests, in seconds, growing slowly.
    fastest: Option<f64>,
    /// Highest standing throughput of the current descent, in requests/s.
    best: f64,
    /// Highest recent throughput, decaying, in requests/s.
    shown_rate: f64,
    full_periods: u32,
    drained_periods: u32,
    since_standing: u32,
    jobs_before: Option<f64>,
    /// Time without a finished request; `empty_periods` counts its periods.
    empty_seconds: f64,
    empty_periods: u32,
}

impl Default for LoadLine {
    fn default() -> Self {
        LoadLine {
            mode: Mode::Burst,
            rate: None,
            rate_samples: 0.0,
            observed_rate: None,
            recent: Recent::default(),
            unloaded: None,
            rested: 0.0,
            is_proven: false,
            unloaded_objective: None,
            rested_window: Window::default(),
            pause: 0,
            pauses: 0,
            spread: SPREAD,
            cost: None,
            periods: 0,
            window: Window::default(),
            measured: None,
            correction: 1.0,
            is_late: false,
            reserve: 1.0,
            burst_rate: Recent::default(),
            standing_rate: Recent::default(),
            standing_window: Window::default(),
            probed: None,
            fastest: None,
            best: 0.0,
            shown_rate: 0.0,
            full_periods: 0,
            drained_periods: 0,
            since_standing: REMEMBERED,
            jobs_before: None,
            empty_seconds: 0.0,
            empty_periods: 0,
        }
    }
}

/// Inputs of a step besides the period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) sla: Sla,
    /// Bound in force, in jobs.
    pub(super) bound_jobs: f64,
    /// Recent peak backlog, in jobs.
    pub(super) peak_jobs: f64,
    /// Configured initial bound, in jobs.
    pub(super) hint_jobs: Option<f64>,
    /// Whether proxies apply the bound. If not, delays and throughput are no response to learn from.
    pub(super) is_applied: bool,
}

/// One period in jobs and seconds.
#[derive(Clone, Copy, Debug)]
struct Period {
    ended: f64,
    seconds: f64,
    rate: f64,
    /// Mean number of jobs in the node.
    jobs: f64,
    /// Mean delay.
    delay: f64,
    refused: Option<f64>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    pub(super) jobs: f64,
    pub(super) reason: Reason,
    pub(super) measured: Option<Seconds>,
    pub(super) control: Option<Seconds>,
}

impl From<Option<Learned>> for LoadLine {
    fn from(learned: Option<Learned>) -> Self {
        let Some(learned) = learned else {
            return LoadLine::default();
        };
        LoadLine {
            rate: Some(learned.rate),
            // A low weight, so that new measurements soon replace the saved rate.
            rate_samples: RATE_SAMPLES / 6.0,
            unloaded: Some(learned.unloaded.get()),
            rested: if learned.is_measured {
                SAMPLES as f64
            } else {
                0.0
            },
            spread: learned.spread,
            cost: Some(learned.mean_cost.get()),
            unloaded_objective: learned.unloaded_objective.map(Seconds::get),
            ..LoadLine::default()
        }
    }
}

impl LoadLine {
    pub(super) fn learned(&self, mean_cost: f64) -> Option<Learned> {
        Some(Learned {
            rate: self.rate?,
            unloaded: Seconds(self.unloaded?),
            spread: self.spread,
            mean_cost: Cost(mean_cost),
            unloaded_objective: self.unloaded_objective.map(Seconds),
            is_measured: self.is_measured(),
        })
    }

    /// Backlog that the node finishes within the target at the learned rate.
    pub(super) fn capacity(&self, sla: &Sla) -> Option<Cost> {
        let jobs = self.rate? * sla.target().get() * self.correction;
        Some(Cost(jobs * self.cost.unwrap_or(1.0)))
    }

    /// Performs the step for a period in which requests ended. `late` are the ages of those whose client left late.
    pub(super) fn step(
        &mut self,
        seen: &Observation,
        late: Option<&DelayHistogram>,
        frame: &Frame,
    ) -> Stepped {
        let target = self.attainable(&frame.sla);
        self.periods = self.periods.saturating_add(1);
        let period = self.period(seen, late);
        self.recent
            .add(period.ended, period.seconds, RECENT_SAMPLES);
        self.shown_rate = self.recent.rate().max(self.shown_rate * SHOWN_DECAY);
        if let (Some(cost), true) = (seen.finished_cost, seen.delays.count() > 0) {
            let count = seen.delays.count() as f64;
            let mean = cost.get() / count;
            let known = self.cost.unwrap_or(mean);
            let weight = (count / RATE_SAMPLES).min(1.0);
            self.cost = Some(known + weight * (mean - known)).filter(|cost| cost.is_finite());
        }
        let applied = frame.bound_jobs.floor().max(1.0);
        let use_of = period.jobs / applied;
        let is_full = use_of >= FULL;
        self.full_periods = if is_full { self.full_periods + 1 } else { 0 };
        let is_drained = use_of < DRAINED;
        self.drained_periods = if is_drained {
            self.drained_periods + 1
        } else {
            0
        };
        self.since_standing = self.since_standing.saturating_add(1);
        // While more than the bound drains, requests end that were begun before: more than the node can go on doing.
        if self.mode == Mode::Standing && is_full && use_of <= DISOBEYED {
            self.standing_rate
                .add_slowly(period.ended, period.seconds, RECENT_SAMPLES);
            self.standing_window.add(seen, late, Cost(0.0));
        }
        self.window.add(seen, late, Cost(period.jobs));
        // A blind source misses this delay in every request.
        let unseen = seen.unseen.map_or(0.0, Seconds::get).max(0.0);
        let measured = self.window.objective(&frame.sla);
        let measured = measured.map(|measured| Seconds(measured.get() + unseen));
        self.measured = measured.or(self.measured);
        if self.window.ended() >= SAMPLES || self.window.periods() >= PERIODS {
            self.judge(measured, use_of, frame);
            self.learn_fastest();
            self.window.clear();
        }
        let foretold = seen.jobs.map_or(0.0, |jobs| jobs / period.rate);
        if self.learn(&period, is_full, foretold, target) {
            self.rest_objective(seen, late, &frame.sla);
        }
        let stepped = |jobs: f64, reason| Stepped {
            jobs,
            reason,
            measured,
            control: Some(Seconds(
                measured.map_or(0.0, Seconds::get).max(period.delay),
            )),
        };
        let Some(rate) = self.rate else {
            let grown = if is_full {
                HINT_GROWTH * frame.bound_jobs
            } else {
                0.0
            };
            return stepped(self.open(frame).max(grown), Reason::Open);
        };
        let starved = self.change_mode(&period, rate, is_full, use_of, frame);
        let is_blind = unseen > 0.0;
        let burst = self.burst(rate, target);
        let (jobs, of_mode) = match self.mode {
            Mode::Standing => (self.standing(rate, target).min(burst), Reason::Standing),
            Mode::Burst => (burst * self.correction, Reason::Burst),
        };
        let reason = if is_blind {
            Reason::BlindSource
        } else if starved {
            Reason::Starved
        } else if self.is_late && (self.correction < 1.0 || target > frame.sla.target().get()) {
            Reason::OverSla
        } else {
            of_mode
        };
        stepped(jobs, reason)
    }

    /// Discards measurements from before the bound was applied, or stopped being applied.
    pub(super) fn mode_changed(&mut self) {
        self.window.clear();
        self.restart_standing();
    }

    /// Discards what the present standing bound has shown.
    fn restart_standing(&mut self) {
        self.standing_rate = Recent::default();
        self.standing_window.clear();
    }

    /// Records a period in which nothing ended.
    pub(super) fn pass(&mut self, seconds: Seconds) {
        self.empty_seconds += seconds.get().max(0.0);
        self.empty_periods += 1;
        self.periods = self.periods.saturating_add(1);
        if self.mode == Mode::Standing && self.empty_periods >= EMPTY_PERIODS {
            self.mode = Mode::Burst;
            self.full_periods = 0;
        }
    }

    /// Bound in jobs from what was learned so far, for a period without new measurements.
    pub(super) fn kept(&self, frame: &Frame) -> f64 {
        let target = self.attainable(&frame.sla);
        match self.rate {
            Some(rate) if self.mode == Mode::Standing => self.standing(rate, target),
            Some(rate) => self.burst(rate, target) * self.correction,
            None => self.open(frame),
        }
    }
}
