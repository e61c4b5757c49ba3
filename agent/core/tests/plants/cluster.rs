//! Nodes behind a proxy that sheds a fraction, agents that measure them, and clients, in one clock.
#![allow(dead_code, clippy::unwrap_used)]

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use plimsoll_core::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Ordered, observation};

/// Sampling period of the agents, in seconds.
const PERIOD: f64 = 1.0;
/// Polling interval of the proxy, in seconds.
const POLL: f64 = 0.5;

/// One node: workers behind one queue, nothing refused.
struct Node {
    service: f64,
    free_at: Vec<f64>,
    running: BinaryHeap<Reverse<(Ordered, Ordered)>>,
    delays: Vec<f64>,
    peak: usize,
    last: f64,
    controller: NodeController,
    meter: FlowMeter,
    flow: Flow,
    weight: f64,
    credit: f64,
}

impl Node {
    fn take(&mut self, at: f64, size: f64) -> f64 {
        self.finish(at);
        let soonest = (0..self.free_at.len())
            .min_by(|a, b| self.free_at[*a].total_cmp(&self.free_at[*b]))
            .unwrap();
        let finish = self.free_at[soonest].max(at) + self.service * size;
        self.free_at[soonest] = finish;
        self.running.push(Reverse((Ordered(finish), Ordered(at))));
        self.peak = self.peak.max(self.running.len());
        finish
    }

    fn finish(&mut self, until: f64) {
        while let Some(Reverse((finish, arrival))) = self.running.peek().copied() {
            if finish.0 > until {
                break;
            }
            self.running.pop();
            self.delays.push(finish.0 - arrival.0);
        }
    }

    fn step(&mut self, now: f64) {
        self.finish(now);
        let mut seen = observation(now - self.last, &self.delays, self.running.len() as f64);
        seen.peak_jobs = Some(self.peak as f64);
        let decision = self.controller.step(Some(&seen));
        let bound = decision.bound.get();
        self.flow = self
            .meter
            .measure(&seen, decision.mean_cost.get(), bound)
            .unwrap();
        self.weight = bound;
        self.last = now;
        self.peak = self.running.len();
        self.delays.clear();
    }
}

/// Source of the requests.
pub enum Load {
    /// Open loop: requests/s.
    Open(f64),
    /// Closed loop: clients that think for so many seconds, send, and wait for the response.
    Closed { clients: usize, think: (f64, f64) },
}

/// Results of one second; the first three at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    pub shed: f64,
    pub backlog: f64,
    pub bound: f64,
    pub finished: u64,
    pub timely: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    Node(usize),
    Law,
    Poll,
}

pub struct Cluster {
    sla: f64,
    nodes: Vec<Node>,
    shedder: Shedder,
    pub published: f64,
    applied: f64,
    rng: SmallRng,
    pub load: Load,
    events: BinaryHeap<Reverse<(Ordered, Event)>>,
    now: f64,
    clients_at: usize,
    /// Finished and timely, by second.
    ended: BTreeMap<u64, (u64, u64)>,
    /// Whether the shed fraction is applied.
    pub shedding: bool,
}

impl Cluster {
    pub fn new(services: &[f64], workers: usize, sla: f64, nominal: f64, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let nodes: Vec<_> = services
            .iter()
            .map(|service| Node {
                service: *service,
                free_at: vec![0.0; workers],
                running: BinaryHeap::new(),
                delays: Vec::new(),
                peak: 0,
                last: 0.0,
                controller: NodeController::new(super::settings(
                    sla,
                    Objective::Quantile(0.95),
                    nominal,
                ))
                .unwrap(),
                meter: FlowMeter::default(),
                flow: Flow::default(),
                weight: nominal,
                credit: 0.0,
            })
            .collect();
        let mut events = BinaryHeap::new();
        for i in 0..nodes.len() {
            events.push(Reverse((
                Ordered(PERIOD * (0.1 + rng.random::<f64>())),
                Event::Node(i),
            )));
        }
        events.push(Reverse((
            Ordered(PERIOD * (2.2 + rng.random::<f64>())),
            Event::Law,
        )));
        events.push(Reverse((
            Ordered(PERIOD * rng.random::<f64>()),
            Event::Poll,
        )));
        Cluster {
            sla,
            nodes,
            shedder: Shedder::default(),
            published: 0.0,
            applied: 0.0,
            rng,
            load: Load::Open(1.0),
            events,
            now: 0.0,
            clients_at: 0,
            ended: BTreeMap::new(),
            shedding: true,
        }
    }

    pub fn capacity(&self) -> f64 {
        self.nodes
            .iter()
            .map(|n| n.free_at.len() as f64 / n.service)
            .sum()
    }

    fn at(&mut self, time: f64, event: Event) {
        self.events.push(Reverse((Ordered(time), event)));
    }

    /// Starts a load; existing clients stay.
    pub fn begin(&mut self, load: Load) {
        match load {
            Load::Open(_) => self.at(self.now, Event::Arrival(0)),
            Load::Closed { clients, think } => {
                for client in self.clients_at..clients {
                    let wait = self.rng.random_range(0.0..think.1);
                    self.at(self.now + wait, Event::Arrival(client));
                }
                self.clients_at = clients;
            }
        }
        self.load = load;
    }

    /// Runs one second and returns its results.
    pub fn second(&mut self) -> Second {
        let end = self.now + 1.0;
        while let Some(Reverse((time, event))) = self.events.peek().copied() {
            if time.0 > end {
                break;
            }
            self.events.pop();
            self.now = time.0;
            self.happen(event);
        }
        self.now = end;
        let key = end.round() as u64 - 1;
        let (finished, timely) = self.ended.remove(&key).unwrap_or_default();
        let flow: Flow = self
            .nodes
            .iter_mut()
            .map(|n| {
                n.finish(end);
                Flow {
                    backlog: n.running.len() as f64,
                    bound: n.controller.decision().bound.get(),
                    ..n.flow
                }
            })
            .sum();
        Second {
            shed: self.applied,
            backlog: flow.backlog,
            bound: flow.bound,
            finished,
            timely,
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Node(i) => {
                self.nodes[i].step(now);
                let jitter = self.rng.random_range(0.95..1.05);
                self.at(now + PERIOD * jitter, event);
            }
            Event::Law => {
                let flow: Flow = self.nodes.iter().map(|n| n.flow).sum();
                self.published = self.shedder.step(&flow, self.published, PERIOD);
                let jitter = self.rng.random_range(0.95..1.05);
                self.at(now + PERIOD * jitter, event);
            }
            Event::Poll => {
                if self.shedding {
                    self.applied = self.published;
                }
                self.at(now + POLL, event);
            }
            Event::Arrival(client) => self.arrive(client),
        }
    }

    fn arrive(&mut self, client: usize) {
        let now = self.now;
        let mut answered = now;
        if self.rng.random::<f64>() >= self.applied {
            let node = self.smooth_weighted();
            let size = self.rng.random_range(0.5..1.5);
            answered = self.nodes[node].take(now, size);
            let seen = self.ended.entry(answered as u64).or_default();
            seen.0 += 1;
            seen.1 += u64::from(answered - now <= self.sla);
        }
        match self.load {
            Load::Open(rate) => {
                let gap = -(1.0 - self.rng.random::<f64>()).ln() / rate;
                self.at(now + gap, Event::Arrival(client));
            }
            Load::Closed { think, .. } => {
                let wait = self.rng.random_range(think.0..think.1);
                self.at(answered + wait, Event::Arrival(client));
            }
        }
    }

    /// Weighted round robin.
    fn smooth_weighted(&mut self) -> usize {
        let total: f64 = self.nodes.iter().map(|n| n.weight).sum();
        for node in &mut self.nodes {
            node.credit += node.weight / total;
        }
        let best = (0..self.nodes.len())
            .max_by(|a, b| self.nodes[*a].credit.total_cmp(&self.nodes[*b].credit))
            .unwrap();
        self.nodes[best].credit -= 1.0;
        best
    }
}
