//! The agent-check server: answers every HAProxy that polls with the load this node may carry.
//!
//! HAProxy connects once per `agent-inter`, may send the `agent-send` text, and reads one line. Every answer comes
//! from memory, without waiting for a source, a disk or a peer.

mod answer;
mod connections;
mod line;
mod metrics;
mod proxies;
mod server;
mod settings;

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use plimsoll_node::{overrides::Overrides, state::SharedState};

#[cfg(test)]
pub(crate) use answer::tests as answer_tests;
pub use line::{LineBuffer, MAX_LINE, Received};
pub use metrics::AgentCheckMetrics;
pub use proxies::Proxies;
pub use server::serve;
#[cfg(test)]
pub(crate) use settings::tests as settings_tests;
pub use settings::{
    AgentCheckSection, AgentCheckSettings, OnShutdown, OutputSettings, ServiceOutput, agent_check,
};

/// Current settings of the outputs, replaced on reload.
pub type SharedOutputSettings = Arc<ArcSwap<OutputSettings>>;

/// Shared state that the server needs.
#[derive(Clone)]
pub struct AgentCheckContext {
    /// Last decisions.
    pub state: SharedState,
    /// Services, identities, limits.
    pub settings: SharedOutputSettings,
    /// Overrides by operators, and the drained proxies that still need a `ready`.
    pub overrides: Arc<Overrides>,
    /// Proxies that poll.
    pub proxies: Arc<Proxies>,
    /// Metrics of the server.
    pub metrics: AgentCheckMetrics,
}

impl AgentCheckContext {
    /// Updates the gauges of proxies.
    pub fn show_proxies(&self) {
        let (settings, now) = (self.settings.load(), Instant::now());
        for service in settings.services() {
            let sharing =
                self.proxies
                    .sharing(&service.name, now, settings.agent_check.proxy_lease);
            let gauge = self
                .metrics
                .proxies
                .with_label_values(&[service.name.as_str()]);
            gauge.set(sharing as f64);
        }
    }
}
