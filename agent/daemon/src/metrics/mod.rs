//! Metrics: one file for each part of the agent. docs/metrics.md is written from them.

mod agent;
mod control;
mod envoy;
mod gather;
mod partitions;
mod placement;
mod reference;
mod requests;
mod ring;
mod role;
mod source;
mod updates;

use plimsoll_core::{Observation, Seconds};
use plimsoll_exposition::Catalogue;
use prometheus::Result;

use crate::{
    config::ServiceConfig, overrides::ServiceOverride, sources::SourceConfig, state::ServiceState,
};

pub use agent::{AgentMetrics, ProcessMetrics};
pub use control::ControlMetrics;
pub use envoy::EnvoyMetrics;
pub use gather::GatherMetrics;
pub use partitions::{PartitionMetrics, QueryMetrics};
pub use placement::PlacementMetrics;
pub use reference::markdown;
pub use requests::RequestMetrics;
pub use ring::RingMetrics;
pub use role::RoleMetrics;
pub use source::SourceMetrics;
pub use updates::UpdateMetrics;

/// All but the agent-check server's; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Of the control loops.
    pub control: ControlMetrics,
    /// Of what finished.
    pub requests: RequestMetrics,
    /// Of the sources.
    pub source: SourceMetrics,
    /// Of the shared rings.
    pub ring: RingMetrics,
    /// Of temporal data.
    pub updates: UpdateMetrics,
    /// Of databases with replicas.
    pub role: RoleMetrics,
    /// Of queries in partitions.
    pub partitions: PartitionMetrics,
    /// Of the table of primaries.
    pub placement: PlacementMetrics,
    /// Of what stock Envoy is told.
    pub envoy: EnvoyMetrics,
    /// Of the agent itself.
    pub agent: AgentMetrics,
}

impl Metrics {
    /// Registers them.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        Ok(Metrics {
            requests: RequestMetrics::new(catalogue)?,
            control: ControlMetrics::new(catalogue)?,
            source: SourceMetrics::new(catalogue)?,
            ring: RingMetrics::new(catalogue)?,
            updates: UpdateMetrics::new(catalogue)?,
            role: RoleMetrics::new(catalogue)?,
            partitions: PartitionMetrics::new(catalogue)?,
            placement: PlacementMetrics::new(catalogue)?,
            envoy: EnvoyMetrics::new(catalogue)?,
            agent: AgentMetrics::new(catalogue)?,
        })
    }

    /// Makes the counters of a service's loop appear with zero.
    pub fn announce(&self, service: &ServiceConfig) {
        let from_log = matches!(service.source, SourceConfig::HaproxyLog { .. });
        self.control.services.announce(&service.name);
        self.requests.announce(&service.name);
        self.source.announce(&service.name, from_log);
        match &service.updates {
            Some(_) => self.updates.services.announce(&service.name),
            None => self.updates.services.forget(&service.name),
        }
    }

    /// After a period that was observed, which ended at this Unix time.
    pub fn observed(&self, service: &str, sla: Seconds, observation: &Observation, at: f64) {
        self.requests.ended(service, sla, observation);
        self.source.succeeded(service, observation, at);
    }

    /// Brings the gauges up to date.
    pub fn show(&self, state: &ServiceState, set: &ServiceOverride) {
        self.control.show(state, set);
        self.source.show_unseen(state);
        if let Some(updates) = &state.updates {
            self.updates.show(&state.service, updates);
        }
        match &state.role {
            Some(role) => self.role.show(&state.service, role),
            None => self.role.services.forget(&state.service),
        }
    }

    /// Takes out all of a service that was removed.
    pub fn forget(&self, service: &str) {
        self.control.services.forget(service);
        self.requests.forget(service);
        self.source.forget(service);
        self.ring.forget(service);
        self.updates.services.forget(service);
        self.role.services.forget(service);
        self.envoy.forget(service);
    }
}
