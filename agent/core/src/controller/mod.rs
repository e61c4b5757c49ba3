//! Controller of one node: guard rules around a control law.
//!
//! Each sampling period ends in one [`NodeController::step`], which runs the rules in this order:
//! no source, operator's value, nothing ended, too few samples, failures, foretold delay, unused
//! bound, light load, the law, limits. The first that applies names the [`Reason`].

mod law;
mod load_line;
mod papers;
mod settings;
mod tuner;
mod unseen;
mod window;

pub use load_line::Learned;
pub use settings::{
    BoundLimits, Law, PiForm, PiGains, Rules, ServiceMode, Settings, SettingsError,
};

use serde::Serialize;

use crate::{Cost, Observation, Reason, Seconds, mpl::MplEstimator};
use law::LawState;
use load_line::{Frame, LoadLine};
use tuner::Tuner;
use window::Window;

/// Share of the remaining distance that an idle or unused bound drifts in one period.
const DRIFT: f64 = 0.2;
/// Distance from the goal, as a share of the goal, at which the bound is set to it.
const DRIFT_END: f64 = 0.01;
/// Share of the recent peak that is kept after each period.
const PEAK_DECAY: f64 = 0.9;
/// Lowest factor of a cut in one period.
const DEEPEST_CUT: f64 = 0.5;
/// Maximum growth factor per period after a cut, if requests succeed.
const RISE: f64 = 2.0;
/// The same if no requests end.
const IDLE_RISE: f64 = 1.2;
/// Predicted delay, as a multiple of the target, from which the bound is cut at once instead of by the law.
const BRAKE_RATIO: f64 = 1.25;
/// Backlog, as a multiple of the bound, above which the bound counts as not obeyed.
const OVER_BOUND: f64 = 1.1;
/// Minimum bound in [`NodeController::over_bound`], as a share of the backlog that finishes within the target: low
/// enough for the law to hold a high quantile of widely spread delays, high enough for usable weights.
const CARRIED_SHARE: f64 = 0.33;
/// Maximum bound in jobs: HAProxy reads a connection limit as 32 bits.
const MAX_JOBS: f64 = 2e9;
/// Mean cost at or below which a source's figure is ignored: a request touches about one item or more.
const MIN_COST: f64 = 1e-6;
/// Weight of the newest period in the mean cost of a request.
const COST_SMOOTHING: f64 = 0.3;

/// Result of one step, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// `d`: maximum backlog of the node, in cost units.
    pub bound: Cost,
    /// Bound before this step.
    pub previous: Cost,
    /// Rule that set the bound.
    pub reason: Reason,
    /// Relative error that the law used, in [-1, 1].
    pub error: Option<f64>,
    /// Objective (mean or quantile) measured on the finished requests.
    pub measured_delay: Option<Seconds>,
    /// Delay that the law used: the measured one, or the one predicted from unfinished work.
    pub control_delay: Option<Seconds>,
    /// Mean cost of a request, smoothed; 1 until known.
    pub mean_cost: Cost,
    /// Bound in jobs: `bound / mean_cost`, at least 1.
    pub bound_jobs: f64,
    /// Backlog that the full node finishes within the target, from which weights and ring sizes are computed. `None`
    /// while no queue has been seen.
    pub capacity: Option<Cost>,
    /// Recent peak backlog, which decays each period.
    pub recent_peak: Cost,
    /// Gains in use; `None` if the law has none.
    pub gains: Option<PiGains>,
}

/// Controls one node's backlog bound.
#[derive(Clone, Debug)]
pub struct NodeController {
    settings: Settings,
    bound: f64,
    law: LawState,
    load_line: LoadLine,
    window: Window,
    mpl: MplEstimator,
    tuner: Tuner,
    mean_cost: Option<f64>,
    recent_peak: f64,
    empty_periods: u32,
    /// Whether jobs were in the node when the last period ended.
    had_jobs: bool,
    /// Time in which nothing ended although jobs were present throughout.
    stalled_seconds: f64,
    forced: Option<f64>,
    /// Limit on the bound after a cut for a stall or failures, until the bound has recovered.
    after_cut: Option<f64>,
    decision: Decision,
}

/// Delays and error behind one decision.
#[derive(Clone, Copy, Default)]
struct Signal {
    error: Option<f64>,
    measured: Option<Seconds>,
    control: Option<Seconds>,
}

impl NodeController {
    /// Creates a controller at the nominal bound, or at 64 jobs within the limits if there is none.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        let limits = settings.limits;
        let open = Cost(load_line::OPEN_JOBS.clamp(limits.min.get(), limits.max.get()));
        let nominal = limits.nominal.unwrap_or(open);
        Ok(NodeController {
            settings,
            bound: nominal.get(),
            law: LawState::default(),
            load_line: LoadLine::default(),
            window: Window::default(),
            mpl: MplEstimator::default(),
            tuner: Tuner::default(),
            mean_cost: None,
            recent_peak: 0.0,
            empty_periods: 0,
            had_jobs: false,
            stalled_seconds: 0.0,
            forced: None,
            after_cut: None,
            decision: Decision {
                bound: nominal,
                previous: nominal,
                reason: Reason::Start,
                error: None,
                measured_delay: None,
                control_delay: None,
                mean_cost: Cost(1.0),
                bound_jobs: nominal.get().clamp(1.0, MAX_JOBS),
                capacity: None,
                recent_peak: Cost(0.0),
                gains: None,
            },
        })
    }

    /// Applies new settings and keeps the state; on an error nothing changes.
    pub fn reconfigure(&mut self, settings: Settings) -> Result<(), SettingsError> {
        settings.validate()?;
        let other_loop = settings.sla != self.settings.sla || settings.law != self.settings.law;
        if other_loop {
            self.law.reset();
            self.load_line = LoadLine::from(self.learned());
            self.window.clear();
            self.mpl.forget();
        }
        if other_loop || settings.self_tuned != self.settings.self_tuned {
            self.tuner = Tuner::default();
        }
        if settings.mode != self.settings.mode {
            // The bound stays, but earlier delays were measured in the other mode.
            self.law.reset();
            self.tuner.gap();
            self.window.clear();
            self.load_line.mode_changed();
        }
        self.settings = settings;
        self.bound = self
            .bound
            .clamp(settings.limits.min.get(), settings.limits.max.get());
        Ok(())
    }

    /// Holds the bound at an operator's value until called with `None`; the law then resumes from it without a jump.
    pub fn force(&mut self, bound: Option<Cost>) {
        let limits = self.settings.limits;
        let bound = bound.map(|b| b.get()).filter(|b| b.is_finite());
        self.forced = bound.map(|b| b.clamp(limits.min.get(), limits.max.get()));
    }

    /// Last decision (before the first step: the nominal bound, `Reason::Start`).
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Learned state of the load line, to be kept across restarts; `None` while no rate is known.
    pub fn learned(&self) -> Option<Learned> {
        self.load_line.learned(self.mean_cost())
    }

    /// Restores the learned state of an earlier run; unsound values are discarded.
    pub fn recall(&mut self, learned: Learned) {
        let learned = Some(learned).filter(Learned::is_sound);
        self.mean_cost = learned.map(|learned| learned.mean_cost.get());
        self.load_line = LoadLine::from(learned);
    }

    /// Whether so many jobs between two steps require the next step at once: no queue has been seen yet, so nothing is
    /// limited, and these jobs will not finish in time.
    pub fn is_flooded(&self, jobs: f64) -> bool {
        let has_say = self.settings.law == Law::LoadLine && self.forced.is_none();
        has_say && self.load_line.is_flooded(jobs, &self.settings.sla)
    }

    /// Performs the step of one sampling period; `observation` is `None` if no source gave one.
    pub fn step(&mut self, observation: Option<&Observation>) -> Decision {
        let (wanted, reason, signal) = match observation {
            None => {
                self.tuner.gap();
                (self.held(), Reason::SourceLost, Signal::default())
            }
            Some(observation) => {
                let (wanted, reason, signal) = self.judge(observation);
                let (wanted, reason) = self.capped(observation, wanted, reason);
                (wanted, reason, signal)
            }
        };
        self.decide(wanted, reason, signal)
    }

    fn decide(&mut self, wanted: f64, reason: Reason, signal: Signal) -> Decision {
        let previous = self.decision.bound;
        let (bound, reason) = match self.forced {
            Some(forced) => {
                self.law.reset();
                self.tuner.gap();
                (forced, Reason::Fixed)
            }
            None => self.limit(wanted, reason),
        };
        self.bound = bound;
        let mean_cost = self.mean_cost();
        self.decision = Decision {
            bound: Cost(bound),
            previous,
            reason,
            error: signal.error,
            measured_delay: signal.measured,
            control_delay: signal.control,
            mean_cost: Cost(mean_cost),
            bound_jobs: (bound / mean_cost).clamp(1.0, MAX_JOBS),
            capacity: self.capacity(),
            recent_peak: Cost(self.recent_peak),
            gains: self.gains(),
        };
        self.decision
    }

    /// Limits the bound to the multiprogramming level if that is lower.
    fn capped(&mut self, observation: &Observation, wanted: f64, reason: Reason) -> (f64, Reason) {
        // A limit that is not applied reveals nothing about the throughput curve.
        if !self.settings.mpl || self.observes() {
            return (wanted, reason);
        }
        let mean_cost = self.mean_cost();
        let seconds = observation.period.get();
        let items = observation
            .finished_cost
            .map_or(observation.delays.count() as f64, Cost::get);
        let jobs = observation.jobs.or_else(|| by_little(observation));
        let jobs = jobs.unwrap_or(0.0);
        let limit = self.bound / mean_cost;
        match self.mpl.step(jobs, items / seconds, limit) {
            Some(level) if level * mean_cost < wanted => (level * mean_cost, Reason::Mpl),
            _ => (wanted, reason),
        }
    }

    fn judge(&mut self, observation: &Observation) -> (f64, Reason, Signal) {
        let backlog = self.note_backlog(observation);
        let had_jobs = std::mem::replace(
            &mut self.had_jobs,
            observation.jobs.is_some_and(|jobs| jobs >= 1.0),
        );
        if self.settings.law == Law::LoadLine {
            return self.hold_the_line(observation, had_jobs);
        }
        let late = observation.left_late(self.settings.sla.target());
        if observation.delays.count() == 0 && observation.failed == 0 && late.is_none() {
            self.tuner.gap();
            return self.nothing_ended(observation, had_jobs);
        }
        self.empty_periods = 0;
        self.stalled_seconds = 0.0;
        self.window.add(observation, late.as_ref(), backlog);
        let rules = self.settings.rules;
        if self.window.ended() < rules.min_samples && self.window.periods() < rules.window_periods {
            return (self.bound, Reason::FewSamples, Signal::default());
        }
        let judged = self.enough_ended(observation);
        self.window.clear();
        judged
    }

    /// Performs the step of the load line.
    fn hold_the_line(
        &mut self,
        observation: &Observation,
        had_jobs: bool,
    ) -> (f64, Reason, Signal) {
        let late = observation.left_late(self.settings.sla.target());
        let mean_cost = self.mean_cost();
        let frame = self.frame();
        if observation.delays.count() == 0 && late.is_none() {
            self.load_line.pass(observation.period);
            if observation.failed > 0 {
                return (self.cut_deep(), Reason::Errors, Signal::default());
            }
            let (bound, reason, signal) = self.nothing_ended(observation, had_jobs);
            return match reason {
                Reason::Stalled => (self.cut_deep(), reason, signal),
                Reason::Empty | Reason::IdleDrift => {
                    let kept = self.load_line.kept(&frame) * mean_cost;
                    (self.risen(kept, IDLE_RISE), Reason::Empty, signal)
                }
                _ => (bound, reason, signal),
            };
        }
        self.empty_periods = 0;
        self.stalled_seconds = 0.0;
        let ended = observation
            .delays
            .count()
            .saturating_add(observation.failed);
        if observation.failed as f64 > self.settings.rules.max_failed * ended as f64 {
            // Delays of a failing service say nothing about its capacity.
            let signal = Signal {
                error: Some(-1.0),
                measured: None,
                control: observation.delays.mean(),
            };
            return (self.cut_deep(), Reason::Errors, signal);
        }
        let stepped = self.load_line.step(observation, late.as_ref(), &frame);
        let signal = Signal {
            error: stepped
                .control
                .map(|delay| self.settings.sla.relative_error(delay)),
            measured: stepped.measured,
            control: stepped.control,
        };
        let bound = self.risen(stepped.jobs * mean_cost, RISE);
        let is_held = bound < stepped.jobs * mean_cost;
        let reason = if is_held {
            Reason::Recovering
        } else {
            stepped.reason
        };
        (bound, reason, signal)
    }

    /// Cuts to half of the admitted backlog: of the bound if it was in use, else of the recent peak.
    fn cut_deep(&mut self) -> f64 {
        if let Some(cut) = self.after_cut.filter(|_| self.observes()) {
            // The first cut was not applied, so there is no response to it that a second could follow.
            return cut;
        }
        let in_use = self.bound.min(self.recent_peak.max(self.mean_cost()));
        let cut = (DEEPEST_CUT * in_use).max(self.mean_cost());
        self.after_cut = Some(cut);
        cut
    }

    /// Wanted bound, limited to the growth allowed per period after a cut.
    fn risen(&mut self, wanted: f64, by: f64) -> f64 {
        let risen = self.after_cut.map(|cut| cut * by);
        self.after_cut = risen.filter(|risen| *risen < wanted);
        self.after_cut.unwrap_or(wanted)
    }

    fn capacity(&self) -> Option<Cost> {
        let learned = self.load_line.capacity(&self.settings.sla);
        match (learned, self.after_cut) {
            (Some(learned), Some(cut)) => Some(Cost(learned.get().min(cut))),
            (learned, cut) => learned.or(cut.map(Cost)),
        }
    }

    fn frame(&self) -> Frame {
        let mean_cost = self.mean_cost();
        let hint = self.settings.limits.nominal;
        Frame {
            sla: self.settings.sla,
            bound_jobs: self.decision.bound_jobs,
            peak_jobs: self.recent_peak / mean_cost,
            hint_jobs: hint.map(|hint| hint.get() / mean_cost),
            is_applied: !self.observes(),
        }
    }

    fn observes(&self) -> bool {
        self.settings.mode.observes()
    }

    /// Updates mean cost and recent peak; returns the period's peak backlog.
    fn note_backlog(&mut self, observation: &Observation) -> Cost {
        let finished = observation.delays.count();
        if let Some(cost) = observation.finished_cost.map(Cost::get)
            && finished > 0
            && cost.is_finite()
            && cost / finished as f64 > MIN_COST
        {
            let mean = cost / finished as f64;
            let smoothed = self
                .mean_cost
                .map_or(mean, |old| old + COST_SMOOTHING * (mean - old));
            self.mean_cost = Some(smoothed);
        }
        let jobs = [observation.peak_jobs, observation.jobs]
            .into_iter()
            .flatten()
            .filter(|jobs| jobs.is_finite() && *jobs >= 0.0)
            .reduce(f64::max)
            .or_else(|| by_little(observation))
            .unwrap_or(0.0);
        let backlog = jobs * self.mean_cost();
        self.recent_peak = backlog.max(self.recent_peak * PEAK_DECAY);
        Cost(backlog)
    }

    /// Starting bound of the papers' laws, whose settings are invalid without one.
    fn nominal(&self) -> f64 {
        let limits = self.settings.limits;
        limits.nominal.unwrap_or(limits.max).get()
    }

    fn mean_cost(&self) -> f64 {
        self.mean_cost.unwrap_or(1.0)
    }

    fn limit(&self, wanted: f64, reason: Reason) -> (f64, Reason) {
        let limits = self.settings.limits;
        let max = limits.max.get();
        // Below one job the bound has no effect and would only wind down.
        let min = limits.min.get().max(self.mean_cost()).min(max);
        if !wanted.is_finite() {
            return (self.bound.clamp(min, max), reason);
        }
        if wanted < min && self.bound >= wanted {
            (min, Reason::AtMin)
        } else if wanted > max {
            (max, Reason::AtMax)
        } else {
            (wanted.max(min), reason)
        }
    }
}

/// Mean number of jobs in the node, by Little's law from the finished requests.
fn by_little(observation: &Observation) -> Option<f64> {
    let seconds = observation.period.get();
    let mean = observation.delays.mean()?;
    (seconds > 0.0).then(|| observation.delays.count() as f64 * mean.get() / seconds)
}

fn direction(error: f64, change: f64) -> Reason {
    match (error < 0.0, change < 0.0) {
        (true, true) => Reason::OverSla,
        (false, false) => Reason::UnderSla,
        (false, true) => Reason::Rising,
        (true, false) => Reason::Falling,
    }
}
