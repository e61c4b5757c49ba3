//! All metrics of the agent, in the order of docs/metrics.md, which is generated from them.

mod agent;
mod reference;

use plimsoll_exposition::Catalogue;
use plimsoll_node::{control_loop::LoopMetrics, placement::PlacementMetrics, ring::RingMetrics};
use plimsoll_outputs::envoy::EnvoyMetrics;
use plimsoll_scatter::partition::PartitionMetrics;
use prometheus::Result;

pub use agent::{AgentMetrics, ProcessMetrics};
pub use reference::markdown;

/// All metrics but those of the agent-check server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Control loops.
    pub loops: LoopMetrics,
    /// Shared rings.
    pub ring: RingMetrics,
    /// Partition queries.
    pub partitions: PartitionMetrics,
    /// Placement keeper.
    pub placement: PlacementMetrics,
    /// Endpoint discovery for stock Envoy.
    pub envoy: EnvoyMetrics,
    /// The agent itself.
    pub agent: AgentMetrics,
}

impl Metrics {
    /// Registers all metrics.
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

    /// Removes all series of a service that was removed.
    pub fn forget(&self, service: &str) {
        self.loops.forget(service);
        self.ring.forget(service);
        self.envoy.forget(service);
    }
}
