//! Simulated nodes under a bound, stepped one sampling period at a time.
#![allow(dead_code, clippy::unwrap_used)]

pub mod cluster;

use std::collections::{BinaryHeap, VecDeque};

use plimsoll_core::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

pub fn sla(delay: f64, objective: Objective) -> Sla {
    Sla {
        delay: Seconds(delay),
        settling: Seconds(10.0),
        objective,
        set_point: 0.9,
    }
}

pub fn settings(delay: f64, objective: Objective, nominal: f64) -> Settings {
    Settings {
        sla: sla(delay, objective),
        limits: BoundLimits {
            min: Cost(1.0),
            max: Cost(1e6),
            nominal: Some(Cost(nominal)),
        },
        law: Law::Pi {
            gains: PiGains::default(),
            form: PiForm::Velocity,
        },
        mpl: false,
        mode: ServiceMode::Enforce,
        self_tuned: false,
        rules: Rules::default(),
    }
}

pub fn histogram(delays: &[f64]) -> DelayHistogram {
    let mut histogram = DelayHistogram::empty(DelayHistogram::fine_bounds()).unwrap();
    for delay in delays {
        assert!(histogram.record(Seconds(*delay)));
    }
    histogram
}

pub fn observation(period: f64, delays: &[f64], jobs: f64) -> Observation {
    Observation {
        jobs: Some(jobs),
        peak_jobs: Some(jobs),
        ..Observation::new(Seconds(period), histogram(delays))
    }
}

/// `workers` servers behind one FIFO queue, Poisson arrivals refused over the bound.
pub struct FifoNode {
    pub workers: usize,
    pub service: f64,
    pub arrivals_per_second: f64,
    /// Arrivals that found the bound filled, and all.
    pub refused: u64,
    pub arrived: u64,
    /// Share of the arrivals that take longer, and how many times as long.
    pub slow: (f64, f64),
    /// Delays of the others that were admitted, in seconds.
    pub fast_delays: Vec<f64>,
    free_at: Vec<f64>,
    /// Finish times of admitted jobs, soonest first, with their arrival.
    running: BinaryHeap<std::cmp::Reverse<(Ordered, Ordered)>>,
    now: f64,
    next_arrival: f64,
    rng: SmallRng,
}

#[derive(Clone, Copy, PartialEq)]
pub struct Ordered(pub f64);
impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl FifoNode {
    pub fn new(workers: usize, service: f64, arrivals_per_second: f64, seed: u64) -> Self {
        FifoNode {
            workers,
            service,
            arrivals_per_second,
            refused: 0,
            arrived: 0,
            slow: (0.0, 1.0),
            fast_delays: Vec::new(),
            free_at: vec![0.0; workers],
            running: BinaryHeap::new(),
            now: 0.0,
            next_arrival: 0.0,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    pub fn capacity_per_second(&self) -> f64 {
        let (share, times) = self.slow;
        self.workers as f64 / (self.service * (1.0 - share + share * times))
    }

    /// Runs one period under `bound` jobs; returns what an agent would have seen.
    pub fn period(&mut self, length: f64, bound: f64) -> Observation {
        let end = self.now + length;
        let mut delays = Vec::new();
        let mut peak = self.running.len();
        while self.next_arrival < end {
            let at = self.next_arrival;
            self.finish_until(at, &mut delays);
            self.arrived += 1;
            if (self.running.len() as f64) < bound.floor().max(1.0) {
                self.admit(at);
            } else {
                self.refused += 1;
            }
            peak = peak.max(self.running.len());
            let gap = -(1.0 - self.rng.random::<f64>()).ln() / self.arrivals_per_second;
            self.next_arrival = at + gap;
        }
        self.finish_until(end, &mut delays);
        self.now = end;
        let mut observation = observation(length, &delays, self.running.len() as f64);
        observation.peak_jobs = Some(peak as f64);
        observation
    }

    fn admit(&mut self, at: f64) {
        let soonest = (0..self.workers)
            .min_by(|a, b| self.free_at[*a].total_cmp(&self.free_at[*b]))
            .unwrap();
        let start = self.free_at[soonest].max(at);
        let (share, times) = self.slow;
        let is_slow = share > 0.0 && self.rng.random::<f64>() < share;
        let service = self.service * if is_slow { times } else { 1.0 };
        let finish = start + service * self.rng.random_range(0.75..1.25);
        if !is_slow {
            self.fast_delays.push(finish - at);
        }
        self.free_at[soonest] = finish;
        self.running
            .push(std::cmp::Reverse((Ordered(finish), Ordered(at))));
    }

    fn finish_until(&mut self, until: f64, delays: &mut Vec<f64>) {
        while let Some(std::cmp::Reverse((finish, arrival))) = self.running.peek().copied() {
            if finish.0 > until {
                break;
            }
            self.running.pop();
            delays.push(finish.0 - arrival.0);
        }
    }
}

/// `s(k) = a1 s(k-1) + a2 s(k-2) + b1 d(k-1-dead) + b2 d(k-2-dead)`, saturated by demand.
pub struct ArxPlant {
    pub a: [f64; 2],
    pub b: [f64; 2],
    pub period: f64,
    delays: [f64; 2],
    bounds: VecDeque<f64>,
}

impl ArxPlant {
    pub fn new(a: [f64; 2], b: [f64; 2], dead_periods: usize, period: f64, bound: f64) -> Self {
        let steady = (b[0] + b[1]) * bound / (1.0 - a[0] - a[1]);
        ArxPlant {
            a,
            b,
            period,
            delays: [steady; 2],
            bounds: vec![bound; dead_periods + 2].into(),
        }
    }

    pub fn step(&mut self, bound: f64) -> (f64, Observation) {
        self.bounds.push_front(bound);
        let n = self.bounds.len();
        let (d1, d2) = (self.bounds[n - 2], self.bounds[n - 1]);
        self.bounds.pop_back();
        let delay = self.a[0] * self.delays[0]
            + self.a[1] * self.delays[1]
            + self.b[0] * d1
            + self.b[1] * d2;
        let delay = delay.max(1e-4);
        self.delays = [delay, self.delays[0]];
        let mut seen = observation(self.period, &vec![delay; 200], bound);
        // The plant models delay by itself: no count from which Little's law would foretell another.
        seen.jobs = None;
        (delay, seen)
    }
}
