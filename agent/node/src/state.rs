//! Snapshots that the control loops publish once a period and the outputs read at any time.

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

/// Snapshot of one service on this node: its last measurements and decisions.
#[derive(Clone, Debug)]
pub struct ServiceState {
    /// Name in the configuration.
    pub service: String,
    /// `host:port` that proxies connect to, if configured.
    pub address: Option<String>,
    /// Controller settings in force.
    pub settings: Settings,
    /// Last decision of its controller.
    pub decision: Decision,
    /// Weight derived from the capacity, in percent of the configured weight, 1..=256.
    pub weight_percent: u16,
    /// Capacity in cost units, from which weights and shares of keys are derived. `None` while unknown: then the mean
    /// of the other nodes' capacities counts.
    pub capacity: Option<Cost>,
    /// Capacity behind its weight among other nodes, in cost units: from an operator's weight, else the controller's
    /// with the dead band applied.
    pub weight_bound: Cost,
    /// Throughput of the last period; `None` while the source fails.
    pub flow: Option<Flow>,
    /// Cost per second that proxies would have refused in the last period if they had received the bound. Only in mode
    /// `observe`.
    pub would_refuse: Option<f64>,
    /// Whether it takes reads, by the local probe and the database's role.
    pub health: Health,
    /// Short reason if it is down.
    pub health_detail: Option<String>,
    /// Verdict of the local probe alone.
    pub probe: Verdict,
    /// Role of the database, if `service.role` is configured.
    pub role: Option<RoleState>,
    /// Requests that succeeded in the last period.
    pub finished: u64,
    /// Requests that failed in the last period.
    pub failed: u64,
    /// Delays of the last period that had any request.
    pub delay: Option<DelaySummary>,
    /// Number of jobs in the node at the end of the last period.
    pub jobs: Option<f64>,
    /// Load of the host; its parts are set if `service.load` configures them.
    pub host_load: HostLoads,
    /// Load of the node as published to schedulers, 0 or more.
    pub load: f64,
    /// Backlog in cost units: `jobs` times mean cost.
    pub backlog: Option<Cost>,
    /// Update periods of temporal data, if `service.updates` is configured.
    pub updates: Option<Arc<UpdatesState>>,
    /// Unix time of the last step in seconds.
    pub stepped_at: f64,
    /// Monotonic time of the last step.
    pub stepped: Instant,
    /// Length of the last period in seconds; `None` while the source fails.
    pub observed_seconds: Option<f64>,
    /// Unix time of the last successful observation in seconds.
    pub observed_at: Option<f64>,
    /// Current error of the source; `None` while it works.
    pub source_error: Option<String>,
    /// Mean number of connections waiting to be accepted by the service, over the last period.
    pub listen_backlog: Option<f64>,
    /// Comparison of the source's delays with jobs over throughput, if both are known.
    pub sight: Option<Sight>,
}

impl ServiceState {
    /// True in mode `observe`, in which proxies receive nothing that has an effect.
    pub fn observes(&self) -> bool {
        self.settings.mode.observes()
    }
}

/// Four figures of the delay distribution, in seconds.
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

/// Immutable snapshot of all services, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// Snapshots by service name.
    pub services: BTreeMap<String, Arc<ServiceState>>,
}

/// The current snapshot. Loading it neither locks nor allocates.
pub type SharedState = Arc<ArcSwap<NodeState>>;

/// Unix time in seconds. Not monotonic: use it for display only.
pub fn unix_now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |d| d.as_secs_f64())
}
