//! The load line: bursts up to the target at the rate learned, and no queue that stands.
//!
//! Works in jobs. By Little's law a node that finishes `rate` requests a second has `rate · target` jobs when they take
//! the target: that is the bound for a burst. Where it stays filled although proxies refuse what does not fit, the
//! queue only adds delay (CoDel's insight), and the bound goes to the fewest jobs that keep the node busy: those of
//! `rate · unloaded`, and some in reserve. Where throughput falls with it, it rises again at once.

mod learning;
mod standing;

use serde::{Deserialize, Serialize};

use super::window::Window;
use crate::{Cost, DelayHistogram, Observation, Reason, Seconds, Sla};

/// Jobs that are let in at least while nothing has waited yet, and once a rate was seen.
pub(super) const OPEN_JOBS: f64 = 64.0;
const SEEN_JOBS: f64 = 8.0;
/// And so many times as many as there were of late: nothing is limited, and still no flood comes at once.
const OPEN_HEADROOM: f64 = 2.0;
/// Jobs over the bound from which the bound counts as filled, on average over a period.
const FULL: f64 = 0.8;
/// Below this the queue no longer stands.
const DRAINED: f64 = 0.6;
/// Refused share from which more is asked for than the node can do; below the second it is no more.
const PRESSED: f64 = 0.1;
const RELEASED: f64 = 0.02;
/// Full periods until a queue is taken for a standing one, where refusals are known, and where they are not: what
/// comes and goes at high load fills the bound for that long, too.
const STANDING_KNOWN: u32 = 1;
const STANDING_UNKNOWN: u32 = 3;
/// After so many periods without an end no queue stands.
const EMPTY_PERIODS: u32 = 3;
/// For so many periods after an overload the next one is known for one at once.
const REMEMBERED: u32 = 30;
/// Mean delay over the target from which a node without a known rate counts as full.
const FIRST_SIGN: f64 = 0.6;
/// Unloaded delay that is at least so many times less than a full node's is trusted, and tells a full node.
const CLEARLY: f64 = 3.0;
/// And over what a request takes unloaded, where that is known: slow requests are no queue.
const FIRST_RISE: f64 = 1.5;
/// And jobs: with so few a single worker has hardly a queue.
const FIRST_JOBS: f64 = 3.0;
/// Jobs in reserve, beside those that an unloaded node needs, so that it is never idle: a number, and so many times
/// the root of those that are needed (square-root staffing; Halfin and Whitt, Operations Research 29(3), 1981).
const RESERVE_JOBS: f64 = 1.5;
const RESERVE_OF_ROOT: f64 = 2.0;
/// With fewer than these, or than an unloaded node needs, nothing gets faster, as long as so many finish in time.
const MIN_JOBS: f64 = 3.0;
/// What is left of the reserve where fewer jobs did more.
const CONTENDED: f64 = 0.4;
/// By how much more they did at least.
const CONTENTION_SEEN: f64 = 0.1;
/// Requests that a rate of late is a mean over.
const RECENT_SAMPLES: f64 = 200.0;
/// Requests that the rate is a mean over, at most.
const RATE_SAMPLES: f64 = 1000.0;
/// A rate is told from the one known by so many standard deviations and this part of it.
const DEVIATIONS: f64 = 2.0;
const MIN_CHANGE: f64 = 0.05;
/// So many times as many for a bound that starves the node: it is asked each period, and chance has as many turns.
const STARVED: f64 = 1.5;
/// What unloaded delay is lowered by in a period in which the queue stands, while it was only seen under load.
const DESCENT: f64 = 0.9;
/// After it fell fewer jobs are not tried for so many periods, at most; each time for twice as many.
const MAX_PAUSE: u32 = 300;
/// What is left of a larger reserve after a period.
const RESERVE_DECAY: f64 = 0.99;
/// Requests whose mean delay says something.
const MIN_SEEN: f64 = 10.0;
/// As long as throughput has fallen by no more than this part of the best, over so many requests; back where it has
/// fallen by more than the second.
const UNHARMED: f64 = 0.02;
const HARMED: f64 = 0.05;
const LEVEL_SAMPLES: f64 = 180.0;
/// An unloaded delay below this part of the target is low enough, unless fewer jobs do more.
const LOW: f64 = 0.1;
/// What the bound grows by in a period where throughput fell with it, and where a hint was too low.
const GROWTH: f64 = 1.3;
const HINT_GROWTH: f64 = 2.0;
/// Samples for the objective, and periods after which fewer will do.
const SAMPLES: u64 = 100;
const PERIODS: u32 = 10;
/// What is late by its whole target lowers the bound by this part, and what is in time raises it again by the second.
const LOWERED: f64 = 0.3;
const RAISED: f64 = 1.1;
const MIN_CORRECTION: f64 = 0.05;
/// A bound that is passed by more is not obeyed: what it does to delays cannot be known.
const DISOBEYED: f64 = 1.25;
/// The objective's delay is within these multiples of the mean one.
const SPREADS: (f64, f64) = (1.0, 4.0);
const SPREAD_WEIGHT: f64 = 0.2;
/// Until it was seen: between equal requests, 1, and exponential ones, 3.
const SPREAD: f64 = 1.6;
/// Weight of a new mean delay in what is unloaded, where it is less and where it is more.
const FASTER: f64 = 0.5;
const SLOWER: f64 = 0.05;
/// What is left of the most it did after a period.
const SHOWN_DECAY: f64 = 0.999;
/// A node without a queue, whose delay is below so many times the unloaded one, is at this part of its rate at most.
const UNQUEUED: f64 = 1.3;
const UNHURRIED: f64 = 0.8;
/// Jobs that are let in at least by the rate of late.
const MIN_OF_LATE: f64 = 4.0;
/// No more jobs than these are no flood.
const FLOOD_JOBS: f64 = 5.0;
/// Requests behind the rate of late, or it foretells and limits nothing.
const FLOOD_SAMPLES: f64 = 20.0;
/// A rate below this part of the known one is light load.
const LIGHT: f64 = 0.6;

/// What is known of a node, worth keeping over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Requests/s that it finishes when it is full.
    pub rate: f64,
    /// What a request takes on average where nothing waits.
    pub unloaded: Seconds,
    /// The objective's delay over the mean delay when it is full.
    pub spread: f64,
    /// Mean cost of a request.
    pub mean_cost: Cost,
}

impl Learned {
    /// Whether every figure can be.
    pub fn is_sound(&self) -> bool {
        let positive = |figure: f64| figure.is_finite() && figure > 0.0;
        positive(self.rate)
            && self.unloaded.get().is_finite()
            && self.unloaded.get() >= 0.0
            && (SPREADS.0..=SPREADS.1).contains(&self.spread)
            && positive(self.mean_cost.get())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// What comes in a burst is let in; all, while no rate is known.
    #[default]
    Burst,
    /// It stayed.
    Standing,
}

/// The state of the law.
#[derive(Clone, Debug)]
pub(super) struct LoadLine {
    mode: Mode,
    /// Requests/s when full, and over how many requests that is a mean.
    rate: Option<f64>,
    rate_samples: f64,
    /// Of late, whether full or not.
    recent: Recent,
    unloaded: Option<f64>,
    /// Requests of a node that was not full, behind `unloaded`.
    rested: f64,
    /// Periods until fewer jobs are tried again, and how many there were the last time.
    pause: u32,
    pauses: u32,
    spread: f64,
    /// Mean cost of a request, over as many as the rate.
    cost: Option<f64>,
    window: Window,
    /// On the bound, by what the objective came to: at most 1.
    correction: f64,
    /// Whether that was over the target when it was last judged.
    is_late: bool,
    /// On the reserve, by what throughput came to.
    reserve: f64,
    /// Rate while full at the burst's bound.
    burst_rate: Recent,
    /// Rate since the queue was taken for a standing one.
    standing_rate: Recent,
    /// The best of those that were seen while fewer and fewer jobs were tried.
    best: f64,
    /// The most it did of late, in requests/s.
    shown_rate: f64,
    full_periods: u32,
    since_standing: u32,
    jobs_before: Option<f64>,
    /// How long nothing has ended, and for how many periods.
    empty_seconds: f64,
    empty_periods: u32,
}

impl Default for LoadLine {
    fn default() -> Self {
        LoadLine {
            mode: Mode::Burst,
            rate: None,
            rate_samples: 0.0,
            recent: Recent::default(),
            unloaded: None,
            rested: 0.0,
            pause: 0,
            pauses: 0,
            spread: SPREAD,
            cost: None,
            window: Window::default(),
            correction: 1.0,
            is_late: false,
            reserve: 1.0,
            burst_rate: Recent::default(),
            standing_rate: Recent::default(),
            best: 0.0,
            shown_rate: 0.0,
            full_periods: 0,
            since_standing: REMEMBERED,
            jobs_before: None,
            empty_seconds: 0.0,
            empty_periods: 0,
        }
    }
}

/// Rate over the last requests.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    ended: f64,
    seconds: f64,
}

impl Recent {
    fn add(&mut self, ended: f64, seconds: f64, samples: f64) {
        let left = (1.0 - ended / samples).clamp(0.0, 0.9);
        self.ended = left * self.ended + ended;
        self.seconds = left * self.seconds + seconds;
    }

    /// The change of its rate that chance does not make.
    fn noise(&self) -> f64 {
        (DEVIATIONS / self.ended.max(1.0).sqrt()).max(MIN_CHANGE)
    }

    fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.ended / self.seconds
        } else {
            0.0
        }
    }
}

/// What the law goes by besides the period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) sla: Sla,
    /// Bound in force, in jobs.
    pub(super) bound_jobs: f64,
    /// Recent peak, in jobs.
    pub(super) peak_jobs: f64,
    /// The bound to begin with, in jobs.
    pub(super) hint_jobs: Option<f64>,
    /// Whether proxies are told the bound. Where they are not, delays and throughput are no answer to it, and
    /// what goes by their answers must stay as it is.
    pub(super) is_applied: bool,
}

/// A period in jobs and seconds.
#[derive(Clone, Copy, Debug)]
struct Period {
    ended: f64,
    seconds: f64,
    rate: f64,
    /// In the node, on average.
    jobs: f64,
    /// Mean delay.
    delay: f64,
    refused: Option<f64>,
}

/// What a step came to.
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
            // An old figure gives way to a new one soon.
            rate_samples: RATE_SAMPLES / 6.0,
            unloaded: Some(learned.unloaded.get()),
            rested: SAMPLES as f64,
            spread: learned.spread,
            cost: Some(learned.mean_cost.get()),
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
        })
    }

    /// What finishes within the target at the rate learned.
    pub(super) fn capacity(&self, sla: &Sla) -> Option<Cost> {
        let jobs = self.rate? * sla.target().get() * self.correction;
        Some(Cost(jobs * self.cost.unwrap_or(1.0)))
    }

    /// One step, for a period in which something ended.
    /// `late` are those of it who left late.
    pub(super) fn step(
        &mut self,
        seen: &Observation,
        late: Option<&DelayHistogram>,
        frame: &Frame,
    ) -> Stepped {
        let target = frame.sla.target().get();
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
        self.since_standing = self.since_standing.saturating_add(1);
        // While more than the bound drains, requests end that were begun before: more than the node can go on doing.
        if self.mode == Mode::Standing && is_full && use_of <= DISOBEYED {
            self.standing_rate
                .add(period.ended, period.seconds, RECENT_SAMPLES);
        }
        self.window.add(seen, late, Cost(period.jobs));
        // Where the source's clock began late, so did each request's.
        let unseen = seen.unseen.map_or(0.0, Seconds::get).max(0.0);
        let measured = self.window.objective(&frame.sla);
        let measured = measured.map(|measured| Seconds(measured.get() + unseen));
        if self.window.ended() >= SAMPLES || self.window.periods() >= PERIODS {
            self.judge(measured, target, use_of, frame.is_applied);
            self.window.clear();
        }
        let foretold = seen.jobs.map_or(0.0, |jobs| jobs / period.rate);
        self.learn(&period, is_full, foretold, target);
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
        } else if self.is_late && self.correction < 1.0 {
            Reason::OverSla
        } else {
            of_mode
        };
        stepped(jobs, reason)
    }

    /// From now on the bound is applied, or no longer.
    pub(super) fn mode_changed(&mut self) {
        self.window.clear();
        self.standing_rate = Recent::default();
    }

    /// A period in which nothing ended.
    pub(super) fn pass(&mut self, seconds: Seconds) {
        self.empty_seconds += seconds.get().max(0.0);
        self.empty_periods += 1;
        if self.mode == Mode::Standing && self.empty_periods >= EMPTY_PERIODS {
            self.mode = Mode::Burst;
            self.full_periods = 0;
        }
    }

    /// The bound of a node that nothing more is known of than before, in jobs.
    pub(super) fn kept(&self, frame: &Frame) -> f64 {
        let target = frame.sla.target().get();
        match self.rate {
            Some(rate) if self.mode == Mode::Standing => self.standing(rate, target),
            Some(rate) => self.burst(rate, target) * self.correction,
            None => self.open(frame),
        }
    }

    /// The bound while nothing has waited yet.
    fn open(&self, frame: &Frame) -> f64 {
        let shown = self.shown_rate * frame.sla.target().get();
        let least = if self.has_shown() {
            SEEN_JOBS
        } else {
            frame.hint_jobs.unwrap_or(OPEN_JOBS)
        };
        least.max(OPEN_HEADROOM * frame.peak_jobs).max(shown)
    }

    /// Whether what it was seen to do says something.
    fn has_shown(&self) -> bool {
        self.recent.ended >= FLOOD_SAMPLES
    }

    /// The fewest jobs that keep the node busy; where they are not known, what would finish within the target at the
    /// rate of late.
    pub(super) fn cautious(&self, sla: &Sla) -> Option<f64> {
        let target = sla.target().get();
        match self.rate {
            Some(rate) => Some(self.standing(rate, target)),
            None if self.recent.ended > 0.0 => Some((self.recent.rate() * target).max(MIN_OF_LATE)),
            None => None,
        }
    }

    /// Whether so many jobs are the first sign of a queue at the most that the node has done, while nothing limits
    /// them yet.
    pub(super) fn is_flooded(&self, jobs: f64, sla: &Sla) -> bool {
        let within = if self.has_shown() {
            FIRST_SIGN * self.shown_rate * sla.target().get()
        } else {
            0.0
        };
        self.rate.is_none() && jobs > within.max(FLOOD_JOBS)
    }

    /// What finishes within the target at this rate, and keeps the node busy at least.
    fn burst(&self, rate: f64, target: f64) -> f64 {
        (rate * target / self.spread).max(self.busy(rate, target))
    }

    /// The fewest jobs that keep the node busy.
    fn busy(&self, rate: f64, target: f64) -> f64 {
        let need = self.need(rate, target);
        (need + self.reserve * (RESERVE_JOBS + RESERVE_OF_ROOT * need.sqrt())).max(1.0)
    }

    /// Likewise, less what the objective asks for.
    fn standing(&self, rate: f64, target: f64) -> f64 {
        (self.busy(rate, target) * self.correction).max(self.least(rate, target))
    }

    /// The correction below which the standing bound stays as it is.
    fn least_correction(&self, target: f64) -> f64 {
        match (self.mode, self.rate) {
            (Mode::Standing, Some(rate)) => {
                let part = self.least(rate, target) / self.busy(rate, target);
                part.clamp(MIN_CORRECTION, 1.0)
            }
            _ => MIN_CORRECTION,
        }
    }

    /// Fewer jobs make nothing faster.
    fn least(&self, rate: f64, target: f64) -> f64 {
        MIN_JOBS.min(rate * target).max(self.need(rate, target))
    }

    /// Jobs that a node without a queue has at this rate.
    fn need(&self, rate: f64, target: f64) -> f64 {
        rate * self.unloaded.unwrap_or(target).min(target)
    }
}
