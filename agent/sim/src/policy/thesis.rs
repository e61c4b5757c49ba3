//! The schedulers of the load balancing thesis (MySQL, 2003), by the code of `plimsoll-core`. They refuse
//! nothing; their news is a period old.

use plimsoll_core::{
    Observation,
    dispatch::Held,
    schedule::{NodeNews, Policy as Algorithm, Scheduler},
};

use super::{Ask, Ended, Placed, Policy};
use crate::scenario::Scenario;

/// One scheduler a proxy.
pub struct Thesis {
    schedulers: Vec<Scheduler>,
    news: Vec<NodeNews>,
    weights: Vec<u32>,
    sla: f64,
}

impl Thesis {
    pub fn new(scenario: &Scenario, algorithm: Algorithm) -> Self {
        let weights: Vec<u32> = scenario.each_node().map(|node| node.weight).collect();
        let unknown = |weight: &u32| NodeNews {
            weight: *weight,
            jobs: 0.0,
            load: 0.0,
        };
        let news: Vec<NodeNews> = weights.iter().map(unknown).collect();
        Thesis {
            schedulers: vec![Scheduler::new(algorithm, &news); scenario.proxies as usize],
            news,
            weights,
            sla: scenario.sla_seconds,
        }
    }
}

impl Policy for Thesis {
    fn place(&mut self, ask: &Ask<'_>, mut random: &mut dyn FnMut() -> u32) -> Placed {
        let dispatchers = self.schedulers.len();
        Placed::on(self.schedulers[ask.proxy].next_among(dispatchers, &mut random))
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        self.schedulers[ended.proxy].finished(ended.node);
    }

    fn observed(&mut self, _: f64, node: usize, seen: &Observation) {
        let news = &mut self.news[node];
        news.jobs = seen.jobs.unwrap_or(0.0);
        news.load = seen.delays.mean().map_or(0.0, |mean| mean.get() / self.sla);
    }

    fn exchange(&mut self, _: f64, proxy: usize, up: &[bool]) -> bool {
        for ((news, weight), up) in self.news.iter_mut().zip(&self.weights).zip(up) {
            news.weight = if *up { *weight } else { 0 };
        }
        self.schedulers[proxy].on_news(&self.news);
        false
    }
}
