//! Placement: which node is the primary of which object set. One agent of a cluster, the keeper, maintains the table
//! in Redis; all agents follow it.
//!
//! The decisions are in `plimsoll_core::placement`; this module reads and publishes the table, and restores it if
//! Redis has lost it.

mod calls;
mod gate;
mod metrics;
mod replication;
mod settings;
mod term;
mod words;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::placement::{ObjectSet, PlanSettings, StewardSettings};
use plimsoll_net::{Backoff, backoff};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ring::{LinkSettings, told};

use calls::{Calls, Claimed, Members, News};
pub use gate::{Gate, GateError};
pub use metrics::PlacementMetrics;
pub use settings::{PlacementSection, placement};
use term::{Keeper, Term};
use words::Entries;

/// Delay before the first retry after a failure.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// Upper limit of the retry delay.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Behaviour of a dispatcher that loses contact with Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// It continues with its table; moves are blocked until it reports again or an operator declares it dead.
    Serve,
    /// It admits no requests, and is considered gone.
    Hold,
}

impl WhenLost {
    /// The value in Redis.
    pub fn word(self) -> &'static str {
        match self {
            WhenLost::Serve => "serve",
            WhenLost::Hold => "hold",
        }
    }
}

/// Placement of the rests in a newly created table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial {
    /// Spread evenly over all live nodes.
    Even,
    /// All on this node.
    Node(String),
}

/// Settings of `[placement]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementSettings {
    /// Name of the cluster, part of every key.
    pub cluster: String,
    /// Interval between plans.
    pub period: Duration,
    /// When a plan is worthwhile.
    pub plan: PlanSettings,
    /// Whether loads are balanced even if every primary can bear its own.
    pub moves: bool,
    /// Maximum duration of a request.
    pub request_limit: Duration,
    /// Lease of the keeper and of dispatchers.
    pub lease: Duration,
    /// Behaviour of dispatchers without Redis.
    pub when_lost: WhenLost,
    /// Placements fixed by operators.
    pub pins: BTreeMap<ObjectSet, String>,
    /// Placement of the rests in a newly created table.
    pub initial: Initial,
}

impl PlacementSettings {
    fn steward(&self) -> StewardSettings {
        StewardSettings {
            plan: self.plan,
            moves: self.moves,
            request_limit: self.request_limit,
            lease: self.lease,
        }
    }
}

/// The latest table seen.
#[derive(Clone, Debug)]
pub struct Known {
    generation: String,
    version: u64,
    entries: Entries,
    members: Members,
}

/// Configuration of placement.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementConfig {
    /// Connection to Redis.
    pub link: LinkSettings,
    /// Settings of `[placement]`.
    pub settings: PlacementSettings,
    /// Name of this agent's node in the cluster's ring.
    pub node: Option<String>,
}

/// The table that this agent follows, shared with its readers.
#[derive(Debug, Default)]
pub struct PlacementBoard {
    known: Mutex<Option<Arc<Known>>>,
}

impl PlacementBoard {
    fn known(&self) -> Option<Arc<Known>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    fn put(&self, known: Known) {
        let mut held = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Arc::new(known));
    }
}

/// Shared state that the task needs.
#[derive(Clone, Debug)]
pub struct PlacementContext {
    /// Metrics of placement.
    pub metrics: PlacementMetrics,
    /// Board for the table.
    pub board: Arc<PlacementBoard>,
    /// Current configuration.
    pub config: watch::Receiver<Arc<Option<PlacementConfig>>>,
    /// Cancels the task; it releases the lease, so that another agent can become the keeper at once.
    pub stop: CancellationToken,
}

/// Follows the table, and is its keeper if no other agent is, until cancelled.
pub async fn run(mut context: PlacementContext) -> anyhow::Result<()> {
    let run = format!("{:x}.{:x}", std::process::id(), fastrand::u64(..));
    let mut waits = None;
    let mut said: Option<String> = None;
    loop {
        if context.config.has_changed().unwrap_or(false) {
            waits = None;
        }
        let config = Arc::clone(&context.config.borrow_and_update());
        let mut changed = context.config.clone();
        let Some(PlacementConfig {
            link,
            settings: placement,
            node,
        }) = &*config
        else {
            context.metrics.show_keeper(false);
            tokio::select! {
                Ok(()) = changed.changed() => continue,
                () = context.stop.cancelled() => return Ok(()),
            }
        };
        let node = node.as_deref().unwrap_or("agent");
        let mut member = Member {
            agent: format!("{node}#{run}"),
            settings: placement,
            context: &context,
            epoch: None,
        };
        let ended = tokio::select! {
            ended = member.stay(link, &mut waits, &mut said) => Some(ended),
            Ok(()) = changed.changed() => None,
            () = context.stop.cancelled() => {
                member.resign(link).await;
                return Ok(());
            }
        };
        context.metrics.show_keeper(false);
        let Some(ended) = ended else { continue };
        let problem = told(&ended);
        context.metrics.failed();
        if said.as_ref() != Some(&problem) {
            warn!(
                cluster = placement.cluster,
                "placement: {problem}; keeping the last table, retrying"
            );
            said = Some(problem);
        }
        let max = MAX_WAIT.min(placement.lease / 4);
        let waits = waits.get_or_insert_with(|| backoff(MIN_WAIT, max));
        tokio::select! {
            () = tokio::time::sleep(waits.next().unwrap_or(max)) => {}
            () = context.stop.cancelled() => return Ok(()),
        }
    }
}

struct Member<'a> {
    /// Id of this run of the agent.
    agent: String,
    settings: &'a PlacementSettings,
    context: &'a PlacementContext,
    /// Epoch of the term, while this agent is the keeper.
    epoch: Option<u64>,
}

impl Member<'_> {
    /// Follows or keeps the table; returns only on errors.
    async fn stay(
        &mut self,
        link: &LinkSettings,
        waits: &mut Option<Backoff>,
        said: &mut Option<String>,
    ) -> anyhow::Error {
        let mut calls = match Calls::open(link, &self.settings.cluster).await {
            Ok(calls) => calls,
            Err(problem) => return problem,
        };
        loop {
            let looked = self.look(&mut calls, said).await;
            self.epoch = None;
            self.context.metrics.show_keeper(false);
            if let Err(problem) = looked {
                return problem;
            }
            if said.take().is_some() {
                info!(cluster = self.settings.cluster, "placement: reconnected");
            }
            *waits = None;
            let jitter = 0.95 + 0.1 * fastrand::f64();
            tokio::time::sleep(self.settings.period.mul_f64(jitter)).await;
        }
    }

    /// Follows once, then claims the role of keeper and keeps the table for as long as possible.
    async fn look(&mut self, calls: &mut Calls, said: &mut Option<String>) -> anyhow::Result<()> {
        self.follow(calls).await?;
        let standing = calls.standing(self.settings).await?;
        let claimed = calls.claim(&self.agent, self.settings, &standing).await?;
        let Claimed::Keeper {
            epoch,
            is_same_server,
        } = claimed
        else {
            return Ok(());
        };
        self.epoch = Some(epoch);
        let keeper = Keeper {
            agent: &self.agent,
            epoch,
            standing,
            is_same_server,
            claimed: Instant::now(),
        };
        let term = Term::begin(keeper, self.settings, self.context, calls);
        let Some(term) = term.await? else {
            return Ok(());
        };
        info!(
            cluster = self.settings.cluster,
            epoch, "placement: this agent is the keeper"
        );
        said.take();
        term.keep().await
    }

    /// Applies changes, but ignores a table older than the known one: Redis has lost writes, which the keeper will
    /// repair.
    async fn follow(&self, calls: &mut Calls) -> anyhow::Result<()> {
        let board = &self.context.board;
        let known = board.known();
        let (generation, version, number) = known.as_ref().map_or(("-", 0, 0), |known| {
            (
                known.generation.as_str(),
                known.version,
                known.members.number,
            )
        });
        let followed = match calls.follow(generation, version, number).await {
            Err(problem) if told(&problem).contains("damaged") => return Ok(()),
            followed => followed?,
        };
        let old = known.as_deref().cloned();
        match (followed, old) {
            (News::None, _) | (News::Changes { .. }, None) => {}
            (News::Changes { members, deltas }, Some(mut known)) => {
                if members.number != known.members.number {
                    known.members = members;
                } else if deltas.is_empty() {
                    return Ok(());
                }
                for delta in &deltas {
                    known.entries.apply(&mut known.version, delta);
                }
                board.put(known);
            }
            (News::Table { generation, .. }, Some(known)) if generation < known.generation => {}
            (
                News::Table {
                    members,
                    generation,
                    version,
                    entries,
                },
                old,
            ) => {
                let members = match old {
                    Some(old) if old.members.number == members.number => old.members,
                    _ => members,
                };
                board.put(Known {
                    generation,
                    version,
                    entries: Entries::of(&entries),
                    members,
                });
            }
        }
        if let Some(known) = board.known() {
            let metrics = &self.context.metrics;
            metrics.show_table(known.version, known.entries.named(), known.entries.moving());
            metrics.show_sets(&known.entries.per_node());
            metrics.show_dispatchers(known.members.ids.split_ascii_whitespace().count(), 0);
        }
        Ok(())
    }

    /// Releases the lease, so that another agent can become the keeper at once.
    async fn resign(&self, link: &LinkSettings) {
        let Some(epoch) = self.epoch else { return };
        let resigned = async {
            let mut calls = Calls::open(link, &self.settings.cluster).await?;
            calls.resign(&self.agent, epoch).await
        };
        if let Err(problem) = resigned.await {
            warn!(
                "placement: could not release the lease in Redis: {}",
                told(&problem)
            );
        }
    }
}
