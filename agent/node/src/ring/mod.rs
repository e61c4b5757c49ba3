//! The shared ring: reports this node's bound to Redis once per period, and reads the ring back.
//!
//! Redis is never critical: without it the agent keeps controlling and answering, and keeps serving the last ring.

mod exchange;
mod follow;
mod link;
mod metrics;
mod server;
mod settings;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::ring::RingTable;
use plimsoll_net::{Backoff, backoff};
use plimsoll_signal::{health_probe::Health, sources::ObservationBoard};
use plimsoll_wire::Ring;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    overrides::{ForcedHealth, Overrides},
    state::{ServiceState, SharedState, unix_now},
};

pub use exchange::{ExchangeError, Exchanges};
pub use follow::{RingBoard, RingNode, RingNodes};
pub use link::live_nodes;
use link::{Link, Report};
pub use metrics::RingMetrics;
pub use server::{Server, told};
pub use settings::{
    LinkMode, LinkSettings, RedisSection, RingSection, RingSettings, RingsConfig, redis, ring,
    ring_name,
};

/// Delay before the first retry after a failure.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// Upper limit of the retry delay. Also limited to an eighth of a lease: once Redis is back, all nodes must have
/// reported before the first of them settles the ring.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// After this many leases the table is read even if its version is unchanged, in case something else has written to
/// it.
const REREAD_LEASES: u32 = 10;
/// Same as in the function library.
const LAST_VERSION: u64 = 1_000_000_000_000_000;
/// Number of checks of the decision per period, between reports.
const LOOKS: u32 = 4;
/// Relative change of the bound since the last report that triggers a report at once.
const NEWS: f64 = 0.1;
/// Fraction of a lease that a newly created ring waits, so that all nodes can report first.
const SETTLE_SHARE: f64 = 0.5;

/// Shared state that the task needs.
#[derive(Clone, Debug)]
pub struct RingContext {
    /// Board for decisions.
    pub state: SharedState,
    /// Overrides by operators.
    pub overrides: Arc<Overrides>,
    /// Metrics of the rings.
    pub metrics: RingMetrics,
    /// Board for the ring.
    pub board: Arc<RingBoard>,
    /// Board for the proxies' observations.
    pub observations: Arc<ObservationBoard>,
    /// Current configuration.
    pub config: watch::Receiver<Arc<RingsConfig>>,
    /// Cancels the task; the node then leaves the ring.
    pub stop: CancellationToken,
}

/// Reports, and follows one service's ring, until cancelled.
pub async fn run(service: String, context: RingContext) -> anyhow::Result<()> {
    let metrics = context.metrics.clone();
    let ended = follow(&service, context).await;
    // Not earlier, since the task updates the metrics until its end.
    metrics.forget(&service);
    ended
}

async fn follow(service: &str, mut context: RingContext) -> anyhow::Result<()> {
    // Distinguishes two agents with the same name, and an agent from its run before a restart.
    let instance = format!("{:x}.{:x}", std::process::id(), fastrand::u64(..));
    let mut waits = None;
    let mut said: Option<String> = None;
    let mut placed = None;
    loop {
        let config = Arc::clone(&context.config.borrow_and_update());
        let Some((link, ring)) = settings_of(&config, service) else {
            return Ok(());
        };
        if placed.as_ref() != Some(ring) {
            context.metrics.placed(service, ring);
            placed = Some(ring.clone());
            waits = None;
        }
        let mut member = Member {
            service,
            instance: &instance,
            ring,
            context: &context,
            reported: 0.0,
        };
        let ended = tokio::select! {
            ended = member.stay(link, config.period, &mut waits, &mut said) => ended,
            _ = changed(context.config.clone()) => continue,
            () = context.stop.cancelled() => {
                member.leave(link).await;
                return Ok(());
            }
        };
        let problem = told(&ended);
        context.metrics.failed(service);
        if said.as_ref() != Some(&problem) {
            warn!(%service, cluster = ring.cluster, "Redis: {problem}; keeping the last ring, retrying");
            said = Some(problem);
        }
        let max = MAX_WAIT.min(ring.lease / 8);
        let waits = waits.get_or_insert_with(|| backoff(MIN_WAIT, max));
        tokio::select! {
            () = tokio::time::sleep(waits.next().unwrap_or(max)) => {}
            () = context.stop.cancelled() => return Ok(()),
        }
    }
}

fn settings_of<'a>(
    config: &'a RingsConfig,
    service: &str,
) -> Option<(&'a LinkSettings, &'a RingSettings)> {
    Some((config.link.as_ref()?, config.rings.get(service)?))
}

async fn changed(mut config: watch::Receiver<Arc<RingsConfig>>) {
    if config.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct Member<'a> {
    service: &'a str,
    instance: &'a str,
    ring: &'a RingSettings,
    context: &'a RingContext,
    /// The last bound reported to Redis.
    reported: f64,
}

impl Member<'_> {
    /// Reports once per period, and at once if needed; returns only on errors.
    async fn stay(
        &mut self,
        link: &LinkSettings,
        period: Duration,
        waits: &mut Option<Backoff>,
        said: &mut Option<String>,
    ) -> anyhow::Error {
        let mut link = match Link::open(link, &self.ring.cluster).await {
            Ok(link) => link,
            Err(problem) => return problem,
        };
        let mut read = None;
        loop {
            if let Err(problem) = self.period(&mut link, &mut read).await {
                return problem;
            }
            if said.take().is_some() {
                info!(
                    service = self.service,
                    cluster = self.ring.cluster,
                    "Redis: reconnected"
                );
            }
            *waits = None;
            self.rest(period).await;
        }
    }

    /// Waits until the next report is due.
    async fn rest(&self, period: Duration) {
        let end = Instant::now() + period.mul_f64(0.95 + 0.1 * fastrand::f64());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(period / LOOKS)).await;
            if Instant::now() >= end || self.has_news() {
                return;
            }
        }
    }

    fn has_news(&self) -> bool {
        let all = self.context.state.load();
        all.services.get(self.service).is_some_and(|state| {
            let bound = self.report(state, self.ring.lease).bound;
            (bound - self.reported).abs() > NEWS * self.reported
        })
    }

    /// Reports once; `read` is when the table was last read over this connection.
    async fn period(&mut self, link: &mut Link, read: &mut Option<Instant>) -> anyhow::Result<()> {
        let all = self.context.state.load();
        let Some(state) = all.services.get(self.service) else {
            // There is nothing to report before the first step.
            return Ok(());
        };
        let board = &self.context.board;
        // Without a lease the node joins no ring, but still follows it.
        let lease = match state.observes() {
            true => Duration::ZERO,
            false => self.ring.lease,
        };
        let report = self.report(state, lease);
        let reported = link
            .report(&report, board.wants_nodes(self.service))
            .await?;
        self.reported = report.bound;
        let version = reported.version;
        self.context.observations.put(self.service, reported.seen);
        if let Some(nodes) = reported.nodes {
            let metrics = &self.context.metrics;
            metrics.show_nodes(self.service, &self.ring.node, &nodes);
            board.put_nodes(self.service, Arc::new(nodes));
        }
        self.context
            .metrics
            .reported(self.service, unix_now(), version);
        let held = board.of(self.service);
        let known = held.as_ref().map_or(0, |ring| ring.table.version());
        if version == 0 && state.observes() {
            return Ok(());
        }
        if version == 0 {
            if let Some(ring) = held.filter(|ring| ring.table.slots() == self.ring.slots) {
                // Redis has lost its data: restore what is known here.
                link.restore(known, &ring, self.settle()).await?;
            }
            return Ok(());
        }
        let due = read.is_none_or(|at| at.elapsed() >= REREAD_LEASES * self.ring.lease);
        if version != known || due {
            *read = Some(Instant::now());
            self.follow(link, version, held).await?;
            if let Some(ring) = board.of(self.service) {
                let metrics = &self.context.metrics;
                metrics.show_ring(self.service, &self.ring.node, &ring);
            }
        }
        Ok(())
    }

    /// Adopts the ring in Redis. Assigns a new version if followers could have another table under the same number: a
    /// failover may lose the last changes and reuse their numbers.
    async fn follow(
        &self,
        link: &mut Link,
        version: u64,
        held: Option<Arc<Ring>>,
    ) -> anyhow::Result<()> {
        let known = held.as_ref().map_or(0, |ring| ring.table.version());
        let next = version.max(known).min(LAST_VERSION - 1) + 1;
        match (link.ring().await?, held) {
            (Some(ring), Some(held)) if ring == *held => {}
            (Some(ring), Some(_)) if ring.table.version() <= known && known < LAST_VERSION => {
                warn!(
                    service = self.service,
                    cluster = self.ring.cluster,
                    "Redis lost changes of the ring after version {}: its ring continues as version {next}",
                    ring.table.version()
                );
                link.restore(next, &ring, Duration::ZERO).await?;
            }
            (Some(ring), _) => {
                let moved = self.context.board.put(self.service, ring);
                self.context.metrics.moved(self.service, moved);
            }
            (None, held) => {
                warn!(
                    service = self.service,
                    cluster = self.ring.cluster,
                    "the ring in Redis is damaged: something else has written to {}; repairing it",
                    link.ring_key()
                );
                let ring = match held.filter(|ring| ring.table.slots() == self.ring.slots) {
                    Some(ring) => ring,
                    // The previous owners are unknown.
                    None => Arc::new(Ring {
                        table: RingTable::empty(self.ring.slots)?,
                        names: Vec::new(),
                    }),
                };
                link.restore(next, &ring, Duration::ZERO).await?;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Duration {
        self.ring.lease.mul_f64(SETTLE_SHARE)
    }

    fn report<'a>(&'a self, state: &'a ServiceState, lease: Duration) -> Report<'a> {
        let set = self.context.overrides.of(self.service);
        let down = match set.health {
            Some(health) => health == ForcedHealth::Down,
            None => state.health == Health::Down,
        };
        let out = down || set.drain;
        let decision = &state.decision;
        let bound = set.bound.unwrap_or(decision.bound).get();
        Report {
            node: &self.ring.node,
            instance: self.instance,
            bound: if out { 0.0 } else { bound },
            bound_jobs: if out {
                0.0
            } else {
                bound / decision.mean_cost.get()
            },
            mean_cost: decision.mean_cost.get(),
            jobs: state.jobs.unwrap_or(0.0),
            load: state.load,
            lease,
            slots: self.ring.slots,
            dead_band: self.ring.dead_band,
            settle: self.settle(),
            address: state.address.as_deref(),
            capacity: set.bound.or(state.capacity).map(|it| it.get()),
        }
    }

    /// Leaves the ring, so that the other nodes need not wait for the lease.
    async fn leave(&self, link: &LinkSettings) {
        let all = self.context.state.load();
        let Some(state) = all.services.get(self.service) else {
            return;
        };
        let left = async {
            let mut link = Link::open(link, &self.ring.cluster).await?;
            link.report(&self.report(state, Duration::ZERO), false)
                .await?;
            anyhow::Ok(())
        };
        if let Err(problem) = left.await {
            warn!(
                service = self.service,
                "could not leave the ring in Redis: {}",
                told(&problem)
            );
        }
    }
}
