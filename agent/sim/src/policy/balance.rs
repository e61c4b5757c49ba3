//! Policies that refuse nothing: round robin, random, least connections, and Prop of Chronos-C.

use plimsoll_core::{
    BoundLimits, Cost, Law, NodeController, Objective, Observation, Rules, ServiceMode, Settings,
    dispatch::Held,
};

use super::{Ask, Ended, Placed, Policy, plimsoll::sla};
use crate::scenario::Scenario;

/// Each proxy's turn.
pub struct RoundRobin {
    turns: Vec<usize>,
}

impl RoundRobin {
    pub fn new(scenario: &Scenario) -> Self {
        // Proxies start anywhere.
        let turns = (0..scenario.proxies as usize)
            .map(|proxy| 7 * proxy)
            .collect();
        RoundRobin { turns }
    }

    /// The next node that is up.
    pub fn next(&mut self, proxy: usize, up: &[bool]) -> Option<usize> {
        let turn = &mut self.turns[proxy];
        let found = (0..up.len())
            .map(|i| (*turn + i) % up.len())
            .find(|node| up[*node])?;
        *turn = found + 1;
        Some(found)
    }
}

impl Policy for RoundRobin {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        Placed::on(self.next(ask.proxy, ask.up))
    }

    fn ended(&mut self, _: &Ended, _: Option<Held>) {}
}

/// Any node, evenly.
pub struct Random;

/// `0..count`.
pub fn drawn(random: &mut dyn FnMut() -> u32, count: usize) -> usize {
    ((u64::from(random()) * count as u64) >> 32) as usize
}

impl Policy for Random {
    fn place(&mut self, ask: &Ask<'_>, random: &mut dyn FnMut() -> u32) -> Placed {
        let live = ask.live();
        Placed::on((!live.is_empty()).then(|| live[drawn(random, live.len())]))
    }

    fn ended(&mut self, _: &Ended, _: Option<Held>) {}
}

/// Requests in flight, by proxy and node.
pub struct InFlight(Vec<Vec<u32>>);

impl InFlight {
    pub fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.each_node().count();
        InFlight(vec![vec![0; nodes]; scenario.proxies as usize])
    }

    pub fn of(&self, proxy: usize) -> &[u32] {
        &self.0[proxy]
    }

    /// At a node, by all proxies.
    pub fn at(&self, node: usize) -> f64 {
        self.0.iter().map(|counts| f64::from(counts[node])).sum()
    }

    pub fn began(&mut self, proxy: usize, node: usize) {
        self.0[proxy][node] += 1;
    }

    pub fn ended(&mut self, ended: &Ended) {
        let count = &mut self.0[ended.proxy][ended.node];
        *count = count.saturating_sub(1);
    }
}

/// Chooses the node with the fewest requests in flight; of several, the first after the last chosen one.
pub struct LeastConn {
    in_flight: InFlight,
    turn: usize,
    sheds: bool,
}

impl LeastConn {
    pub fn new(scenario: &Scenario) -> Self {
        LeastConn {
            in_flight: InFlight::new(scenario),
            turn: 0,
            sheds: false,
        }
    }

    /// Makes the nodes drop requests that wait too long.
    pub fn shedding(mut self) -> Self {
        self.sheds = true;
        self
    }
}

/// First node with the fewest requests, from `turn` on, among those that `may` take it.
pub fn fewest(counts: &[u32], turn: usize, may: impl Fn(usize) -> bool) -> Option<usize> {
    let nodes = (0..counts.len()).map(|i| (turn + i) % counts.len());
    nodes
        .filter(|node| may(*node))
        .min_by_key(|node| counts[*node])
}

impl Policy for LeastConn {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let node = fewest(self.in_flight.of(ask.proxy), self.turn, |node| ask.up[node]);
        if let Some(node) = node {
            self.in_flight.began(ask.proxy, node);
            self.turn = node + 1;
        }
        Placed::on(node)
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        self.in_flight.ended(ended);
    }

    fn sheds_in_nodes(&self) -> bool {
        self.sheds
    }
}

/// Prop of Chronos-C: work in proportion to the inverse of each node's mean delay.
pub struct Prop {
    controllers: Vec<NodeController>,
    weights: Vec<f64>,
    credits: Vec<Vec<f64>>,
}

impl Prop {
    pub fn new(scenario: &Scenario) -> Option<Self> {
        let nominal = scenario.tuning.nominal;
        let settings = Settings {
            sla: sla(scenario, Objective::Mean, 1.0),
            limits: BoundLimits {
                min: Cost(nominal / 1000.0),
                max: Cost(nominal * 1000.0),
                nominal: Some(Cost(nominal)),
            },
            law: Law::InverseDelay,
            mpl: false,
            mode: ServiceMode::Enforce,
            self_tuned: false,
            rules: Rules::default(),
        };
        let nodes = scenario.each_node().count();
        let controllers: Result<Vec<_>, _> =
            (0..nodes).map(|_| NodeController::new(settings)).collect();
        Some(Prop {
            controllers: controllers.ok()?,
            weights: vec![nominal; nodes],
            credits: vec![vec![0.0; nodes]; scenario.proxies as usize],
        })
    }
}

/// Smooth weighted round robin.
fn in_turn(weights: &[f64], credits: &mut [f64], up: &[bool]) -> Option<usize> {
    let total: f64 = (0..weights.len())
        .filter(|node| up[*node])
        .map(|node| weights[node])
        .sum();
    for (node, credit) in credits.iter_mut().enumerate().filter(|(node, _)| up[*node]) {
        *credit += weights[node] / total;
    }
    let live = (0..weights.len()).filter(|node| up[*node]);
    let best = live.max_by(|a, b| credits[*a].total_cmp(&credits[*b]))?;
    credits[best] -= 1.0;
    Some(best)
}

impl Policy for Prop {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        Placed::on(in_turn(&self.weights, &mut self.credits[ask.proxy], ask.up))
    }

    fn ended(&mut self, _: &Ended, _: Option<Held>) {}

    fn observed(&mut self, _: f64, node: usize, seen: &Observation) {
        self.weights[node] = self.controllers[node].step(Some(seen)).bound.get();
    }
}
