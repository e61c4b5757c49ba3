//! A limit of requests for each node, fixed or adaptive; the node with the fewest gets the next request, which is
//! refused if all are full.

use plimsoll_core::dispatch::Held;

use super::{
    Ask, Ended, Placed, Policy,
    balance::{InFlight, fewest},
};
use crate::scenario::Scenario;

/// Kind of limit.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Fixed limit of a node over all proxies.
    Static(f64),
    /// Netflix' AIMDLimit with its defaults (backoff ratio 0.9, initially 20, within 20 and 200); its timeout, 5 s by
    /// default, is the SLA, which is its best documented use.
    Aimd,
    /// Netflix' Gradient2Limit with its defaults: smoothing 0.2, tolerance 1.5, long window 600, queue 4,
    /// initially 20, within 20 and 200.
    Gradient2,
}

const FIRST: f64 = 20.0;
const MIN_JOBS: f64 = 20.0;
const MAX_JOBS: f64 = 200.0;
const BACK_OFF: f64 = 0.9;
const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;
const LONG_WINDOW: f64 = 600.0;
const QUEUE: f64 = 4.0;

#[derive(Clone, Copy)]
struct Limit {
    jobs: f64,
    long: f64,
    samples: f64,
}

/// Limits by proxy and node.
pub struct Limited {
    kind: Kind,
    sla: f64,
    in_flight: InFlight,
    limits: Vec<Vec<Limit>>,
    turn: usize,
}

impl Limited {
    pub fn new(scenario: &Scenario, kind: Kind) -> Self {
        let jobs = match kind {
            Kind::Static(jobs) => (jobs / f64::from(scenario.proxies)).max(1.0),
            Kind::Aimd | Kind::Gradient2 => FIRST,
        };
        let limit = Limit {
            jobs,
            long: 0.0,
            samples: 0.0,
        };
        Limited {
            kind,
            sla: scenario.sla_seconds,
            in_flight: InFlight::new(scenario),
            limits: vec![vec![limit; scenario.each_node().count()]; scenario.proxies as usize],
            turn: 0,
        }
    }
}

impl Policy for Limited {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let counts = self.in_flight.of(ask.proxy);
        let limits = &self.limits[ask.proxy];
        let may = |node: usize| {
            ask.up[node] && f64::from(counts[node]) + 1.0 <= limits[node].jobs.floor().max(1.0)
        };
        let node = fewest(counts, self.turn, may);
        if let Some(node) = node {
            self.in_flight.began(ask.proxy, node);
            self.turn = node + 1;
        }
        Placed::on(node)
    }

    fn ended(&mut self, ended: &Ended, _: Option<Held>) {
        let had = f64::from(self.in_flight.of(ended.proxy)[ended.node]);
        self.in_flight.ended(ended);
        let limit = &mut self.limits[ended.proxy][ended.node];
        match self.kind {
            Kind::Static(_) => {}
            Kind::Aimd => {
                if !ended.is_good() || ended.delay > self.sla {
                    limit.jobs = (limit.jobs * BACK_OFF).max(MIN_JOBS);
                } else if 2.0 * had >= limit.jobs {
                    limit.jobs = (limit.jobs + 1.0).min(MAX_JOBS);
                }
            }
            Kind::Gradient2 if ended.is_good() && ended.delay > 0.0 => {
                limit.samples += 1.0;
                // The first samples count evenly, later ones by the window.
                let factor = 2.0 / (LONG_WINDOW + 1.0);
                limit.long += (ended.delay - limit.long) * factor.max(1.0 / limit.samples);
                if limit.long > 2.0 * ended.delay {
                    limit.long *= 0.95;
                }
                if had < limit.jobs / 2.0 {
                    return;
                }
                let gradient = (TOLERANCE * limit.long / ended.delay).clamp(0.5, 1.0);
                let wanted = limit.jobs * gradient + QUEUE;
                limit.jobs =
                    (limit.jobs * (1.0 - SMOOTHING) + wanted * SMOOTHING).clamp(MIN_JOBS, MAX_JOBS);
            }
            Kind::Gradient2 => {}
        }
    }
}
