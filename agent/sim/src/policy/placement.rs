//! Object sets with primaries, by the placement of `plimsoll-core`: global adaptation of Middle-R, with the bound of
//! each node as the local one. The object set of a request is its key.

use std::collections::BTreeMap;

use plimsoll_core::{
    Law, Observation, PiForm, PiGains,
    dispatch::Held,
    placement::{
        Change, Follower, Keeper, News, NodeId, Planner, Route, SetLoad, SetLoads, Table, Ticket,
    },
};

use super::{Ask, Ended, Placed, Policy, bounded::Bounds, plimsoll::Aim};
use crate::scenario::Scenario;

/// Initial placement of the primaries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All on the first node.
    One,
    /// Equal numbers of sets on each node, the best placement for uniform keys and equal nodes.
    Even,
}

/// One keeper, and one follower per proxy.
pub struct Placement {
    bounds: Bounds,
    names: Vec<String>,
    weights: Vec<f64>,
    sla: f64,
    adapts: bool,
    keeper: Keeper,
    followers: Vec<Follower>,
    loads: Vec<SetLoads>,
    period: f64,
    /// Begin of each proxy's period.
    period_began: Vec<f64>,
    /// Whether each proxy has reported in the period.
    told: Vec<bool>,
    /// Tickets of requests in flight, by proxy, key and node.
    tickets: BTreeMap<(usize, u32, usize), Vec<Ticket>>,
    /// Time at which a request last ended without a response, by node.
    doubt: Vec<f64>,
    moved: u64,
}

impl Placement {
    /// `None` if the scenario's numbers are invalid.
    pub fn new(scenario: &Scenario, start: Start, adapts: bool, aim: Aim) -> Option<Self> {
        let law = Law::Pi {
            gains: PiGains::default(),
            form: PiForm::Velocity,
        };
        let weights: Vec<f64> = scenario
            .each_node()
            .map(|node| f64::from(node.weight))
            .collect();
        let names: Vec<String> = (0..scenario.clients.keys)
            .map(|key| format!("set{key}"))
            .collect();
        let mut keeper = Keeper::new(Table::new(|_| 0));
        if start == Start::Even {
            let nodes = weights.len() as NodeId;
            let place =
                |(name, node): (&String, NodeId)| Change::Name(name.as_str().into(), node % nodes);
            let each: Vec<Change> = names.iter().zip(0..).map(place).collect();
            keeper.begin(&each).ok()?;
        }
        let proxies = scenario.proxies as usize;
        let mut followers = vec![Follower::default(); proxies];
        for (id, follower) in (0..).zip(&mut followers) {
            follower.joined(keeper.join(id).ok()?);
        }
        Some(Placement {
            bounds: Bounds::new(scenario, law, aim)?,
            names,
            doubt: vec![f64::NEG_INFINITY; weights.len()],
            weights,
            sla: scenario.sla_seconds,
            adapts,
            keeper,
            followers,
            loads: vec![SetLoads::default(); proxies],
            period: scenario.period,
            period_began: vec![0.0; proxies],
            told: vec![false; proxies],
            tickets: BTreeMap::new(),
            moved: 0,
        })
    }

    fn plan(&mut self, up: &[bool]) {
        let loads: Vec<SetLoad> = self.loads.iter().flat_map(SetLoads::loads).collect();
        let capacity = |(weight, up): (&f64, &bool)| if *up { *weight } else { 0.0 };
        let capacities: BTreeMap<NodeId, f64> = (0..)
            .zip(self.weights.iter().zip(up).map(capacity))
            .collect();
        let planned = Planner::default().plan(self.keeper.table(), &loads, &capacities);
        let moves = |change: &&Change| !matches!(change, Change::Forget(_));
        let moved = planned.changes.iter().filter(moves).count();
        if self.keeper.begin(&planned.changes).is_ok() {
            self.moved += moved as u64;
        }
    }

    /// Publishes a new version, which all proxies receive at once and report on.
    fn publish(&mut self) {
        let mut version = 0;
        while version != self.keeper.table().version() {
            version = self.keeper.table().version();
            for proxy in 0..self.followers.len() {
                self.talk(proxy);
            }
        }
    }

    /// Exchanges updates and a report between a proxy and the keeper.
    fn talk(&mut self, proxy: usize) {
        let follower = &mut self.followers[proxy];
        match self.keeper.news(follower.version()) {
            News::None => {}
            News::Deltas(deltas) => {
                for delta in &deltas {
                    if follower.on_delta(delta).is_err() {
                        break;
                    }
                }
            }
            News::Table(table) => follower.on_table(table),
        }
        if let Some((version, busy)) = follower.report() {
            // It has joined, and its version exists, so this cannot fail.
            let _ = self.keeper.heard(proxy as u64, version, &busy);
        }
    }
}

impl Policy for Placement {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let name = &self.names[ask.key as usize];
        if ask.held.is_none() {
            // All names here are valid.
            let _ = self.loads[ask.proxy].came(name, ask.items);
        }
        let Ok(Route::Go(ticket)) = self.followers[ask.proxy].route(name) else {
            let too_long = ask.held.is_some_and(|held| held > self.sla);
            return if too_long {
                Placed::Refused
            } else {
                Placed::Later
            };
        };
        let node = ticket.node() as usize;
        if !self.bounds.admit(node, ask.items) {
            self.followers[ask.proxy].answered(ticket);
            return Placed::Refused;
        }
        let under_way = self.tickets.entry((ask.proxy, ask.key, node));
        under_way.or_default().push(ticket);
        Placed::on(Some(node))
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        self.bounds.ended(ended);
        let under_way = (ended.proxy, ended.key, ended.node);
        let ticket = self.tickets.get_mut(&under_way).and_then(Vec::pop);
        if let Some(ticket) = ticket {
            let follower = &mut self.followers[ended.proxy];
            if ended.status.is_some() {
                follower.answered(ticket);
            } else {
                follower.unanswered(ticket);
                self.doubt[ended.node] = ended.now;
            }
        }
        if self.keeper.is_moving() {
            self.publish();
        }
    }

    fn observed(&mut self, now: f64, node: usize, seen: &Observation) {
        self.bounds.observed(node, seen);
        let oldest = seen.oldest_age.map_or(now, |age| now - age.get());
        if oldest > self.doubt[node] {
            for follower in &mut self.followers {
                follower.vouched(node as NodeId);
            }
        }
    }

    fn exchange(&mut self, now: f64, proxy: usize, up: &[bool]) -> bool {
        // The first exchange, and the one after a failed health check, end no period.
        if now - self.period_began[proxy] > 0.5 * self.period {
            self.period_began[proxy] = now;
            self.loads[proxy].end_period();
            self.told[proxy] = true;
        }
        for (node, up) in (0..).zip(up) {
            if *up {
                self.keeper.node_up(node);
            } else {
                // Its port is closed, so nothing runs there.
                self.keeper.node_down(node);
                self.keeper.vouched(node);
                let all = self.followers.iter_mut();
                all.for_each(|follower| follower.vouched(node));
            }
        }
        if self.adapts && self.told.iter().all(|told| *told) {
            self.told.fill(false);
            self.plan(up);
        }
        self.publish();
        false
    }

    fn bounds(&self) -> f64 {
        self.bounds.sum()
    }

    fn slots_moved(&self) -> u64 {
        self.moved
    }
}
