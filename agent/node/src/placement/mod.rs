//! Which node is the primary of which object set: one agent of a cluster keeps the table in Redis, every one follows it.
//!
//! What is decided is in `plimsoll_core::placement`; here it is read, published, and given back to a Redis that lost it.

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
pub use settings::{PlacementSection, REFERENCE, placement};
use term::{Keeper, Term};
use words::Entries;

/// After a failure, and after many.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// See [`MIN_WAIT`].
const MAX_WAIT: Duration = Duration::from_secs(2);

/// What a dispatcher does that does not hear Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// It goes on, and nothing moves until it is heard again or somebody says that it is dead.
    Serve,
    /// It lets nobody in, and is taken for gone.
    Hold,
}

impl WhenLost {
    /// As Redis has it.
    pub fn word(self) -> &'static str {
        match self {
            WhenLost::Serve => "serve",
            WhenLost::Hold => "hold",
        }
    }
}

/// Where the rests are in a table that is made from nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial {
    /// Evenly on all live nodes.
    Even,
    /// On this one.
    Node(String),
}

/// `[placement]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementSettings {
    /// The cluster, part of every key.
    pub cluster: String,
    /// Between two plans.
    pub period: Duration,
    /// When a plan is worth it.
    pub plan: PlanSettings,
    /// Whether even a load that all primaries bear is evened out.
    pub moves: bool,
    /// No request runs for longer.
    pub request_limit: Duration,
    /// Of the keeper and of dispatchers.
    pub lease: Duration,
    /// What dispatchers do without Redis.
    pub when_lost: WhenLost,
    /// What operators fixed.
    pub pins: BTreeMap<ObjectSet, String>,
    /// See [`Initial`].
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

/// The newest table that was seen.
#[derive(Clone, Debug)]
pub struct Known {
    generation: String,
    version: u64,
    entries: Entries,
    members: Members,
}

/// The table that this agent follows.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementConfig {
    /// How to reach Redis.
    pub link: LinkSettings,
    /// `[placement]`.
    pub settings: PlacementSettings,
    /// What this agent's node is called in the cluster's ring.
    pub node: Option<String>,
}

/// What this agent knows, for whoever asks.
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

/// What the task works with.
#[derive(Clone, Debug)]
pub struct PlacementContext {
    /// Counters and gauges.
    pub metrics: PlacementMetrics,
    /// Where the table is put.
    pub board: Arc<PlacementBoard>,
    /// What it runs by; a reload sends another.
    pub config: watch::Receiver<Arc<Option<PlacementConfig>>>,
    /// Ends it; another agent may be the keeper at once.
    pub stop: CancellationToken,
}

/// Follows the table, and keeps it where no other agent does, until stopped.
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
                "placement: {problem}; the last table stays, trying again"
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
    /// The id of this run of the agent.
    agent: String,
    settings: &'a PlacementSettings,
    context: &'a PlacementContext,
    /// As the keeper.
    epoch: Option<u64>,
}

impl Member<'_> {
    /// Follows or keeps; ends with what went wrong.
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
                info!(cluster = self.settings.cluster, "placement: in touch again");
            }
            *waits = None;
            let jitter = 0.95 + 0.1 * fastrand::f64();
            tokio::time::sleep(self.settings.period.mul_f64(jitter)).await;
        }
    }

    /// Follows once, and keeps the table for as long as it may.
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

    /// Takes over what is new, but for a table older than what is known: Redis has lost some, and a keeper will see.
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

    /// Lets another agent keep the table at once.
    async fn resign(&self, link: &LinkSettings) {
        let Some(epoch) = self.epoch else { return };
        let resigned = async {
            let mut calls = Calls::open(link, &self.settings.cluster).await?;
            calls.resign(&self.agent, epoch).await
        };
        if let Err(problem) = resigned.await {
            warn!("placement: left without telling Redis: {}", told(&problem));
        }
    }
}
