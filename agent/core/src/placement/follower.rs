//! A dispatcher's copy of the table, and its requests in flight.

use std::collections::BTreeMap;

use super::{Delta, Gap, NameError, NodeId, ObjectSet, State, Table, check_name};

/// Routing decision for a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// The request goes to the ticket's node. The ticket is to be returned when the request has ended.
    Go(Ticket),
    /// The set is in handover, or there is no table: retry a little later, or respond 503 with `Retry-After`.
    Wait,
}

/// Request in flight.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket {
    set: ObjectSet,
    node: NodeId,
}

impl Ticket {
    /// Node of the request.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Table entry that the request's name belongs to.
    pub fn set(&self) -> &ObjectSet {
        &self.set
    }
}

/// Numbers of requests of a set at a node.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    under_way: u32,
    /// Requests that ended without a response, so that the node may still be working on them.
    in_doubt: u32,
}

/// The dispatcher's part of the handover (Middle-R, section 4.1): requests that came before the new assignment end at
/// the old primary, and later ones wait for them.
///
/// The caller must call [`Follower::suspend`] when the keeper has been silent for the time after which the keeper
/// considers a dispatcher gone, less the clock difference. The dispatcher then rejoins under a new number.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    table: Option<Table>,
    counts: BTreeMap<(ObjectSet, NodeId), Count>,
}

impl Follower {
    /// Version of its table; `None` before it has joined and while it is suspended.
    pub fn version(&self) -> Option<u64> {
        self.table.as_ref().map(Table::version)
    }

    /// Sets the table from the keeper's answer to the most recent join, never to an earlier one.
    pub fn joined(&mut self, table: Table) {
        self.table = Some(table);
    }

    /// Replaces the table after missed changes. Ignored if the table is not newer, or if the dispatcher has not joined:
    /// it may then date from before the suspension.
    pub fn on_table(&mut self, table: Table) {
        if self.version().is_some_and(|known| table.version() > known) {
            self.table = Some(table);
        }
    }

    /// Applies a change. After [`Gap::Missed`] and [`Gap::Wrong`] the whole table is needed.
    pub fn on_delta(&mut self, delta: &Delta) -> Result<(), Gap> {
        let Some(table) = &mut self.table else {
            return Err(Gap::Missed);
        };
        table.apply(delta)
    }

    /// Admits no requests until the dispatcher has rejoined.
    pub fn suspend(&mut self) {
        self.table = None;
    }

    /// Whether a set is in handover.
    pub fn is_leaving(&self, set: &ObjectSet) -> bool {
        let state = self.table.as_ref().and_then(|table| table.state(set));
        matches!(state, Some(State::Leaving(_)))
    }

    /// Routes a request for an object set.
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

    /// Ends a request that the node has answered, or that never reached it.
    pub fn answered(&mut self, ticket: Ticket) {
        self.ended(ticket, false);
    }

    /// Ends a request without a response: after a timeout, a client that left, or a broken connection. The node may
    /// still be working on it, so its set does not leave the node before [`Follower::vouched`].
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

    /// Records that a node has finished all requests whose connections ended before: it has restarted, its oldest
    /// unfinished request is younger, or the request limit has passed.
    pub fn vouched(&mut self, node: NodeId) {
        self.counts.retain(|(_, at), count| {
            if *at == node {
                count.in_doubt = 0;
            }
            count.under_way > 0 || count.in_doubt > 0
        });
    }

    /// Nodes with requests in doubt, which need [`Follower::vouched`].
    pub fn in_doubt(&self) -> Vec<NodeId> {
        let doubts = self.counts.iter().filter(|(_, count)| count.in_doubt > 0);
        let mut nodes: Vec<NodeId> = doubts.map(|((_, node), _)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Report to the keeper, once a period and when a set has become free: the version, and the sets in handover that
    /// still have requests here. `None` without a table.
    pub fn report(&self) -> Option<(u64, Vec<ObjectSet>)> {
        let table = self.table.as_ref()?;
        let is_busy =
            |(set, node): &(ObjectSet, NodeId)| table.state(set) == Some(State::Leaving(*node));
        let busy = self.counts.keys().filter(|key| is_busy(key));
        Some((table.version(), busy.map(|(set, _)| set.clone()).collect()))
    }
}
