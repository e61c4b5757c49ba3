//! The controller of one node: guard rules around a control law.

mod settings;

pub use settings::{BoundLimits, Law, PiForm, PiGains, Rules, Settings, SettingsError};

use serde::Serialize;

use crate::{Cost, Observation, Reason, Seconds};

/// What one step decided, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// `d`: the most backlog the node may hold from now on.
    pub bound: Cost,
    /// The bound before this step.
    pub previous: Cost,
    /// The rule that set it.
    pub reason: Reason,
    /// The relative error the law worked on, in [-1, 1].
    pub error: Option<f64>,
    /// The objective measured on what finished (mean or quantile).
    pub measured_delay: Option<Seconds>,
    /// The delay the law worked on: the measured one, or what unfinished work foretells.
    pub control_delay: Option<Seconds>,
    /// Mean cost of a request, smoothed.
    pub mean_cost: Cost,
    /// The bound in jobs: `bound / mean_cost`.
    pub bound_jobs: f64,
    /// Recent peak backlog, decaying.
    pub recent_peak: Cost,
}

/// Keeps one node's backlog bound.
#[derive(Clone, Debug)]
pub struct NodeController {
    settings: Settings,
}

impl NodeController {
    /// A controller at the nominal bound.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(NodeController { settings })
    }

    /// Takes new settings and keeps its state; on an error nothing changes.
    pub fn reconfigure(&mut self, settings: Settings) -> Result<(), SettingsError> {
        settings.validate()?;
        self.settings = settings;
        Ok(())
    }

    /// One step per sampling period; `None` when no source gave an observation.
    pub fn step(&mut self, _observation: Option<&Observation>) -> Decision {
        todo!()
    }

    /// Holds the bound at an operator's value until `None`; the law resumes from it without a bump.
    pub fn force(&mut self, _bound: Option<Cost>) {
        todo!()
    }

    /// The last decision (before the first step: the nominal bound, `Reason::Start`).
    pub fn decision(&self) -> Decision {
        todo!()
    }
}
