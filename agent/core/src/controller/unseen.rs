//! The bound while the source shows nothing: of one that is late, and of one that is lost.

use super::{DEEPEST_CUT, Decision, Law, NodeController, Signal};
use crate::{Reason, Seconds};

impl NodeController {
    /// In place of a step where the source did not answer in time, as an overloaded service does: `waited` is how long
    /// there has been no answer (see [`Silence`](crate::Silence)), `jobs` what another source counts in the node.
    pub fn step_late(&mut self, waited: Seconds, jobs: Option<f64>) -> Decision {
        let sla = self.settings.sla;
        if waited <= sla.target() && jobs.is_none_or(|jobs| jobs < self.decision.bound_jobs) {
            return self.step(None);
        }
        self.tuner.gap();
        self.window.clear();
        let mean_cost = self.mean_cost();
        let cautious = match self.settings.law {
            Law::LoadLine => self.load_line.cautious(&sla),
            _ => None,
        };
        let wanted = match cautious {
            Some(jobs) => (jobs * mean_cost).min(self.bound),
            None if self.observes() && self.decision.reason == Reason::SourceLate => self.bound,
            None => {
                self.begin_anew();
                self.bound * DEEPEST_CUT
            }
        };
        let error = sla.relative_error(waited);
        self.law.hold(Some(error));
        let signal = Signal {
            error: Some(error),
            measured: None,
            control: Some(waited),
        };
        self.decide(wanted, Reason::SourceLate, signal)
    }

    /// The bound while nothing is seen: as it is, but no more than finished within the target when something was.
    pub(super) fn held(&self) -> f64 {
        let finished = match self.settings.law {
            Law::LoadLine => self.load_line.kept(&self.frame()) * self.mean_cost(),
            Law::Fixed => self.bound,
            _ => self.finished_in_time(),
        };
        self.bound.min(finished)
    }

    /// The backlog that would have finished within the target where the last step saw it finish late, in cost;
    /// infinite otherwise.
    fn finished_in_time(&self) -> f64 {
        let target = self.settings.sla.target();
        let Decision {
            measured_delay,
            control_delay,
            previous,
            ..
        } = self.decision;
        let seen = control_delay.filter(|_| measured_delay.is_some());
        match seen.filter(|delay| *delay > target) {
            Some(delay) => previous.get().max(self.recent_peak) * target.get() / delay.get(),
            None => f64::INFINITY,
        }
    }
}
