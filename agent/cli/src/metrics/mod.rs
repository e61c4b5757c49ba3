//! All metrics of the agent, in the order of docs/metrics.md, which is written from them.

mod agent;
mod reference;

use plimsoll_exposition::Catalogue;
use plimsoll_node::{control_loop::LoopMetrics, placement::PlacementMetrics, ring::RingMetrics};
use plimsoll_outputs::envoy::EnvoyMetrics;
use plimsoll_scatter::partition::PartitionMetrics;
use prometheus::Result;

pub use agent::{AgentMetrics, ProcessMetrics};
pub use reference::markdown;

/// All but the agent-check server's; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Of the services' loops.
    pub loops: LoopMetrics,
    /// Of the shared rings.
    pub ring: RingMetrics,
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
            loops: LoopMetrics::new(catalogue)?,
            ring: RingMetrics::new(catalogue)?,
            partitions: PartitionMetrics::new(catalogue)?,
            placement: PlacementMetrics::new(catalogue)?,
            envoy: EnvoyMetrics::new(catalogue)?,
            agent: AgentMetrics::new(catalogue)?,
        })
    }

    /// Takes out all of a service that was removed.
    pub fn forget(&self, service: &str) {
        self.loops.forget(service);
        self.ring.forget(service);
        self.envoy.forget(service);
    }
}
