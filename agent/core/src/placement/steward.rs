//! The keeper over time: whom it hears, when it plans, what it begins and when it gives up.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Change, Delta, DispatcherId, Ended, Keeper, KeeperError, NodeId, ObjectSet, PlanReason,
    PlanSettings, Planned, Planner, SetLoad, SetLoads, Table, rest_of,
};

/// Its own number: it is through with a hand-over once it has read who had joined when that was published.
const READER: DispatcherId = 0;
/// Sets that leave at a time; dispatchers tell no more.
const MAX_MOVING: usize = 1024;
/// What a node could hold a while ago counts half after this, in seconds: a bound that overload lowers is not what the
/// node can hold once sets have left it, and a plan that believes it strips the node.
const CAPACITY_HALF_LIFE: f64 = 30.0;
/// What is left of the capacity of a node that what is pinned to it fills: it is there, and gets nothing.
const FILLED: f64 = 1e-6;

/// What it goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct StewardSettings {
    /// When a plan is worth carrying out.
    pub plan: PlanSettings,
    /// Without, only what is pinned, what is wished and what has no live primary moves.
    pub moves: bool,
    /// No request runs for longer.
    pub request_limit: Duration,
    /// A dispatcher that is not heard for so long is silent, a node that is not seen for so long is down.
    pub lease: Duration,
}

/// What a dispatcher told last.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Who; not 0.
    pub id: DispatcherId,
    /// How long ago.
    pub age: Duration,
    /// The version that it knew.
    pub version: u64,
    /// The version that it joined at.
    pub joined: u64,
    /// What is to leave and cannot yet.
    pub busy: Vec<ObjectSet>,
}

/// A live node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeNow {
    /// What it may hold now, in any unit; 0: nothing is placed there.
    pub capacity: f64,
    /// Mean cost of a request.
    pub mean_cost: f64,
}

/// What is known at some time, read after the last change was published.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// All that have joined.
    pub dispatchers: Vec<Heard>,
    /// Those that went and may have left something under way.
    pub gone: Vec<DispatcherId>,
    /// Live nodes, once a period.
    pub nodes: Option<BTreeMap<NodeId, NodeNow>>,
    /// Costs that came, once a period: then it plans.
    pub loads: Option<Vec<(ObjectSet, f64)>>,
    /// What operators want moved.
    pub wishes: Vec<(ObjectSet, NodeId)>,
    /// What operators fixed.
    pub pins: BTreeMap<ObjectSet, NodeId>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// To be published before the next reading; where that fails, nothing of this keeper holds any more.
    pub delta: Option<Delta>,
    /// Hand-overs that ended, how, and after how long.
    pub ended: Vec<(ObjectSet, Ended, Duration)>,
    /// The plan, where there was one.
    pub planned: Option<Planned>,
    /// Dispatchers that were not heard for a lease, or not since the table is in force.
    pub silent: Vec<DispatcherId>,
    /// Wishes that cannot be carried out, and why.
    pub refused: Vec<(ObjectSet, KeeperError)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Duration,
    now: Option<NodeNow>,
}

/// Drives a [`Keeper`].
#[derive(Clone, Debug)]
pub struct Steward {
    settings: StewardSettings,
    keeper: Keeper,
    loads: SetLoads,
    gone: BTreeSet<DispatcherId>,
    heard: BTreeSet<DispatcherId>,
    nodes: BTreeMap<NodeId, Seen>,
    began: BTreeMap<ObjectSet, Duration>,
    not_before: BTreeMap<ObjectSet, Duration>,
}

impl Steward {
    /// Goes on with a table, or begins with one.
    pub fn new(table: Table, settings: StewardSettings) -> Self {
        Steward::with(Keeper::recovered(table), settings)
    }

    /// Goes on with a table with versions from `first` on. `may_have_lost`: that table was not the last, see
    /// [`Keeper::recovered_after_loss`].
    pub fn resumed(
        table: Table,
        settings: StewardSettings,
        first: u64,
        may_have_lost: bool,
    ) -> Self {
        let keeper = match may_have_lost {
            true => Keeper::recovered_after_loss(table, first),
            false => Keeper::recovered_at(table, first),
        };
        Steward::with(keeper, settings)
    }

    fn with(mut keeper: Keeper, settings: StewardSettings) -> Self {
        // Nobody has that number yet.
        let _ = keeper.join(READER);
        Steward {
            settings,
            keeper,
            loads: SetLoads::default(),
            gone: BTreeSet::new(),
            heard: BTreeSet::new(),
            nodes: BTreeMap::new(),
            began: BTreeMap::new(),
            not_before: BTreeMap::new(),
        }
    }

    /// Other settings from now on.
    pub fn set(&mut self, settings: StewardSettings) {
        self.settings = settings;
    }

    /// The table, with all that was decided.
    pub fn table(&self) -> &Table {
        self.keeper.table()
    }

    /// Whether it waits for who may act on a version that was lost.
    pub fn is_after_loss(&self) -> bool {
        self.keeper.is_after_loss()
    }

    /// Sets that are on their way.
    pub fn moving(&self) -> usize {
        self.keeper.moving().count()
    }

    /// Names that were counted or had an entry and no longer are or have, since it began.
    pub fn forgotten(&self) -> u64 {
        self.keeper.forgotten() + self.loads.forgotten()
    }

    /// One look; `now` is the time since any fixed point.
    pub fn step(&mut self, now: Duration, reading: &Reading) -> Step {
        let mut step = Step::default();
        let version = self.table().version();
        self.hear(reading);
        // All who had joined when that version was published are known now.
        let _ = self.keeper.heard(READER, version, &[]);
        if let Some(nodes) = &reading.nodes {
            self.look_at_nodes(now, nodes);
        }
        let silent = reading.dispatchers.iter();
        // Who has told no version of this table may act on another one.
        let silent = silent.filter(|known| known.age > self.settings.lease || known.version == 0);
        step.silent = silent.map(|known| known.id).collect();
        self.give_up(now);
        if let Some(loads) = &reading.loads {
            self.count(loads);
        }
        if step.silent.is_empty() {
            step.refused = self.heed(now, &reading.wishes);
            if reading.loads.is_some() {
                self.pin(now, &reading.pins);
                if !self.keeper.is_moving() {
                    step.planned = Some(self.plan(now, &reading.pins));
                }
            }
        }
        for (set, ended) in self.keeper.take_ended() {
            let began = self.began.remove(&set).unwrap_or(now);
            if ended == Ended::Back {
                let again = now + self.settings.request_limit;
                self.not_before.insert(set.clone(), again);
            }
            step.ended.push((set, ended, now.saturating_sub(began)));
        }
        for set in self.keeper.moving() {
            self.began.entry(set.clone()).or_insert(now);
        }
        step.delta = self.keeper.take_delta();
        step
    }

    fn hear(&mut self, reading: &Reading) {
        for id in &reading.gone {
            if self.gone.insert(*id) {
                // One that came and went between two readings leaves doubt all the same.
                let _ = self.keeper.join_at(*id, 0);
                self.keeper.left(*id, false);
                self.heard.remove(id);
            }
        }
        let listed: BTreeSet<DispatcherId> =
            reading.dispatchers.iter().map(|known| known.id).collect();
        for id in self.heard.difference(&listed) {
            self.keeper.left(*id, true);
        }
        self.heard = listed;
        for known in &reading.dispatchers {
            if !self.keeper.knows(known.id) {
                let _ = self.keeper.join_at(known.id, known.joined);
            }
            // One that is ahead is not believed; Redis refuses it before.
            let _ = self.keeper.heard(known.id, known.version, &known.busy);
        }
        self.gone.retain(|id| reading.gone.contains(id));
        if self.gone.is_empty() {
            let doubtful: Vec<NodeId> = self.keeper.in_doubt().collect();
            for node in doubtful {
                self.keeper.vouched(node);
            }
        }
    }

    fn look_at_nodes(&mut self, now: Duration, nodes: &BTreeMap<NodeId, NodeNow>) {
        let primaries: BTreeSet<NodeId> = self
            .keeper
            .table()
            .entries()
            .map(|(_, state)| state.primary())
            .collect();
        for node in &primaries {
            self.nodes
                .entry(*node)
                .or_insert(Seen { at: now, now: None });
        }
        for (node, told) in nodes {
            let mut told = *told;
            if let Some(Seen {
                at,
                now: Some(past),
            }) = self.nodes.get(node)
                && told.capacity > 0.0
            {
                let passed = now.saturating_sub(*at).as_secs_f64();
                let kept = past.capacity * (-passed / CAPACITY_HALF_LIFE).exp2();
                told.capacity = told.capacity.max(kept);
            }
            let seen = Seen {
                at: now,
                now: Some(told),
            };
            self.nodes.insert(*node, seen);
        }
        let lease = self.settings.lease;
        let is_up = |seen: &Seen| now.saturating_sub(seen.at) <= lease;
        self.nodes
            .retain(|node, seen| is_up(seen) || primaries.contains(node));
        for (node, seen) in &self.nodes {
            match is_up(seen) {
                true => self.keeper.node_up(*node),
                false => self.keeper.node_down(*node),
            }
        }
    }

    /// What each node may hold; those that are down are left out, those that nobody has told of are like the others.
    fn capacities(&self, now: Duration) -> BTreeMap<NodeId, f64> {
        let up = || {
            let lease = self.settings.lease;
            let nodes = self.nodes.iter();
            nodes.filter(move |(_, seen)| now.saturating_sub(seen.at) <= lease)
        };
        let told = || up().filter_map(|(_, seen)| seen.now);
        let count = told().count();
        let mean = match count {
            0 => 1.0,
            _ => told().map(|node| node.capacity).sum::<f64>() / count as f64,
        };
        up().map(|(node, seen)| (*node, seen.now.map_or(mean, |told| told.capacity)))
            .collect()
    }

    fn count(&mut self, loads: &[(ObjectSet, f64)]) {
        let costs = self.nodes.values().filter_map(|seen| seen.now);
        let costs: Vec<f64> = costs
            .map(|node| node.mean_cost)
            .filter(|cost| cost.is_finite() && *cost > 0.0)
            .collect();
        let mean = match costs.len() {
            0 => 1.0,
            count => costs.iter().sum::<f64>() / count as f64,
        };
        for (set, cost) in loads {
            self.loads.told(set, *cost, mean);
        }
        self.loads.end_period();
    }

    /// What takes too long goes back, but where nobody is there to go back to.
    fn give_up(&mut self, now: Duration) {
        let limit = self.settings.request_limit + self.settings.lease;
        let capacities = self.capacities(now);
        let late = self.began.iter().filter(|(set, began)| {
            let state = self.keeper.table().state(set);
            let lives = state.is_some_and(|state| lives(&capacities, state.primary()));
            now.saturating_sub(**began) > limit && lives
        });
        let late: Vec<ObjectSet> = late.map(|(set, _)| set.clone()).collect();
        for set in late {
            self.keeper.give_up(&set);
        }
        self.not_before.retain(|_, till| *till > now);
    }

    fn change(&self, set: &ObjectSet, to: NodeId) -> Change {
        match set {
            ObjectSet::Named(name) if !self.table().is_named(name) => {
                Change::Name(name.clone(), to)
            }
            _ => Change::Move(set.clone(), to),
        }
    }

    /// Whether a node was seen of late.
    fn is_up(&self, now: Duration, node: NodeId) -> bool {
        let seen = self.nodes.get(&node).filter(|seen| seen.now.is_some());
        seen.is_some_and(|seen| now.saturating_sub(seen.at) <= self.settings.lease)
    }

    fn heed(
        &mut self,
        now: Duration,
        wishes: &[(ObjectSet, NodeId)],
    ) -> Vec<(ObjectSet, KeeperError)> {
        let mut refused = Vec::new();
        for (set, to) in wishes {
            let change = self.change(set, *to);
            let begun = match self.is_up(now, *to) {
                true => self.keeper.begin(&[change]),
                false => Err(KeeperError::Down(*to)),
            };
            if let Err(problem) = begun {
                refused.push((set.clone(), problem));
            }
        }
        refused
    }

    fn pin(&mut self, now: Duration, pins: &BTreeMap<ObjectSet, NodeId>) {
        let moving: BTreeSet<ObjectSet> = self.keeper.moving().cloned().collect();
        for (set, to) in pins {
            let state = self.table().state(set);
            let is_so = state.is_some_and(|state| state.primary() == *to);
            let change = self.change(set, *to);
            // A node that is down gets it when it is back.
            if !is_so && self.is_up(now, *to) && !moving.contains(&key_of(&change)) {
                let _ = self.keeper.begin(&[change]);
            }
        }
    }

    /// Plans around what is pinned: its nodes have so much less capacity for the rest.
    fn plan(&mut self, now: Duration, pins: &BTreeMap<ObjectSet, NodeId>) -> Planned {
        let mut capacities = self.capacities(now);
        let is_pinned = |load: &SetLoad| pins.contains_key(&load.set);
        let (fixed, free): (Vec<SetLoad>, Vec<SetLoad>) =
            self.loads.loads().into_iter().partition(is_pinned);
        let total: f64 = fixed.iter().chain(&free).map(|load| load.load).sum();
        let all: f64 = capacities.values().filter(|size| **size > 0.0).sum();
        for load in &fixed {
            let node = pins
                .get(&load.set)
                .and_then(|node| capacities.get_mut(node));
            if let Some(size) = node.filter(|size| **size > 0.0) {
                *size = (*size - load.load * all / total).max(FILLED * *size);
            }
        }
        let planner = Planner::new(self.settings.plan);
        let mut planned = planner.plan(self.table(), &free, &capacities);
        let doubtful: BTreeSet<NodeId> = self.keeper.in_doubt().collect();
        let may_begin = |change: &Change| {
            let set = key_of(change);
            let named = match change {
                Change::Name(name, _) => Some(ObjectSet::Named(name.clone())),
                _ => None,
            };
            let Some(from) = self.table().state(&set).map(|state| state.primary()) else {
                return false;
            };
            let is_dead = !lives(&capacities, from);
            let waits = doubtful.contains(&from) || self.not_before.contains_key(&set);
            let is_fixed =
                pins.contains_key(&set) || named.is_some_and(|set| pins.contains_key(&set));
            !is_fixed && (is_dead || (self.settings.moves && !waits))
        };
        planned.changes.retain(may_begin);
        planned.changes.truncate(MAX_MOVING);
        if planned.reason == PlanReason::Uneven && planned.changes.is_empty() {
            planned.reason = PlanReason::NoGain;
        }
        if self.keeper.begin(&planned.changes).is_err() {
            // One of them cannot be; the others can.
            planned
                .changes
                .retain(|change| self.keeper.begin(std::slice::from_ref(change)).is_ok());
        }
        planned
    }
}

fn lives(capacities: &BTreeMap<NodeId, f64>, node: NodeId) -> bool {
    capacities.get(&node).is_some_and(|size| *size > 0.0)
}

/// The entry that is handed over for a change.
fn key_of(change: &Change) -> ObjectSet {
    match change {
        Change::Move(set, _) => set.clone(),
        Change::Name(name, _) => ObjectSet::Rest(rest_of(name)),
        Change::Forget(name) => ObjectSet::Named(name.clone()),
    }
}
