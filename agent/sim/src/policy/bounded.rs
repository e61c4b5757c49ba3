//! A bound in items for each node, by any control law over the mean or a quantile, without dispatchers and shares:
//! admission by the node itself.

use plimsoll_core::{Law, NodeController, Observation, dispatch::Held};

use super::{Ask, Ended, Placed, Policy, plimsoll::Aim};
use crate::scenario::Scenario;

/// Gain of AC, the agent's default.
const GAIN: f64 = 0.5;

/// Controllers, bounds and backlogs of the nodes.
pub struct Bounds {
    controllers: Vec<NodeController>,
    bounds: Vec<f64>,
    backlogs: Vec<f64>,
}

impl Bounds {
    /// `None` if the scenario's numbers are invalid for a controller.
    pub fn new(scenario: &Scenario, law: Law, aim: Aim) -> Option<Self> {
        let controllers = aim.controllers(scenario, law)?;
        Some(Bounds {
            bounds: vec![scenario.tuning.nominal; controllers.len()],
            backlogs: vec![0.0; controllers.len()],
            controllers,
        })
    }

    /// Free part of a node's bound, in items.
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
    pub fn new(scenario: &Scenario, aim: Aim) -> Option<Self> {
        let law = Law::Proportional { gain: GAIN };
        Some(Ac(Bounds::new(scenario, law, aim)?))
    }
}

impl Policy for Ac {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let live = ask.live().into_iter();
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
