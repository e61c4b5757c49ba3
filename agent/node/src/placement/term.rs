//! One agent's term as the keeper.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::bail;
use plimsoll_core::placement::{
    Ended, Heard, NodeNow, ObjectSet, PlanReason, Planned, Reading, Step, Steward, TERM_VERSIONS,
    first_of_term,
};
use serde_json::json;
use tracing::{info, warn};

use super::{
    Initial, Known, PlacementContext, PlacementSettings, WhenLost,
    calls::{Calls, Members, News, Read},
    replication::Standing,
    words::{Entries, Numbers, delta_words, node_number},
};
use crate::ring::{RingNodes, told};

/// Interval at which dispatchers' reports are read during a hand-over.
const MOVING: Duration = Duration::from_millis(100);
/// More versions than one step creates: one per pin and requested move, and a few more.
const MAX_VERSIONS_OF_STEP: u64 = TERM_VERSIONS / 4;

/// State at the start of a term.
pub struct Keeper<'a> {
    /// Id of this run of the agent.
    pub agent: &'a str,
    /// Fencing token of the term.
    pub epoch: u64,
    /// Replication state of Redis before the term.
    pub standing: Standing,
    /// Whether the Redis server is the one of the previous term, so that no earlier write can have been lost.
    pub is_same_server: bool,
    /// Time of the response to the claim.
    pub claimed: Instant,
}

pub struct Term<'a> {
    agent: &'a str,
    epoch: u64,
    standing: Standing,
    /// Time of the response from which Redis counts the elapsed time.
    answered: Instant,
    /// Whether Redis has recorded that no hand-over from before this server took over is pending.
    is_settled: bool,
    settings: &'a PlacementSettings,
    context: &'a PlacementContext,
    calls: Calls,
    /// The table in Redis, in its text form.
    known: Known,
    steward: Steward,
    nodes: Numbers,
    dispatchers: Numbers,
    /// Whether this term wrote the version in Redis, so that no later one can have existed.
    is_sure: bool,
    began: Instant,
    plan: String,
}

impl<'a> Term<'a> {
    /// Continues with the table in Redis, restores the one it lost, or creates one; `None` if that is not possible
    /// yet.
    pub async fn begin(
        keeper: Keeper<'a>,
        settings: &'a PlacementSettings,
        context: &'a PlacementContext,
        calls: &Calls,
    ) -> anyhow::Result<Option<Self>> {
        let mut calls = calls.clone();
        calls.replicated(keeper.standing.replicas).await?;
        let known = context.board.known();
        let stored = read_table(&mut calls).await?;
        let is_lost = |stored: &Known| {
            let known = known.as_deref();
            known.is_some_and(|known| {
                (&known.generation, known.version) > (&stored.generation, stored.version)
            })
        };
        let mut is_there = stored.as_ref().is_some_and(|stored| !is_lost(stored));
        let base = match (stored, known) {
            (Some(stored), _) if is_there => stored,
            (_, Some(known)) => {
                warn!(
                    cluster = settings.cluster,
                    "placement: Redis has lost the table, or a part of it; restoring it"
                );
                Arc::unwrap_or_clone(known)
            }
            _ => match first_table(&mut calls, settings).await? {
                Some(made) => made,
                None => return Ok(None),
            },
        };
        let mut nodes = Numbers::default();
        let Some(table) = base.entries.table(base.version, &mut nodes) else {
            bail!("the table in Redis is malformed: something else has written to it");
        };
        let first = first_of_term(base.version, fastrand::u64(..));
        if first.is_none() {
            warn!(
                cluster = settings.cluster,
                version = base.version,
                "placement: version numbers are used up; numbering starts again"
            );
            is_there = false;
        }
        let first = first.unwrap_or(0);
        let may_have_lost = !keeper.is_same_server;
        let mut term = Term {
            agent: keeper.agent,
            epoch: keeper.epoch,
            standing: keeper.standing,
            answered: keeper.claimed,
            is_settled: keeper.is_same_server,
            settings,
            context,
            calls,
            known: base,
            steward: Steward::resumed(table, settings.steward(), first, may_have_lost),
            nodes,
            dispatchers: Numbers::default(),
            is_sure: false,
            began: Instant::now(),
            plan: String::new(),
        };
        if !is_there {
            term.open(0).await?;
        }
        Ok(Some(term))
    }

    /// Publishes the table as one that continues no earlier one. It is withheld from dispatchers while any of them
    /// may still use another table.
    async fn open(&mut self, ahead: u64) -> anyhow::Result<()> {
        let is_new = self.known.generation.is_empty();
        let lot = fastrand::u64(..);
        let version = first_of_term(self.known.version.max(ahead), lot);
        let version = version.or(first_of_term(0, lot)).unwrap_or(1);
        let generation = generation_after(&self.known.generation);
        let entries = self.known.entries.words();
        let mut wait = self.settings.lease + self.settings.request_limit;
        if self.settings.when_lost == WhenLost::Hold {
            wait += self.standing.margin;
        }
        let ids = &self.known.members.ids;
        let opened = self.calls.open_table(
            self.agent,
            self.epoch,
            &generation,
            version,
            wait,
            ids,
            &entries,
        );
        opened.await?;
        self.answered = Instant::now();
        self.calls.replicated(self.standing.replicas).await?;
        (self.known.generation, self.known.version) = (generation, version);
        let Some(table) = self.known.entries.table(version, &mut self.nodes) else {
            bail!("the table cannot be read");
        };
        // A dispatcher that is cut off may have acted on a lost change that completed a hand-over.
        self.steward = Steward::resumed(table, self.settings.steward(), 0, true);
        self.is_sure = true;
        self.context.board.put(self.known.clone());
        if !is_new {
            self.context.metrics.restored();
        }
        info!(
            cluster = self.settings.cluster,
            generation = self.known.generation,
            version,
            "placement: published a table that does not continue the previous one; in force in {}",
            humantime::format_duration(wait)
        );
        Ok(())
    }

    /// Keeps the table until the term ends or Redis fails.
    pub async fn keep(mut self) -> anyhow::Result<()> {
        let metrics = &self.context.metrics;
        metrics.show_keeper(true);
        let mut due = Instant::now();
        loop {
            if self.is_used_up() {
                return Ok(());
            }
            let is_due = Instant::now() >= due;
            if is_due {
                let jitter = 0.95 + 0.1 * fastrand::f64();
                due = Instant::now() + self.settings.period.mul_f64(jitter);
            }
            match self.step(is_due).await {
                Ok(()) => {}
                Err(problem) if told(&problem).contains("FENCED") => {
                    info!(
                        cluster = self.settings.cluster,
                        "placement: this agent is no longer the keeper: {}",
                        told(&problem)
                    );
                    return Ok(());
                }
                Err(problem) => return Err(problem),
            }
            let left = due.saturating_duration_since(Instant::now());
            let wait = match self.steward.moving() {
                0 => left,
                _ => left.min(MOVING),
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether the term has used up its versions; the next term has new ones.
    fn is_used_up(&self) -> bool {
        let used = self.known.version % TERM_VERSIONS;
        self.is_sure && used >= TERM_VERSIONS - MAX_VERSIONS_OF_STEP
    }

    /// Checks that Redis is still the server that the term began with.
    async fn look_at_server(&mut self) -> anyhow::Result<()> {
        let standing = self.calls.standing(self.settings).await?;
        if standing.history != self.standing.history || standing.margin != self.standing.margin {
            bail!("Redis was replaced by another server, or its settings changed");
        }
        self.standing = standing;
        Ok(())
    }

    async fn step(&mut self, with_loads: bool) -> anyhow::Result<()> {
        let (agent, epoch, settings) = (self.agent, self.epoch, self.settings);
        if with_loads || self.calls.follows_servers() {
            self.look_at_server().await?;
        }
        let passed = self.answered.elapsed();
        let read = self
            .calls
            .read(agent, epoch, settings, with_loads, &self.plan, passed);
        let read = read.await?;
        self.answered = Instant::now();
        let nodes = match with_loads {
            true => Some(self.calls.nodes().await?.1),
            false => None,
        };
        let is_ours =
            read.generation == self.known.generation && read.version == self.known.version;
        if !is_ours {
            bail!(
                "the table in Redis is {:?} {}, expected {:?} {}",
                read.generation,
                read.version,
                self.known.generation,
                self.known.version
            );
        }
        if read.ahead > 0 {
            return self.look_into(read.ahead).await;
        }
        let reading = self.reading(&read, nodes, with_loads);
        let step = self.steward.step(self.began.elapsed(), &reading);
        if let Some(delta) = &step.delta {
            let words = delta_words(delta, &self.nodes);
            let generation = &self.known.generation;
            let published = self.calls.publish(agent, epoch, generation, &words);
            published.await?;
            // A report about this version says nothing about a later version that a replica may lack.
            self.calls.replicated(self.standing.replicas).await?;
            self.is_sure = true;
            self.known.entries.apply(&mut self.known.version, &words);
        }
        if !self.is_settled && !self.steward.is_after_loss() {
            let history = &self.standing.history;
            self.calls.settle(agent, epoch, history).await?;
            self.is_settled = true;
        }
        let ids = read.dispatchers.iter().map(|known| known.id.as_str());
        self.known.members = Members {
            // Differs from the counter in Redis, so that the next read is complete.
            number: 0,
            ids: ids.collect::<Vec<_>>().join(" "),
        };
        if with_loads || step.delta.is_some() {
            let metrics = &self.context.metrics;
            metrics.show_sets(&self.known.entries.per_node());
            self.context.board.put(self.known.clone());
        }
        if with_loads {
            let listed: Vec<u64> = reading.dispatchers.iter().map(|known| known.id).collect();
            let gone = &reading.gone;
            self.dispatchers
                .keep(|number| listed.contains(&number) || gone.contains(&number));
        }
        self.show(&read, &step);
        Ok(())
    }

    /// Investigates a report of an unknown version or a damaged table.
    async fn look_into(&mut self, ahead: u64) -> anyhow::Result<()> {
        let stored = read_table(&mut self.calls).await?;
        let is_same = stored.is_some_and(|stored| {
            stored.generation == self.known.generation
                && stored.version == self.known.version
                && stored.entries == self.known.entries
        });
        if self.is_sure && is_same {
            warn!(
                cluster = self.settings.cluster,
                "placement: a dispatcher used version {ahead}, which Redis has lost or never had; it will join again"
            );
            return self.calls.heed(self.agent, self.epoch).await;
        }
        warn!(
            cluster = self.settings.cluster,
            "placement: Redis has lost changes of the table after version {}", self.known.version
        );
        self.open(ahead).await
    }

    fn reading(&mut self, read: &Read, nodes: Option<RingNodes>, with_loads: bool) -> Reading {
        let sets = |words: &str| -> Vec<ObjectSet> {
            let words = words.split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let dispatchers = read.dispatchers.iter().map(|told| Heard {
            id: self.dispatchers.of(&told.id),
            age: told.age,
            version: told.version,
            joined: told.joined,
            busy: sets(&told.busy),
        });
        let dispatchers = dispatchers.collect();
        let gone = read.gone.iter().map(|id| self.dispatchers.of(id)).collect();
        let nodes = nodes.map(|nodes| {
            let nodes = nodes.iter().map(|(name, node)| {
                let now = NodeNow {
                    capacity: node.bound,
                    mean_cost: node.mean_cost,
                };
                (node_number(&mut self.nodes, name), now)
            });
            nodes.collect()
        });
        let words: Vec<&str> = read.wishes.split_ascii_whitespace().collect();
        let wishes = words.chunks_exact(2).filter_map(|pair| {
            let set = pair[0].parse().ok()?;
            Some((set, node_number(&mut self.nodes, pair[1])))
        });
        let wishes = wishes.collect();
        let pins = self.settings.pins.iter();
        let pins = pins.map(|(set, node)| (set.clone(), node_number(&mut self.nodes, node)));
        let pins: BTreeMap<_, _> = pins.collect();
        let loads = with_loads.then(|| {
            let loads = read.loads.iter();
            loads
                .filter_map(|(word, cost)| Some((loaded(word)?, *cost)))
                .collect()
        });
        Reading {
            dispatchers,
            gone,
            nodes,
            loads,
            wishes,
            pins,
        }
    }

    fn show(&mut self, read: &Read, step: &Step) {
        let metrics = &self.context.metrics;
        let table = self.steward.table();
        metrics.show_table(table.version(), table.named(), self.steward.moving());
        metrics.show_dispatchers(read.dispatchers.len(), step.silent.len());
        metrics.forgotten(self.steward.forgotten());
        for (_, how, after) in &step.ended {
            let outcome = match how {
                Ended::Done => "done",
                Ended::Back => "back",
            };
            metrics.handed_over(outcome, *after);
        }
        for (set, problem) in &step.refused {
            warn!("placement: {set} cannot be moved: {problem}");
        }
        if let Some(planned) = &step.planned {
            metrics.planned(planned.before, planned.even);
            self.plan = plan_words(planned);
        }
        if !step.silent.is_empty() {
            if !read.wishes.is_empty() {
                let problem = "a dispatcher is silent";
                warn!("placement: not moved, because {problem}: {}", read.wishes);
            }
            self.plan = json!({ "reason": "silent dispatchers" }).to_string();
        }
    }
}

fn plan_words(planned: &Planned) -> String {
    let reason = match planned.reason {
        PlanReason::Even => "even",
        PlanReason::NoGain => "no gain",
        PlanReason::Uneven => "uneven",
        PlanReason::NoNodes => "no nodes",
    };
    let rounded = |ratio: f64| (1000.0 * ratio).round() / 1000.0;
    json!({
        "reason": reason,
        "before": rounded(planned.before),
        "after": rounded(planned.after),
        "changes": planned.changes.len(),
    })
    .to_string()
}

/// Parses the object of a load: an entry, or a name that belongs to a rest.
fn loaded(word: &str) -> Option<ObjectSet> {
    match word.strip_prefix('*').and_then(|rest| rest.split_once(':')) {
        Some((_, name)) => format!("={name}").parse().ok(),
        None => word.parse().ok(),
    }
}

/// A generation that sorts after the given one, regardless of the clocks.
fn generation_after(before: &str) -> String {
    let last = before.split('-').next();
    let last = last.and_then(|word| u64::from_str_radix(word, 16).ok());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis() as u64);
    let number = now.max(last.map_or(0, |last| last.saturating_add(1)));
    format!("{number:016x}-{:08x}", fastrand::u32(..))
}

/// Reads the table in Redis, if there is a consistent one.
async fn read_table(calls: &mut Calls) -> anyhow::Result<Option<Known>> {
    match calls.follow("-", 0, 0).await {
        Ok(News::Table {
            members,
            generation,
            version,
            entries,
        }) => Ok(Some(Known {
            generation,
            version,
            entries: Entries::of(&entries),
            members,
        })),
        Ok(_) => Ok(None),
        Err(problem) if told(&problem).contains("damaged") => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Creates a new table, once the ring has settled and its nodes are known.
async fn first_table(
    calls: &mut Calls,
    settings: &PlacementSettings,
) -> anyhow::Result<Option<Known>> {
    let (ring, nodes) = calls.nodes().await?;
    let live = nodes.iter().filter(|(_, node)| node.bound > 0.0);
    let live: Vec<&String> = live.map(|(name, _)| name).collect();
    if ring == 0 || live.is_empty() {
        return Ok(None);
    }
    let entries = Entries::of_rests(|rest| match &settings.initial {
        Initial::Even => live[usize::from(rest) % live.len()].clone(),
        Initial::Node(node) => node.clone(),
    });
    Ok(Some(Known {
        generation: String::new(),
        version: 0,
        entries,
        members: Members::default(),
    }))
}
