//! The agent-check server: tells every HAProxy that asks what load this node may carry.
//!
//! HAProxy connects once per `agent-inter`, may send the `agent-send` text, and reads one line.
//! Every answer comes from memory; nothing here waits on a source, a disk or another peer.

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
    AgentCheckSection, AgentCheckSettings, OnShutdown, OutputSettings, REFERENCE, ServiceOutput,
    agent_check,
};

/// The outputs' settings in force; a reload stores new ones.
pub type SharedOutputSettings = Arc<ArcSwap<OutputSettings>>;

/// What the server answers from.
#[derive(Clone)]
pub struct AgentCheckContext {
    /// The last decisions.
    pub state: SharedState,
    /// Services, identities, limits.
    pub settings: SharedOutputSettings,
    /// What operators set, and the drains this agent owes a `ready` for.
    pub overrides: Arc<Overrides>,
    /// Who polls.
    pub proxies: Arc<Proxies>,
    /// Counters.
    pub metrics: AgentCheckMetrics,
}

impl AgentCheckContext {
    /// Brings the gauges of proxies up to date.
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
