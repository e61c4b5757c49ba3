//! What the control loops publish once a period and the outputs read at any time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Instant, SystemTime},
};

use arc_swap::ArcSwap;
use plimsoll_core::{Cost, Decision, Flow, Seconds, Settings, Sight};
use plimsoll_signal::{
    health_probe::{Health, Verdict},
    host_load::HostLoads,
    role::RoleState,
    updates::UpdatesState,
};
use serde::Serialize;

/// Everything known and decided last about one service on this node.
#[derive(Clone, Debug)]
pub struct ServiceState {
    /// Name in the configuration.
    pub service: String,
    /// "host:port" that proxies connect to, where it is configured.
    pub address: Option<String>,
    /// The settings in force.
    pub settings: Settings,
    /// The last decision of its controller.
    pub decision: Decision,
    /// Weight for the bound, in percent of the configured weight, 1..=256.
    pub weight_percent: u16,
    /// What weights and shares of keys go by; `None` while it is not known, and then the mean of the other nodes' counts.
    pub capacity: Option<Cost>,
    /// The capacity that stands for its weight among other nodes: an operator's, or the controller's
    /// within the dead band.
    pub weight_bound: Cost,
    /// What went through in the last period; unknown while the source fails.
    pub flow: Option<Flow>,
    /// Cost a second that would have been refused in the last period, had proxies been told its bound; only where
    /// they are not.
    pub would_refuse: Option<f64>,
    /// Whether it may be asked to read: by the local probe, and by the database's role.
    pub health: Health,
    /// Why it is down, in a few words.
    pub health_detail: Option<String>,
    /// What the local probe alone said.
    pub probe: Verdict,
    /// What the database is, where `service.role` asks for it.
    pub role: Option<RoleState>,
    /// Requests finished well, and failed, in the last period.
    pub finished: u64,
    /// Requests that failed in the last period.
    pub failed: u64,
    /// Mean, median, 95th and 99th percentile of the last period that had any request.
    pub delay: Option<DelaySummary>,
    /// Jobs in the node at the end of the last period.
    pub jobs: Option<f64>,
    /// The host's load, where `service.load` asks for it.
    pub host_load: HostLoads,
    /// What schedulers are told is the node's load.
    pub load: f64,
    /// Backlog: jobs times mean cost.
    pub backlog: Option<Cost>,
    /// Update periods of temporal data, where they adapt.
    pub updates: Option<Arc<UpdatesState>>,
    /// Unix time of the last step, for people.
    pub stepped_at: f64,
    /// The same by the clock that never goes back.
    pub stepped: Instant,
    /// Length of the last period in seconds; unknown while the source fails.
    pub observed_seconds: Option<f64>,
    /// Unix time of the last good observation.
    pub observed_at: Option<f64>,
    /// What the source said when it last failed; `None` while it works.
    pub source_error: Option<String>,
    /// Connections that wait for the service to accept them, on average over the last period.
    pub listen_backlog: Option<f64>,
    /// How the source's delays compare with jobs over throughput, where both are known.
    pub sight: Option<Sight>,
}

impl ServiceState {
    /// Whether proxies are told nothing.
    pub fn observes(&self) -> bool {
        self.settings.mode.observes()
    }
}

/// The delay distribution in four figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DelaySummary {
    /// Mean delay.
    pub mean: Seconds,
    /// Median.
    pub p50: Seconds,
    /// 95th percentile.
    pub p95: Seconds,
    /// 99th percentile.
    pub p99: Seconds,
}

/// One immutable picture of all services, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// By service name.
    pub services: BTreeMap<String, Arc<ServiceState>>,
}

/// The picture in force; loading it neither locks nor allocates.
pub type SharedState = Arc<ArcSwap<NodeState>>;

/// Unix time in seconds, for people and Prometheus.
pub fn unix_now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |d| d.as_secs_f64())
}
