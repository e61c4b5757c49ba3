//! Drives the keeper over time: processes readings, plans, begins handovers and ends late ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Change, Delta, DispatcherId, Ended, Keeper, KeeperError, NodeId, ObjectSet, PlanReason,
    PlanSettings, Planned, Planner, SetLoad, SetLoads, Table, rest_of,
};

/// The steward's own dispatcher number: each handover waits until it has read which dispatchers had joined when the
/// handover was published.
const READER: DispatcherId = 0;
/// Maximum sets in handover at a time, as dispatchers report no more.
const MAX_MOVING: usize = 1024;
/// Half-life of a node's earlier capacity, in seconds. A bound lowered by overload is not the node's capacity once sets
/// have left it, and a plan based on it would strip the node.
const CAPACITY_HALF_LIFE: f64 = 30.0;
/// Minimum share of its capacity that a node keeps if pinned sets fill it: it stays live, but gets nothing more.
const FILLED: f64 = 1e-6;

/// Settings of the steward.
#[derive(Clone, Debug, PartialEq)]
pub struct StewardSettings {
    /// Conditions under which object sets move.
    pub plan: PlanSettings,
    /// Whether sets move for balance. If not, only pinned sets, operators' moves and sets without a live primary do.
    pub moves: bool,
    /// Maximum duration of a request.
    pub request_limit: Duration,
    /// Time without a report after which a dispatcher is silent, or a node is down.
    pub lease: Duration,
}

/// Last report of a dispatcher.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Number of the dispatcher, not 0.
    pub id: DispatcherId,
    /// Time since the report.
    pub age: Duration,
    /// Version that the dispatcher knew.
    pub version: u64,
    /// Version at which it joined.
    pub joined: u64,
    /// Sets in handover with requests still in flight or in doubt.
    pub busy: Vec<ObjectSet>,
}

/// A live node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeNow {
    /// Present capacity in any unit; nothing is placed on a node with 0.
    pub capacity: f64,
    /// Mean cost of a request, in items.
    pub mean_cost: f64,
}

/// State of the cluster, read after the last change was published.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// All joined dispatchers.
    pub dispatchers: Vec<Heard>,
    /// Dispatchers that left and may have requests in flight.
    pub gone: Vec<DispatcherId>,
    /// Live nodes; given once a period.
    pub nodes: Option<BTreeMap<NodeId, NodeNow>>,
    /// Cost of the requests that arrived, per set; given once a period, when the steward plans.
    pub loads: Option<Vec<(ObjectSet, f64)>>,
    /// Moves that operators requested.
    pub wishes: Vec<(ObjectSet, NodeId)>,
    /// Sets that operators pinned, and their nodes.
    pub pins: BTreeMap<ObjectSet, NodeId>,
}

/// Result of a step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Change to publish before the next reading. If that fails, this steward's state is invalid.
    pub delta: Option<Delta>,
    /// Handovers that ended, with their results and durations.
    pub ended: Vec<(ObjectSet, Ended, Duration)>,
    /// The plan, if the step made one.
    pub planned: Option<Planned>,
    /// Dispatchers without a report for a lease, or since this table is in force.
    pub silent: Vec<DispatcherId>,
    /// Requested moves that failed, with the reason.
    pub refused: Vec<(ObjectSet, KeeperError)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Duration,
    now: Option<NodeNow>,
}

/// Drives a [`Keeper`] from periodic readings.
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
    /// Creates a steward from a new or a saved table.
    pub fn new(table: Table, settings: StewardSettings) -> Self {
        Steward::with(Keeper::recovered(table), settings)
    }

    /// Resumes from a saved table with versions from `first` on. `may_have_lost`: a later table may have been lost,
    /// as for [`Keeper::recovered_after_loss`].
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
        // The number is unused in a new keeper, so this cannot fail.
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

    /// Replaces the settings.
    pub fn set(&mut self, settings: StewardSettings) {
        self.settings = settings;
    }

    /// The table, including all decisions.
    pub fn table(&self) -> &Table {
        self.keeper.table()
    }

    /// Whether it waits for dispatchers that may act on a lost version.
    pub fn is_after_loss(&self) -> bool {
        self.keeper.is_after_loss()
    }

    /// Number of sets in handover.
    pub fn moving(&self) -> usize {
        self.keeper.moving().count()
    }

    /// Cumulative number of names that lost their entry or their individual count.
    pub fn forgotten(&self) -> u64 {
        self.keeper.forgotten() + self.loads.forgotten()
    }

    /// Processes a reading; `now` is the time since any fixed point.
    pub fn step(&mut self, now: Duration, reading: &Reading) -> Step {
        let mut step = Step::default();
        let version = self.table().version();
        self.hear(reading);
        // All dispatchers that had joined when that version was published are known now.
        let _ = self.keeper.heard(READER, version, &[]);
        if let Some(nodes) = &reading.nodes {
            self.look_at_nodes(now, nodes);
        }
        let silent = reading.dispatchers.iter();
        // A dispatcher that has reported no version of this table may act on another one.
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
                // A dispatcher that joined and left between two readings may also have requests in flight.
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
            // Reports ahead of the table are ignored; Redis already refuses them.
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

    /// Capacity of each node that is up; nodes without a reported one get the mean.
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

    /// Ends handovers that take too long, except those from nodes that are down.
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

    /// Whether a node has reported within a lease.
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
            // A node that is down gets its pinned sets when it is up again.
            if !is_so && self.is_up(now, *to) && !moving.contains(&key_of(&change)) {
                let _ = self.keeper.begin(&[change]);
            }
        }
    }

    /// Plans the sets that are not pinned; the pinned ones reduce their nodes' capacity.
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
            // One change is invalid: begin the others one by one.
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

/// Entry whose handover a change needs.
fn key_of(change: &Change) -> ObjectSet {
    match change {
        Change::Move(set, _) => set.clone(),
        Change::Name(name, _) => ObjectSet::Rest(rest_of(name)),
        Change::Forget(name) => ObjectSet::Named(name.clone()),
    }
}
