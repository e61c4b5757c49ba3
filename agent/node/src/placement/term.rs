//! One agent's time as the keeper.

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

/// Between two looks at dispatchers' reports while something moves.
const MOVING: Duration = Duration::from_millis(100);
/// More than one step makes: one for each pin and wish, and some.
const MAX_VERSIONS_OF_STEP: u64 = TERM_VERSIONS / 4;

/// As which a term begins.
pub struct Keeper<'a> {
    /// The id of this run of the agent.
    pub agent: &'a str,
    /// What fences it.
    pub epoch: u64,
    /// How Redis stood before.
    pub standing: Standing,
    /// Nothing can be lost of what was written before.
    pub is_same_server: bool,
    /// When the claim was answered.
    pub claimed: Instant,
}

pub struct Term<'a> {
    agent: &'a str,
    epoch: u64,
    standing: Standing,
    /// When that was answered from which Redis counts the time that passes.
    answered: Instant,
    /// Redis knows that nothing is on its way from before this server took over.
    is_settled: bool,
    settings: &'a PlacementSettings,
    context: &'a PlacementContext,
    calls: Calls,
    /// What is in Redis, in words.
    known: Known,
    steward: Steward,
    nodes: Numbers,
    dispatchers: Numbers,
    /// The version in Redis was written in this term, so that there has been no later one.
    is_sure: bool,
    began: Instant,
    plan: String,
}

impl<'a> Term<'a> {
    /// Goes on with the table in Redis, or gives Redis the one that it lost, or makes one; `None` where that cannot be
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
                    "placement: Redis has lost the table, or a part of it; giving it back"
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
            bail!("the table in Redis is no table: somebody else wrote to it");
        };
        let first = first_of_term(base.version, fastrand::u64(..));
        if first.is_none() {
            warn!(
                cluster = settings.cluster,
                version = base.version,
                "placement: there are no more versions after this one; numbering begins anew"
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

    /// Puts the table up as one that does not go on from any before: nobody is told of it while somebody may still act
    /// on another.
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
        // A dispatcher that is cut off may act on a lost change by which a set in hand-over has moved.
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
            "placement: a table that did not go on from one before; in force in {}",
            humantime::format_duration(wait)
        );
        Ok(())
    }

    /// Until it is not the keeper any more, or Redis is away.
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

    /// The next term goes on with other versions.
    fn is_used_up(&self) -> bool {
        let used = self.known.version % TERM_VERSIONS;
        self.is_sure && used >= TERM_VERSIONS - MAX_VERSIONS_OF_STEP
    }

    /// Redis still is what the term began with.
    async fn look_at_server(&mut self) -> anyhow::Result<()> {
        let standing = self.calls.standing(self.settings).await?;
        if standing.history != self.standing.history || standing.margin != self.standing.margin {
            bail!("another server is in Redis' place, or it has other settings");
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
                "the table in Redis is {:?} {}, and not {:?} {}",
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
            // What is told of this version tells nothing of a later one that a replica may not have.
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
            // Of another number than Redis': what is followed next is read whole.
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

    /// Somebody told a version that is not, or found the table damaged.
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
                "placement: somebody acted on version {ahead}, which Redis has lost or which has never been; it joins anew"
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
                warn!("placement: not moved, as {problem}: {}", read.wishes);
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

/// What a load is of: an entry, or a name that shares a rest.
fn loaded(word: &str) -> Option<ObjectSet> {
    match word.strip_prefix('*').and_then(|rest| rest.split_once(':')) {
        Some((_, name)) => format!("={name}").parse().ok(),
        None => word.parse().ok(),
    }
}

/// Later in the order of text than the one before, whatever the clocks.
fn generation_after(before: &str) -> String {
    let last = before.split('-').next();
    let last = last.and_then(|word| u64::from_str_radix(word, 16).ok());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis() as u64);
    let number = now.max(last.map_or(0, |last| last.saturating_add(1)));
    format!("{number:016x}-{:08x}", fastrand::u32(..))
}

/// The table in Redis, where there is one that holds together.
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

/// A table from nothing, once the ring has settled, so that its nodes are known.
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
