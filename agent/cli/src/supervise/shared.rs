//! State shared by the components.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use arc_swap::ArcSwap;
use plimsoll_exposition::Catalogue;
use plimsoll_node::{
    control_loop::{LoopConfig, LoopContext},
    history::Histories,
    learned::LearnedStore,
    overrides::Overrides,
    placement::PlacementBoard,
    ring::{RingBoard, RingContext},
    state::{NodeState, SharedState},
};
use plimsoll_outputs::{
    agent_check::{AgentCheckContext, AgentCheckMetrics, Proxies, SharedOutputSettings},
    envoy::EnvoyBoard,
};
use plimsoll_scatter::partition::Partitions;
use plimsoll_signal::sources::ObservationBoard;
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Parts},
    metrics::Metrics,
};

/// State that one component writes and others read, settings that a reload changes, and metrics.
pub struct Shared {
    pub registry: Registry,
    pub metrics: Metrics,
    pub check_metrics: AgentCheckMetrics,
    pub settings: SharedOutputSettings,
    /// Configuration of each component.
    pub parts: Parts,
    pub state: SharedState,
    pub overrides: Arc<Overrides>,
    pub learned: Arc<LearnedStore>,
    pub histories: Arc<Histories>,
    pub proxies: Arc<Proxies>,
    pub rings: Arc<RingBoard>,
    pub placement: Arc<PlacementBoard>,
    pub envoy: Arc<EnvoyBoard>,
    pub observations: Arc<ObservationBoard>,
    pub partitions: Arc<Partitions>,
    /// Cancelled when the proxies are to be told that the agent is stopping.
    pub drain: CancellationToken,
    /// Stops all components but the agent-check server, which `drain` stops.
    pub stop: CancellationToken,
}

impl Shared {
    /// Loads the state saved by an earlier run.
    ///
    /// # Errors
    ///
    /// If files in the state directory cannot be read.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let mut catalogue = Catalogue::new(&registry);
        let metrics = Metrics::new(&mut catalogue)?;
        let check_metrics = AgentCheckMetrics::new(&mut catalogue)?;
        let directory: Option<&Path> = config.state_directory.as_deref();
        let partitions = Arc::new(Partitions::new(metrics.partitions.clone())?);
        partitions.reconfigure(&config.partitions);
        Ok(Shared {
            registry,
            metrics,
            check_metrics,
            settings: Arc::new(ArcSwap::from_pointee(config.output_settings())),
            parts: Parts::new(config),
            state: Arc::new(ArcSwap::from_pointee(NodeState::default())),
            overrides: Arc::new(Overrides::load(directory)?),
            learned: Arc::new(LearnedStore::load(directory)),
            histories: Arc::default(),
            proxies: Arc::default(),
            rings: Arc::default(),
            placement: Arc::default(),
            envoy: Arc::default(),
            observations: Arc::default(),
            partitions,
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Applies a reloaded configuration to all running components.
    pub fn reconfigure(&self, config: &Config) {
        self.settings.store(Arc::new(config.output_settings()));
        self.partitions.reconfigure(&config.partitions);
        self.parts.send(config);
    }

    /// Removes the published state of a removed service.
    pub fn forget(&self, service: &str) {
        self.state.rcu(|all| {
            let mut services = all.services.clone();
            services.remove(service);
            NodeState { services }
        });
        self.histories.forget(service);
        self.metrics.forget(service);
        self.check_metrics.forget(service);
    }

    pub fn check_context(&self) -> AgentCheckContext {
        AgentCheckContext {
            state: Arc::clone(&self.state),
            settings: Arc::clone(&self.settings),
            overrides: Arc::clone(&self.overrides),
            proxies: Arc::clone(&self.proxies),
            metrics: self.check_metrics.clone(),
        }
    }

    pub fn loop_context(
        &self,
        config: watch::Receiver<LoopConfig>,
        stop: CancellationToken,
    ) -> LoopContext {
        LoopContext {
            state: Arc::clone(&self.state),
            overrides: Arc::clone(&self.overrides),
            metrics: self.metrics.loops.clone(),
            observations: Arc::clone(&self.observations),
            partitions: Arc::clone(&self.partitions),
            config,
            kept: Arc::new(Mutex::new(None)),
            learned: Arc::clone(&self.learned),
            histories: Arc::clone(&self.histories),
            stop,
        }
    }

    pub fn ring_context(&self, stop: CancellationToken) -> RingContext {
        RingContext {
            state: Arc::clone(&self.state),
            overrides: Arc::clone(&self.overrides),
            metrics: self.metrics.ring.clone(),
            board: Arc::clone(&self.rings),
            observations: Arc::clone(&self.observations),
            config: self.parts.rings.subscribe(),
            stop,
        }
    }
}
