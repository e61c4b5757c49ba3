//! The keeper, which decides on primaries: the central part of the handover, of which a cluster has one.

mod error;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use error::KeeperError;

use super::{
    Change, Delta, DispatcherId, MAX_DISPATCHERS, MAX_NAMED, NodeId, ObjectSet, State, Table,
    check_name, rest_of,
};

/// Recent changes kept for dispatchers that have missed some.
const LOGGED: usize = 32;

/// Update for a dispatcher, depending on the version it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The dispatcher is up to date.
    None,
    /// These changes, in order.
    Deltas(Vec<Delta>),
    /// The whole table.
    Table(Table),
}

/// Result of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The set has its new primary, or its entry is gone.
    Done,
    /// The set stays with its former primary.
    Back,
}

/// Handover in progress.
#[derive(Clone, Debug)]
struct Move {
    /// Version that published its begin.
    since: u64,
    to: NodeId,
    /// Whether the entry is removed, as its name is cold.
    forget: bool,
    /// Names of a rest that get entries of their own in this handover, with their primaries.
    names: BTreeMap<Box<str>, NodeId>,
    /// Dispatchers that may still have requests of the set in flight.
    waits: BTreeSet<DispatcherId>,
    /// Whether a lost version may have named the new primary, and dispatchers may act on it.
    may_be_over: bool,
}

/// The keeper of the table.
///
/// A set's requests run at one node at a time, provided that a dispatcher reported as left sends no more requests, and
/// that [`vouched`](Keeper::vouched) is called only for nodes that have finished theirs.
#[derive(Clone, Debug)]
pub struct Keeper {
    table: Table,
    dispatchers: BTreeSet<DispatcherId>,
    moves: BTreeMap<ObjectSet, Move>,
    down: BTreeSet<NodeId>,
    /// Nodes that may still work on requests of dispatchers that have left.
    in_doubt: BTreeSet<NodeId>,
    log: VecDeque<Delta>,
    /// Entries that changed since [`Keeper::take_delta`]; `said` is the version at that time.
    unsaid: BTreeMap<ObjectSet, Option<State>>,
    said: u64,
    /// Minimum version of the next change.
    next: u64,
    ended: Vec<(ObjectSet, Ended)>,
    forgotten: u64,
}

impl Move {
    /// Whether the handover only returns the set to its former primary. Dispatchers with any earlier version send its
    /// requests there too, so none has to be waited for, unless later versions were lost.
    fn is_void(&self, from: NodeId) -> bool {
        self.to == from && !self.forget && self.names.is_empty()
    }
}

impl Keeper {
    /// Creates a keeper with a table that no dispatcher has yet.
    pub fn new(table: Table) -> Self {
        Keeper {
            said: table.version(),
            next: 0,
            unsaid: BTreeMap::new(),
            ended: Vec::new(),
            table,
            dispatchers: BTreeSet::new(),
            moves: BTreeMap::new(),
            down: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            log: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// Restores a keeper from the table alone: sets in handover return to their former primaries. The caller must
    /// report the dispatchers that had joined with [`Keeper::join_at`], and those that left meanwhile and may have
    /// requests in flight with [`Keeper::left`].
    pub fn recovered(table: Table) -> Self {
        Keeper::recovered_at(table, 0)
    }

    /// As [`Keeper::recovered`], with versions from `first` on.
    pub fn recovered_at(table: Table, first: u64) -> Self {
        let mut keeper = Keeper::new(table);
        keeper.next = first;
        keeper.recover(false);
        keeper.finish();
        keeper
    }

    /// As [`Keeper::recovered_at`], with a table whose last published version may have been lost, so that sets in
    /// handover may already have had their new primaries. They return once all joined dispatchers have reported a
    /// version from `first` on, and the nodes in doubt are vouched for.
    pub fn recovered_after_loss(table: Table, first: u64) -> Self {
        let mut keeper = Keeper::new(table);
        keeper.next = first;
        let entries = keeper.recover(true);
        keeper.publish(entries);
        keeper
    }

    fn recover(&mut self, may_be_over: bool) -> Vec<(ObjectSet, Option<State>)> {
        let entries = self.table.entries();
        let leaving = entries.filter(|(_, state)| matches!(state, State::Leaving(_)));
        let leaving: Vec<_> = leaving.collect();
        for (set, state) in &leaving {
            let mut back = self.fresh(state.primary());
            back.may_be_over = may_be_over;
            self.moves.insert(set.clone(), back);
        }
        let states = leaving.into_iter();
        states.map(|(set, state)| (set, Some(state))).collect()
    }

    /// Whether a set in handover may have had its new primary in a lost version.
    pub fn is_after_loss(&self) -> bool {
        self.moves.values().any(|hand_over| hand_over.may_be_over)
    }

    /// The table in force.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether any handover is in progress.
    pub fn is_moving(&self) -> bool {
        !self.moves.is_empty()
    }

    /// Object sets in handover.
    pub fn moving(&self) -> impl Iterator<Item = &ObjectSet> {
        self.moves.keys()
    }

    /// All changes since the last call, as one; `None` if there are none.
    pub fn take_delta(&mut self) -> Option<Delta> {
        let from = std::mem::replace(&mut self.said, self.table.version());
        let entries: Vec<_> = std::mem::take(&mut self.unsaid).into_iter().collect();
        (!entries.is_empty()).then_some(Delta {
            from,
            to: self.said,
            entries,
        })
    }

    /// Handovers that ended since the last call.
    pub fn take_ended(&mut self) -> Vec<(ObjectSet, Ended)> {
        std::mem::take(&mut self.ended)
    }

    /// Cumulative number of names that lost their entries.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Nodes in doubt, which need [`Keeper::vouched`] before sets leave them.
    pub fn in_doubt(&self) -> impl Iterator<Item = NodeId> {
        self.in_doubt.iter().copied()
    }

    /// Update for a dispatcher that knows this version, or none.
    pub fn news(&self, known: Option<u64>) -> News {
        let newest = self.table.version();
        match known {
            Some(known) if known >= newest => News::None,
            Some(known) if self.log.front().is_some_and(|first| first.from <= known) => {
                let newer = self.log.iter().filter(|delta| delta.from >= known);
                News::Deltas(newer.cloned().collect())
            }
            _ => News::Table(self.table.clone()),
        }
    }

    /// Adds a dispatcher, and returns the table without which it must admit no request.
    pub fn join(&mut self, id: DispatcherId) -> Result<Table, KeeperError> {
        if self.dispatchers.contains(&id) {
            return Err(KeeperError::Joined(id));
        }
        if self.dispatchers.len() >= MAX_DISPATCHERS {
            return Err(KeeperError::TooMany);
        }
        self.dispatchers.insert(id);
        Ok(self.table.clone())
    }

    /// Adds a dispatcher that joined at an earlier version, and so may not know of handovers that began later.
    pub fn join_at(&mut self, id: DispatcherId, version: u64) -> Result<(), KeeperError> {
        self.join(id)?;
        for hand_over in self.moves.values_mut() {
            if hand_over.since > version {
                hand_over.waits.insert(id);
            }
        }
        Ok(())
    }

    /// Whether a dispatcher has joined and not left.
    pub fn knows(&self, id: DispatcherId) -> bool {
        self.dispatchers.contains(&id)
    }

    /// Processes a dispatcher's [`report`](super::Follower::report). Late and duplicate reports are harmless.
    pub fn heard(
        &mut self,
        id: DispatcherId,
        version: u64,
        busy: &[ObjectSet],
    ) -> Result<(), KeeperError> {
        let have = self.table.version();
        if !self.dispatchers.contains(&id) {
            return Err(KeeperError::Unknown(id));
        }
        if version > have {
            return Err(KeeperError::Ahead {
                have,
                told: version,
            });
        }
        let busy: BTreeSet<&ObjectSet> = busy.iter().collect();
        for (set, hand_over) in &mut self.moves {
            if version >= hand_over.since && !busy.contains(set) {
                hand_over.waits.remove(&id);
            }
        }
        self.finish();
        Ok(())
    }

    /// Removes a dispatcher that sends no more requests. `idle`: it reported that none of its requests was in flight
    /// or in doubt; otherwise nodes may still be working on them.
    pub fn left(&mut self, id: DispatcherId, idle: bool) {
        if !self.dispatchers.remove(&id) {
            return;
        }
        for hand_over in self.moves.values_mut() {
            hand_over.waits.remove(&id);
        }
        if !idle {
            self.doubt_all();
        }
        self.finish();
    }

    /// Records that a node has finished the requests of all dispatchers that have left.
    pub fn vouched(&mut self, node: NodeId) {
        self.in_doubt.remove(&node);
        self.finish();
    }

    /// Marks a node as down: no set moves to it, and sets on the way there stay with their former primaries. Requests
    /// may still run on it, so sets leave it only once all dispatchers have finished with it, as with any other node:
    /// when their connections have ended and the node is vouched for.
    pub fn node_down(&mut self, node: NodeId) {
        self.down.insert(node);
        for (set, hand_over) in &mut self.moves {
            if hand_over.to == node
                && let Some(state) = self.table.state(set)
            {
                hand_over.to = state.primary();
            }
            hand_over.names.retain(|_, to| *to != node);
        }
        self.finish();
    }

    /// Marks a node as up again.
    pub fn node_up(&mut self, node: NodeId) {
        self.down.remove(&node);
        self.finish();
    }

    /// Begins a plan's changes. A set already in handover goes to the new primary instead.
    pub fn begin(&mut self, changes: &[Change]) -> Result<(), KeeperError> {
        self.check(changes)?;
        let mut entries = Vec::new();
        for change in changes {
            let set = match change {
                Change::Move(set, _) => set.clone(),
                Change::Name(name, _) => ObjectSet::Rest(rest_of(name)),
                Change::Forget(name) => ObjectSet::Named(name.clone()),
            };
            let Some(state) = self.table.state(&set) else {
                continue;
            };
            let from = state.primary();
            if !self.moves.contains_key(&set) {
                let is_so = match change {
                    Change::Move(_, to) => *to == from,
                    Change::Name(name, _) => self.table.is_named(name),
                    Change::Forget(_) => false,
                };
                if is_so {
                    continue;
                }
                entries.push((set.clone(), Some(State::Leaving(from))));
                self.moves.insert(set.clone(), self.fresh(from));
            }
            let Some(hand_over) = self.moves.get_mut(&set) else {
                continue;
            };
            match change {
                Change::Move(_, to) => {
                    hand_over.to = *to;
                    hand_over.forget = false;
                }
                Change::Name(name, to) => {
                    hand_over.names.insert(name.clone(), *to);
                }
                Change::Forget(_) => hand_over.forget = true,
            }
        }
        self.publish(entries);
        self.finish();
        Ok(())
    }

    /// Ends a handover that takes too long: the set returns to its former primary.
    pub fn give_up(&mut self, set: &ObjectSet) {
        let from = self.table.state(set).map(State::primary);
        if let Some((hand_over, from)) = self.moves.get_mut(set).zip(from) {
            (hand_over.to, hand_over.forget) = (from, false);
            hand_over.names.clear();
        }
        self.finish();
    }

    fn check(&self, changes: &[Change]) -> Result<(), KeeperError> {
        let pending: usize = self
            .moves
            .values()
            .map(|hand_over| hand_over.names.len())
            .sum();
        let mut names = self.table.named() + pending;
        for change in changes {
            match change {
                Change::Move(set, _) if self.table.state(set).is_none() => {
                    return Err(KeeperError::NoEntry(set.clone()));
                }
                Change::Move(_, to) | Change::Name(_, to) if self.down.contains(to) => {
                    return Err(KeeperError::Down(*to));
                }
                Change::Move(..) => {}
                Change::Name(name, _) => {
                    check_name(name).map_err(KeeperError::Name)?;
                    names += 1;
                    if names > MAX_NAMED {
                        return Err(KeeperError::Full);
                    }
                }
                Change::Forget(name) if !self.table.is_named(name) => {
                    return Err(KeeperError::NoEntry(ObjectSet::Named(name.clone())));
                }
                Change::Forget(_) => {}
            }
        }
        Ok(())
    }

    /// Handover that begins with the next version, and waits for all dispatchers.
    fn fresh(&self, to: NodeId) -> Move {
        Move {
            since: self.next_version(),
            to,
            forget: false,
            names: BTreeMap::new(),
            waits: self.dispatchers.clone(),
            may_be_over: false,
        }
    }

    fn next_version(&self) -> u64 {
        self.next.max(self.table.version() + 1)
    }

    fn doubt_all(&mut self) {
        let primaries = self.table.entries().map(|(_, state)| state.primary());
        self.in_doubt.extend(primaries);
    }

    /// Names the new primaries of sets that all dispatchers have finished with.
    fn finish(&mut self) {
        let mut entries = Vec::new();
        let mut done = Vec::new();
        for (set, hand_over) in &self.moves {
            let Some(from) = self.table.state(set).map(State::primary) else {
                continue;
            };
            let is_void = hand_over.is_void(from);
            // A rest that only loses names stays at its node, even if that is down.
            let stays = hand_over.to == from;
            let has_primary = hand_over.forget || stays || !self.down.contains(&hand_over.to);
            let is_through = hand_over.waits.is_empty() && !self.in_doubt.contains(&from);
            let is_free = is_void && !hand_over.may_be_over;
            let ends = is_free || (is_through && has_primary);
            if !ends {
                continue;
            }
            done.push((set.clone(), if is_void { Ended::Back } else { Ended::Done }));
            if hand_over.forget {
                self.forgotten += 1;
                entries.push((set.clone(), None));
            } else {
                entries.push((set.clone(), Some(State::Settled(hand_over.to))));
            }
            for (name, to) in &hand_over.names {
                if !self.table.is_named(name) && !self.down.contains(to) {
                    let set = ObjectSet::Named(name.clone());
                    entries.push((set, Some(State::Settled(*to))));
                }
            }
        }
        for (set, _) in &done {
            self.moves.remove(set);
        }
        self.ended.extend(done);
        self.publish(entries);
    }

    fn publish(&mut self, entries: Vec<(ObjectSet, Option<State>)>) {
        if entries.is_empty() {
            return;
        }
        let from = self.table.version();
        let delta = Delta {
            from,
            to: self.next_version(),
            entries,
        };
        if self.table.apply(&delta).is_ok() {
            self.unsaid.extend(delta.entries.iter().cloned());
            self.log.push_back(delta);
            if self.log.len() > LOGGED {
                self.log.pop_front();
            }
        }
    }
}
