//! Stock HAProxy with agent-check: the node with the fewest requests among those below their limit; if all are full, a
//! request waits shortly and is then refused.

use plimsoll_core::{Law, NodeController, Observation, dispatch::Held};

use super::{
    Ask, Ended, Placed, Policy,
    balance::{InFlight, fewest},
    plimsoll::Aim,
};
use crate::scenario::Scenario;

/// `timeout queue` of the guide.
const QUEUE_SECONDS: f64 = 0.05;
/// Half of `agent-inter`: the mean age of an answer when it takes effect.
const ASKED_SECONDS: f64 = 0.125;

/// One controller per node; every proxy has its part of the bound.
pub struct Native {
    controllers: Vec<NodeController>,
    /// Limit in force, the next one, and when that takes effect.
    limits: Vec<(f64, f64, f64)>,
    in_flight: InFlight,
    proxies: f64,
    turn: usize,
    /// Refused requests since each agent's last period; `asked` counts all requests.
    refused: Vec<u64>,
    asked: Vec<u64>,
    /// Jobs in each node when a request last ended there.
    jobs: Vec<f64>,
}

impl Native {
    /// `None` if the scenario's numbers are invalid for a controller.
    pub fn new(scenario: &Scenario, aim: Aim) -> Option<Self> {
        let controllers = aim.controllers(scenario, Law::LoadLine)?;
        let nodes = controllers.len();
        let first = |c: &NodeController| c.decision().bound_jobs;
        Some(Native {
            limits: controllers
                .iter()
                .map(|c| (first(c), first(c), 0.0))
                .collect(),
            controllers,
            in_flight: InFlight::new(scenario),
            proxies: f64::from(scenario.proxies),
            turn: 0,
            refused: vec![0; nodes],
            asked: vec![0; nodes],
            jobs: vec![0.0; nodes],
        })
    }

    fn limit(&self, node: usize, now: f64) -> f64 {
        let (before, next, from) = self.limits[node];
        let jobs = if now >= from { next } else { before };
        (jobs / self.proxies).floor().max(1.0)
    }
}

impl Policy for Native {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let counts = self.in_flight.of(ask.proxy);
        let may = |node: usize| {
            ask.up[node] && f64::from(counts[node]) + 1.0 <= self.limit(node, ask.now)
        };
        let found = fewest(counts, self.turn, may);
        let Some(node) = found else {
            if ask.held.is_some_and(|held| held >= QUEUE_SECONDS) {
                for (refused, asked) in self.refused.iter_mut().zip(&mut self.asked) {
                    *refused += 1;
                    *asked += 1;
                }
                return Placed::Refused;
            }
            return Placed::Later;
        };
        self.in_flight.began(ask.proxy, node);
        self.turn = node + 1;
        self.asked.iter_mut().for_each(|asked| *asked += 1);
        Placed::on(Some(node))
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        self.in_flight.ended(ended);
        self.jobs[ended.node] = self.in_flight.at(ended.node);
    }

    fn observed(&mut self, now: f64, node: usize, seen: &Observation) {
        let mut seen = seen.clone();
        let (refused, asked) = (
            std::mem::take(&mut self.refused[node]),
            std::mem::take(&mut self.asked[node]),
        );
        // As in the log: the jobs in the node when a request has ended, without their ages.
        seen.jobs = (seen.delays.count() > 0).then_some(self.jobs[node]);
        seen.peak_jobs = None;
        seen.oldest_age = None;
        seen.refused_share = (asked > 0).then(|| refused as f64 / asked as f64);
        let decision = self.controllers[node].step(Some(&seen));
        let applied = self.limit(node, now);
        self.limits[node] = (
            applied * self.proxies,
            decision.bound_jobs,
            now + ASKED_SECONDS,
        );
    }

    fn hurries(&self, node: usize) -> bool {
        self.controllers[node].is_flooded(self.jobs[node])
    }

    fn bounds(&self) -> f64 {
        let controllers = self.controllers.iter();
        controllers.map(|c| c.decision().bound.get()).sum()
    }
}
