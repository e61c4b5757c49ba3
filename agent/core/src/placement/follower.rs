//! What a dispatcher knows of the table, and what of it is under way.

use std::collections::BTreeMap;

use super::{Delta, Gap, NameError, NodeId, ObjectSet, State, Table, check_name};

/// Where a request of an object set goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// To this node. The ticket is to be given back when the request has ended.
    Go(Ticket),
    /// Nowhere yet: its set is being handed over. Ask again a little later, or answer 503 with `Retry-After`.
    Wait,
}

/// A request that is under way.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket {
    set: ObjectSet,
    node: NodeId,
}

impl Ticket {
    /// Where to send it.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The entry that its name goes by.
    pub fn set(&self) -> &ObjectSet {
        &self.set
    }
}

/// Requests of a set at a node.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    under_way: u32,
    /// Ended without an answer: the node may still be at work on them.
    in_doubt: u32,
}

/// The part of the hand-over that is in a dispatcher. Middle-R, section 4.1: requests that came before the new
/// assignment end where they began, those after it wait for that.
///
/// Whoever drives it calls [`Follower::suspend`] when the keeper has not been heard for as long as the keeper waits
/// before it takes a dispatcher for gone, less what clocks may differ; after that the dispatcher joins anew, under a
/// new number.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    table: Option<Table>,
    counts: BTreeMap<(ObjectSet, NodeId), Count>,
}

impl Follower {
    /// The version it knows; `None` before it has joined and while it is suspended.
    pub fn version(&self) -> Option<u64> {
        self.table.as_ref().map(Table::version)
    }

    /// The keeper's answer to the last time it asked to join, not to an earlier one.
    pub fn joined(&mut self, table: Table) {
        self.table = Some(table);
    }

    /// Takes a whole table, as the keeper gives it to who has missed something. An older one is ignored, and any while
    /// it has not joined: it may be from before it was suspended.
    pub fn on_table(&mut self, table: Table) {
        if self.version().is_some_and(|known| table.version() > known) {
            self.table = Some(table);
        }
    }

    /// Takes a change. After [`Gap::Missed`] and [`Gap::Wrong`] it needs the whole table.
    pub fn on_delta(&mut self, delta: &Delta) -> Result<(), Gap> {
        let Some(table) = &mut self.table else {
            return Err(Gap::Missed);
        };
        table.apply(delta)
    }

    /// Lets nobody in until it has joined anew.
    pub fn suspend(&mut self) {
        self.table = None;
    }

    /// Whether something leaves, so that there is more to tell than usual.
    pub fn is_leaving(&self, set: &ObjectSet) -> bool {
        let state = self.table.as_ref().and_then(|table| table.state(set));
        matches!(state, Some(State::Leaving(_)))
    }

    /// Where a request for an object set goes.
    pub fn route(&mut self, name: &str) -> Result<Route, NameError> {
        check_name(name)?;
        let Some(table) = &self.table else {
            return Ok(Route::Wait);
        };
        let set = table.set_of(name);
        let Some(State::Settled(node)) = table.state(&set) else {
            return Ok(Route::Wait);
        };
        let count = self.counts.entry((set.clone(), node)).or_default();
        count.under_way = count.under_way.saturating_add(1);
        Ok(Route::Go(Ticket { set, node }))
    }

    /// The node has answered, or was never reached: it is through with the request.
    pub fn answered(&mut self, ticket: Ticket) {
        self.ended(ticket, false);
    }

    /// It ended without an answer: a time-out, a client that left, a broken connection. The node may still be at work
    /// on it, so its set does not leave the node before [`Follower::vouched`].
    pub fn unanswered(&mut self, ticket: Ticket) {
        self.ended(ticket, true);
    }

    fn ended(&mut self, ticket: Ticket, in_doubt: bool) {
        let key = (ticket.set, ticket.node);
        if let Some(count) = self.counts.get_mut(&key) {
            count.under_way = count.under_way.saturating_sub(1);
            count.in_doubt = count.in_doubt.saturating_add(u32::from(in_doubt));
            if count.under_way == 0 && count.in_doubt == 0 {
                self.counts.remove(&key);
            }
        }
    }

    /// Somebody who can tell says that a node is through with everything whose connection ended before: it has
    /// restarted, or its oldest unfinished request is younger, or none may run for so long.
    pub fn vouched(&mut self, node: NodeId) {
        self.counts.retain(|(_, at), count| {
            if *at == node {
                count.in_doubt = 0;
            }
            count.under_way > 0 || count.in_doubt > 0
        });
    }

    /// Nodes that somebody has to vouch for.
    pub fn in_doubt(&self) -> Vec<NodeId> {
        let doubts = self.counts.iter().filter(|(_, count)| count.in_doubt > 0);
        let mut nodes: Vec<NodeId> = doubts.map(|((_, node), _)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// What the keeper is told, once a period and when a set has become free: the version, and the sets that are to
    /// leave and cannot yet. `None` where there is nothing to tell.
    pub fn report(&self) -> Option<(u64, Vec<ObjectSet>)> {
        let table = self.table.as_ref()?;
        let is_busy =
            |(set, node): &(ObjectSet, NodeId)| table.state(set) == Some(State::Leaving(*node));
        let busy = self.counts.keys().filter(|key| is_busy(key));
        Some((table.version(), busy.map(|(set, _)| set.clone()).collect()))
    }
}
