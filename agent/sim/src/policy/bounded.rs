//! A bound of items for each node, by any control law over the mean or a quantile, without dispatchers and shares:
//! what a node does that admits by itself.

use plimsoll_core::{
    BoundLimits, Cost, Law, NodeController, Objective, Observation, Rules, Settings, dispatch::Held,
};

use super::{
    Ask, Ended, Placed, Policy,
    plimsoll::{Aim, sla},
};
use crate::scenario::Scenario;

/// Gain of AC, the agent's default.
const GAIN: f64 = 0.5;

/// Controllers, and what each node has of its bound.
pub struct Bounds {
    controllers: Vec<NodeController>,
    bounds: Vec<f64>,
    backlogs: Vec<f64>,
}

impl Bounds {
    /// `None` where the scenario's numbers are none a controller can work with.
    pub fn new(scenario: &Scenario, law: Law, aim: Aim) -> Option<Self> {
        let tuning = &scenario.tuning;
        let settings = Settings {
            sla: sla(scenario, aim.objective, aim.set_point),
            limits: BoundLimits {
                min: Cost(tuning.min),
                max: Cost(1e9),
                nominal: Cost(tuning.nominal),
            },
            law,
            mpl: aim.mpl,
            self_tuned: aim.self_tuned,
            rules: Rules::default(),
        };
        let nodes = scenario.each_node().count();
        let controllers: Result<Vec<_>, _> =
            (0..nodes).map(|_| NodeController::new(settings)).collect();
        Some(Bounds {
            controllers: controllers.ok()?,
            bounds: vec![tuning.nominal; nodes],
            backlogs: vec![0.0; nodes],
        })
    }

    /// What is left of a node's bound.
    pub fn room(&self, node: usize) -> f64 {
        self.bounds[node] - self.backlogs[node]
    }

    /// Admits a request, if it fits; one larger than the whole bound is admitted alone.
    pub fn admit(&mut self, node: usize, items: f64) -> bool {
        let fits = items <= self.room(node) || self.backlogs[node] <= 0.0;
        if fits {
            self.backlogs[node] += items;
        }
        fits
    }

    pub fn ended(&mut self, ended: &Ended) {
        let backlog = &mut self.backlogs[ended.node];
        *backlog = (*backlog - ended.items).max(0.0);
    }

    pub fn observed(&mut self, node: usize, seen: &Observation) {
        self.bounds[node] = self.controllers[node].step(Some(seen)).bound.get();
    }

    pub fn sum(&self) -> f64 {
        self.bounds.iter().sum()
    }
}

/// AC of Chronos, section 4: admission in proportion to the error of the mean delay.
pub struct Ac(Bounds);

impl Ac {
    pub fn new(scenario: &Scenario) -> Option<Self> {
        let mean = Aim {
            objective: Objective::Mean,
            set_point: 1.0,
            mpl: false,
            self_tuned: false,
            updates: false,
        };
        let law = Law::Proportional { gain: GAIN };
        Some(Ac(Bounds::new(scenario, law, mean)?))
    }
}

impl Policy for Ac {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let live = (0..ask.up.len()).filter(|node| ask.up[*node]);
        let most_room = live.max_by(|a, b| self.0.room(*a).total_cmp(&self.0.room(*b)));
        Placed::on(most_room.filter(|node| self.0.admit(*node, ask.items)))
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        self.0.ended(ended);
    }

    fn observed(&mut self, _: f64, node: usize, seen: &Observation) {
        self.0.observed(node, seen);
    }

    fn bounds(&self) -> f64 {
        self.0.sum()
    }
}
