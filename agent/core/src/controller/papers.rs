//! Evaluation of a period for the papers' laws, with their guard rules.

use super::{
    BRAKE_RATIO, CARRIED_SHARE, DEEPEST_CUT, DRIFT, DRIFT_END, Law, NodeController, OVER_BOUND,
    PiGains, Settings, Signal, direction,
};
use crate::{Observation, Reason, Seconds};

impl NodeController {
    pub(super) fn nothing_ended(
        &mut self,
        observation: &Observation,
        had_jobs: bool,
    ) -> (f64, Reason, Signal) {
        let sla = self.settings.sla;
        let oldest = observation.oldest_age.map_or(0.0, Seconds::get);
        if self.had_jobs || oldest > 0.0 {
            self.empty_periods = 0;
            // Jobs that were not there a period ago may have arrived a moment ago.
            if had_jobs {
                self.stalled_seconds += observation.period.get().max(0.0);
            }
            let wait = Seconds(oldest.max(self.stalled_seconds));
            let patience = match self.settings.law {
                Law::LoadLine => self.load_line.patience(&sla),
                _ => sla.target(),
            };
            if wait <= patience {
                return (self.bound, Reason::FewSamples, Signal::default());
            }
            let error = sla.relative_error(wait);
            let signal = Signal {
                error: Some(error),
                measured: None,
                control: Some(wait),
            };
            self.law.hold(Some(error));
            self.begin_anew();
            return (self.bound * DEEPEST_CUT, Reason::Stalled, signal);
        }
        self.stalled_seconds = 0.0;
        self.empty_periods = self.empty_periods.saturating_add(1);
        self.law.reset();
        if self.empty_periods <= self.settings.rules.empty_hold_periods {
            return (self.bound, Reason::Empty, Signal::default());
        }
        let drifted = self.drawn_to(self.nominal());
        (drifted, Reason::IdleDrift, Signal::default())
    }

    pub(super) fn enough_ended(&mut self, observation: &Observation) -> (f64, Reason, Signal) {
        let Settings { sla, rules, .. } = self.settings;
        let measured = self.window.objective(&sla);
        let mut control = measured.unwrap_or(sla.target());
        let mut late = false;
        let with_oldest = observation
            .oldest_age
            .filter(|age| age.get().is_finite())
            .and_then(|age| self.window.objective_with_oldest(&sla, age));
        let unseen = observation.unseen.filter(|unseen| unseen.get() > 0.0);
        if let (Some(unseen), Some(measured)) = (unseen, measured) {
            control = Seconds(measured.get() + unseen.get());
        }
        let foretold = self.window.foretold(observation.jobs);
        for foretold in [with_oldest, foretold].into_iter().flatten() {
            if foretold > control {
                control = foretold;
                late = true;
            }
        }
        let failing = self.window.failed_share() > rules.max_failed;
        let error = if failing {
            -1.0
        } else {
            sla.relative_error(control)
        };
        let signal = Signal {
            error: Some(error),
            measured,
            control: Some(control),
        };
        self.begin_anew();
        let over_bound = self.over_bound(foretold, observation.jobs);
        self.learn(control, failing || over_bound.is_some() || self.observes());
        let before = self.law;
        let wanted = self.law_wants(error, control);
        if !matches!(self.settings.law, Law::Pi { .. }) {
            let reason = match self.settings.law {
                Law::Fixed => Reason::Fixed,
                _ => direction(error, wanted - self.bound),
            };
            return (wanted, reason, signal);
        }
        if failing {
            return (wanted, Reason::Errors, signal);
        }
        if let Some(floor) = over_bound
            && wanted < floor
        {
            self.law = before;
            self.law.hold(Some(error));
            return (floor, Reason::OverBound, signal);
        }
        if let Some(carried) = self.brake(foretold, observation.jobs) {
            return (wanted.min(carried), Reason::LateSignal, signal);
        }
        if let Some(cap) = self.unused_cap() {
            self.law = before;
            self.law.hold(Some(error));
            let drawn = self.drawn_to(cap).min(wanted);
            return (drawn, Reason::Unused, signal);
        }
        if wanted > self.bound && self.lightly_loaded() {
            self.law = before;
            self.law.hold(Some(error));
            // A node with a low bound gets little traffic, so without this it would keep the low bound forever.
            let cap = (rules.headroom * self.recent_peak).min(self.nominal());
            if self.bound < cap {
                let drawn = self.drawn_to(cap).min(wanted);
                return (drawn, Reason::Recovering, signal);
            }
            return (self.bound, Reason::LightLoad, signal);
        }
        let is_lowered = wanted < self.bound && error < 0.0;
        let reason = if unseen.is_some() && is_lowered {
            Reason::BlindSource
        } else if late && is_lowered {
            Reason::LateSignal
        } else {
            direction(error, wanted - self.bound)
        };
        (wanted, reason, signal)
    }

    /// In observe mode, starts each step from the node's present backlog: an integrator whose bound is not applied
    /// would wind up or down.
    pub(super) fn begin_anew(&mut self) {
        if self.observes() {
            self.bound = self.recent_peak.max(self.nominal());
        }
    }

    /// Adapts the gains to the node's response to its bound.
    pub(super) fn learn(&mut self, control: Seconds, disturbed: bool) {
        let Settings { sla, law, .. } = self.settings;
        let Law::Pi { gains, .. } = law else { return };
        if !self.settings.self_tuned {
            return;
        }
        if disturbed || self.lightly_loaded() {
            self.tuner.gap();
            return;
        }
        let periods = sla.settling.get() / self.window.seconds();
        let ratio = control.get() / sla.target().get();
        self.tuner.note(self.bound, ratio, periods, gains);
    }

    /// Gains in use; `None` if the law has none.
    pub(super) fn gains(&self) -> Option<PiGains> {
        match self.settings.law {
            Law::Pi { gains, .. } => Some(self.tuner.gains(gains)),
            _ => None,
        }
    }

    pub(super) fn law_wants(&mut self, error: f64, control: Seconds) -> f64 {
        let Settings { sla, mut law, .. } = self.settings;
        if let (Law::Pi { gains, .. }, Some(found)) = (&mut law, self.gains()) {
            *gains = found;
        }
        let ratio = control.get() / sla.target().get();
        let wanted = self
            .law
            .wanted(&law, self.bound, self.nominal(), error, ratio);
        if self.settings.self_tuned {
            // High gains must not empty the node after one bad period.
            return wanted.max(self.bound * DEEPEST_CUT);
        }
        wanted
    }

    /// Backlog that finishes within the target at the present rate, if the present jobs will take far longer.
    /// Computed from the rate and not from the bound, so that the bound is not cut twice for the same queue.
    pub(super) fn brake(&self, foretold: Option<Seconds>, jobs: Option<f64>) -> Option<f64> {
        let target = self.settings.sla.target().get();
        let foretold = foretold?.get();
        if foretold <= BRAKE_RATIO * target {
            return None;
        }
        let carried = jobs? * target / foretold * self.mean_cost();
        Some(carried.max(self.bound * DEEPEST_CUT))
    }

    /// Minimum bound while the backlog exceeds the bound: the bound then did not cause the delay, and repeated cuts
    /// would reduce it to nothing.
    pub(super) fn over_bound(&self, foretold: Option<Seconds>, jobs: Option<f64>) -> Option<f64> {
        let (jobs, foretold) = (jobs?, foretold?.get());
        let backlog = jobs * self.mean_cost();
        if foretold <= 0.0 || backlog <= OVER_BOUND * self.bound {
            return None;
        }
        let carried = backlog * self.settings.sla.target().get() / foretold;
        Some((CARRIED_SHARE * carried).min(self.bound))
    }

    pub(super) fn drawn_to(&self, goal: f64) -> f64 {
        let left = goal - self.bound;
        if left.abs() <= DRIFT_END * goal {
            return goal;
        }
        self.bound + DRIFT * left
    }

    /// Whether the load was too light for the bound to cause the delay. Compared in whole jobs, as the proxy applies
    /// it: a bound of 1.9 jobs is never filled by more than one.
    pub(super) fn lightly_loaded(&self) -> bool {
        let mean_cost = self.mean_cost();
        let applied_jobs = (self.bound / mean_cost).floor().max(1.0);
        let peak_jobs = self.window.peak_backlog().get() / mean_cost;
        peak_jobs < self.settings.rules.light_load * applied_jobs
    }

    /// Maximum bound for the recent use, if the bound is above it.
    pub(super) fn unused_cap(&self) -> Option<f64> {
        let used = self.settings.rules.headroom * self.recent_peak;
        let cap = used.max(self.nominal());
        (self.bound > cap).then_some(cap)
    }
}
