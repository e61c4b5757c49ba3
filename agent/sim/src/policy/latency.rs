//! Policies by delay, without refusals: power of two choices with peak EWMA, and Prequal.

use std::collections::VecDeque;

use plimsoll_core::dispatch::Held;

use super::{
    Ask, Ended, Placed, Policy,
    balance::{InFlight, drawn},
};
use crate::scenario::Scenario;

/// Finagle's decay, seconds.
const DECAY: f64 = 10.0;
/// Cost of a node with a request and without samples: higher than any with samples.
const UNKNOWN: f64 = 1e9;

#[derive(Clone, Copy, Default)]
struct Ewma {
    seconds: f64,
    at: f64,
}

impl Ewma {
    fn decayed(&self, now: f64) -> f64 {
        self.seconds * (-(now - self.at) / DECAY).exp()
    }

    /// Rises at once, falls slowly.
    fn add(&mut self, now: f64, delay: f64) {
        let kept = (-(now - self.at) / DECAY).exp();
        self.seconds = if delay > self.seconds {
            delay
        } else {
            self.seconds * kept + delay * (1.0 - kept)
        };
        self.at = now;
    }
}

/// Draws two nodes, and chooses the one with the lower product of delay and requests.
pub struct PeakEwma {
    in_flight: InFlight,
    delays: Vec<Vec<Ewma>>,
}

impl PeakEwma {
    pub fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.each_node().count();
        PeakEwma {
            in_flight: InFlight::new(scenario),
            delays: vec![vec![Ewma::default(); nodes]; scenario.proxies as usize],
        }
    }

    fn cost(&self, ask: &Ask<'_>, node: usize) -> f64 {
        let pending = f64::from(self.in_flight.of(ask.proxy)[node]);
        match self.delays[ask.proxy][node].decayed(ask.now) {
            0.0 if pending > 0.0 => UNKNOWN + pending,
            delay => delay * (pending + 1.0),
        }
    }
}

impl Policy for PeakEwma {
    fn place(&mut self, ask: &Ask<'_>, random: &mut dyn FnMut() -> u32) -> Placed {
        let live = ask.live();
        if live.is_empty() {
            return Placed::Refused;
        }
        let one = drawn(random, live.len());
        let mut other = drawn(random, live.len().max(2) - 1).min(live.len() - 1);
        if other >= one && live.len() > 1 {
            other = (other + 1) % live.len();
        }
        let (one, other) = (live[one], live[other]);
        let node = if self.cost(ask, other) < self.cost(ask, one) {
            other
        } else {
            one
        };
        self.in_flight.began(ask.proxy, node);
        Placed::on(Some(node))
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        self.in_flight.ended(ended);
        self.delays[ended.proxy][ended.node].add(ended.now, ended.delay);
    }
}

/// Prequal's published settings (NSDI 2024): three probes per query, a pool of 16 probes at most a second old, and
/// nodes hot from the 0.84 quantile of requests in flight.
const PROBES: usize = 3;
const POOL: usize = 16;
const MAX_AGE: f64 = 1.0;
const HOT: f64 = 0.84;

#[derive(Clone, Copy)]
struct Probe {
    node: usize,
    jobs: usize,
    delay: f64,
    at: f64,
}

/// Samples per bucket of a node's delay estimate: the median of the last requests that found about as many requests in
/// it as there are now. Bucket bounds are powers of the ratio.
const KEPT: usize = 9;
const BUCKET_RATIO: f64 = 1.25;

/// A node's estimate of its delay by requests in flight.
#[derive(Clone, Default)]
struct Estimate {
    buckets: Vec<VecDeque<f64>>,
}

impl Estimate {
    fn bucket(jobs: usize) -> usize {
        ((jobs as f64 + 1.0).ln() / BUCKET_RATIO.ln()) as usize
    }

    fn add(&mut self, found: usize, delay: f64) {
        let bucket = Self::bucket(found);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, VecDeque::new());
        }
        let kept = &mut self.buckets[bucket];
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(delay);
    }

    /// Estimate for the nearest seen number of requests; 0 before the first.
    fn at(&self, jobs: usize) -> f64 {
        let wanted = Self::bucket(jobs);
        let seen = (0..self.buckets.len()).filter(|bucket| !self.buckets[*bucket].is_empty());
        let Some(bucket) = seen.min_by_key(|bucket| bucket.abs_diff(wanted)) else {
            return 0.0;
        };
        let mut delays: Vec<f64> = self.buckets[bucket].iter().copied().collect();
        delays.sort_unstable_by(f64::total_cmp);
        delays[delays.len() / 2]
    }
}

/// Probes a few nodes in advance, and chooses the fastest of those with few requests in flight or, if all are hot, the
/// one with the fewest.
pub struct Prequal {
    pools: Vec<VecDeque<Probe>>,
    estimates: Vec<Estimate>,
    network: f64,
}

impl Prequal {
    pub fn new(scenario: &Scenario) -> Self {
        Prequal {
            pools: vec![VecDeque::new(); scenario.proxies as usize],
            estimates: vec![Estimate::default(); scenario.each_node().count()],
            network: scenario.network_seconds,
        }
    }

    /// Index of the best probe in the pool: the fastest cold one, or the hot one with the fewest requests.
    fn best(&self, pool: &VecDeque<Probe>, now: f64) -> Option<usize> {
        // A probe takes a round trip.
        let ready: Vec<usize> = (0..pool.len())
            .filter(|i| now - pool[*i].at >= 2.0 * self.network)
            .collect();
        let mut jobs: Vec<usize> = ready.iter().map(|i| pool[*i].jobs).collect();
        jobs.sort_unstable();
        let hot = jobs.get((HOT * jobs.len() as f64) as usize).copied()?;
        let cold = ready.iter().filter(|i| pool[**i].jobs < hot);
        let fastest = cold.min_by(|a, b| pool[**a].delay.total_cmp(&pool[**b].delay));
        fastest
            .or_else(|| ready.iter().min_by_key(|i| pool[**i].jobs))
            .copied()
    }
}

impl Policy for Prequal {
    fn place(&mut self, ask: &Ask<'_>, random: &mut dyn FnMut() -> u32) -> Placed {
        let live = ask.live();
        if live.is_empty() {
            return Placed::Refused;
        }
        let mut pool = std::mem::take(&mut self.pools[ask.proxy]);
        pool.retain(|probe| ask.now - probe.at <= MAX_AGE && ask.up[probe.node]);
        let node = match self.best(&pool, ask.now).and_then(|best| pool.remove(best)) {
            Some(used) => used.node,
            None => live[drawn(random, live.len())],
        };
        // Other probes of the node count one request too few.
        for probe in pool.iter_mut().filter(|probe| probe.node == node) {
            probe.jobs += 1;
        }
        for _ in 0..PROBES {
            let asked = live[drawn(random, live.len())];
            if pool.len() >= POOL {
                pool.pop_front();
            }
            let jobs = ask.nodes[asked].jobs();
            pool.push_back(Probe {
                node: asked,
                jobs,
                delay: self.estimates[asked].at(jobs),
                at: ask.now,
            });
        }
        self.pools[ask.proxy] = pool;
        Placed::on(Some(node))
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        if ended.is_good() {
            self.estimates[ended.node].add(ended.found, ended.delay);
        }
    }
}
