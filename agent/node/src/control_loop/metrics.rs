//! Metrics of the control loops.

use plimsoll_core::{Observation, Seconds};
use plimsoll_exposition::Catalogue;
use plimsoll_signal::{role::RoleMetrics, sources::SourceMetrics, updates::UpdateMetrics};

use super::{ControlMetrics, RequestMetrics, ServiceConfig};
use crate::{overrides::ServiceOverride, state::ServiceState};

/// Metrics of all control loops. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    /// Measurements and decisions.
    pub control: ControlMetrics,
    /// Requests that ended.
    pub requests: RequestMetrics,
    /// Delay sources.
    pub source: SourceMetrics,
    /// Update periods of temporal data.
    pub updates: UpdateMetrics,
    /// Roles of databases.
    pub role: RoleMetrics,
}

impl LoopMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> prometheus::Result<Self> {
        Ok(LoopMetrics {
            requests: RequestMetrics::new(catalogue)?,
            control: ControlMetrics::new(catalogue)?,
            source: SourceMetrics::new(catalogue)?,
            updates: UpdateMetrics::new(catalogue)?,
            role: RoleMetrics::new(catalogue)?,
        })
    }

    /// Creates the counters of a service's loop with value 0.
    pub fn announce(&self, service: &ServiceConfig) {
        let from_log = service.source.log_listen().is_some();
        self.control.services.announce(&service.name);
        self.requests.announce(&service.name);
        self.source.announce(&service.name, from_log);
        match &service.updates {
            Some(_) => self.updates.services.announce(&service.name),
            None => self.updates.services.forget(&service.name),
        }
    }

    /// Records the observation of a period that ended at the Unix time `at`.
    pub fn observed(&self, service: &str, sla: Seconds, observation: &Observation, at: f64) {
        self.requests.ended(service, sla, observation);
        self.source.succeeded(service, observation, at);
    }

    /// Sets the gauges of a service; `set` is its overrides.
    pub fn show(&self, state: &ServiceState, set: &ServiceOverride) {
        self.control.show(state, set);
        self.source
            .show_unseen(&state.service, state.sight, state.listen_backlog);
        if let Some(updates) = &state.updates {
            self.updates.show(&state.service, updates);
        }
        match &state.role {
            Some(role) => self.role.show(&state.service, role),
            None => self.role.services.forget(&state.service),
        }
    }

    /// Removes all series of a service.
    pub fn forget(&self, service: &str) {
        self.control.services.forget(service);
        self.requests.forget(service);
        self.source.forget(service);
        self.updates.services.forget(service);
        self.role.services.forget(service);
    }
}
