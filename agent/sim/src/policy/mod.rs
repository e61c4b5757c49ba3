//! Policies: Plimsoll's, with the code of `plimsoll-core`, and small models of others with their published defaults.

mod balance;
mod bounded;
mod latency;
mod limits;
mod native;
mod oracle;
mod placement;
mod plimsoll;
mod sharing;
mod thesis;
mod updates;

use plimsoll_core::{Objective, Observation, dispatch::Held, schedule};

use crate::{
    names::static_limit,
    node::Node,
    scenario::{Scenario, UpdateLoad},
};

/// Request to be placed.
pub struct Ask<'a> {
    pub now: f64,
    pub proxy: usize,
    pub key: u32,
    pub hash: u32,
    pub items: f64,
    /// Time that it has waited at its proxy, if it was held back.
    pub held: Option<f64>,
    pub up: &'a [bool],
    /// The nodes' true state, only for the oracle and for answers to probes.
    pub nodes: &'a [Node],
}

impl Ask<'_> {
    /// The nodes that are up.
    fn live(&self) -> Vec<usize> {
        let nodes = 0..self.up.len();
        nodes.filter(|node| self.up[*node]).collect()
    }
}

/// Placement of a request.
pub enum Placed {
    Node {
        node: usize,
        held: Option<Held>,
    },
    Refused,
    /// It waits at its proxy, and is placed again soon.
    Later,
}

impl Placed {
    fn on(node: Option<usize>) -> Self {
        node.map_or(Placed::Refused, |node| Placed::Node { node, held: None })
    }
}

/// The end of an attempt.
pub struct Ended {
    pub now: f64,
    pub proxy: usize,
    pub node: usize,
    pub delay: f64,
    /// Requests in the node when this one came.
    pub found: usize,
    pub key: u32,
    pub items: f64,
    /// Status of the node's response; `None` without one.
    pub status: Option<u16>,
}

impl Ended {
    fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status < 500)
    }
}

/// Policy under comparison.
pub trait Policy {
    /// Places a request.
    fn place(&mut self, ask: &Ask<'_>, random: &mut dyn FnMut() -> u32) -> Placed;
    /// Processes the end of an attempt.
    fn ended(&mut self, ended: &Ended, held: Option<Held>);
    /// Processes a period of a node's agent.
    fn observed(&mut self, _now: f64, _node: usize, _seen: &Observation) {}
    /// Whether a node's agent ends its period early.
    fn hurries(&self, _node: usize) -> bool {
        false
    }
    /// Load of a node's updates of temporal data, if the policy controls it.
    fn updates(&self, _node: usize) -> Option<UpdateLoad> {
        None
    }
    /// Exchanges a proxy's snapshot and report. Returns whether it should exchange again soon.
    fn exchange(&mut self, _now: f64, _proxy: usize, _up: &[bool]) -> bool {
        false
    }
    /// Sum of all bounds in items; 0 without bounds.
    fn bounds(&self) -> f64 {
        0.0
    }
    /// Slots of a ring that changed owner, or object sets that changed their primary.
    fn slots_moved(&self) -> u64 {
        0
    }
    /// Whether nodes drop requests that wait too long.
    fn sheds_in_nodes(&self) -> bool {
        false
    }
}

/// Creates a policy by name; `None` for an unknown name or invalid settings.
pub fn named(name: &str, scenario: &Scenario) -> Option<Box<dyn Policy>> {
    use placement::Start;
    use plimsoll::Aim;
    let tail = Aim {
        objective: Objective::Quantile(0.95),
        set_point: 0.9,
        load_line: true,
        mpl: false,
        self_tuned: false,
        updates: false,
    };
    let mean = Aim {
        objective: Objective::Mean,
        set_point: 1.0,
        load_line: false,
        mpl: false,
        self_tuned: false,
        updates: false,
    };
    Some(match name {
        "rr" => Box::new(balance::RoundRobin::new(scenario)),
        "random" => Box::new(balance::Random),
        "leastconn" => Box::new(balance::LeastConn::new(scenario)),
        "codel" => Box::new(balance::LeastConn::new(scenario).shedding()),
        "prop" => Box::new(balance::Prop::new(scenario)?),
        "primary-one" => Box::new(placement::Placement::new(
            scenario,
            Start::One,
            false,
            tail,
        )?),
        "primary-even" => Box::new(placement::Placement::new(
            scenario,
            Start::Even,
            false,
            tail,
        )?),
        "placement" => Box::new(placement::Placement::new(scenario, Start::One, true, tail)?),
        "placement-even" => Box::new(placement::Placement::new(
            scenario,
            Start::Even,
            true,
            tail,
        )?),
        "ac" => Box::new(bounded::Ac::new(scenario, mean)?),
        "static" => Box::new(limits::Limited::new(
            scenario,
            limits::Kind::Static(scenario.tuning.static_jobs),
        )),
        "aimd" => Box::new(limits::Limited::new(scenario, limits::Kind::Aimd)),
        "gradient2" => Box::new(limits::Limited::new(scenario, limits::Kind::Gradient2)),
        "p2c-ewma" => Box::new(latency::PeakEwma::new(scenario)),
        "prequal" => Box::new(latency::Prequal::new(scenario)),
        "oracle" => Box::new(oracle::Oracle::new(scenario)),
        "fc-prop" => Box::new(plimsoll::Plimsoll::new(scenario, false, tail)?),
        "fc-hash" => Box::new(plimsoll::Plimsoll::new(scenario, true, tail)?),
        "fc-native" => Box::new(native::Native::new(scenario, tail)?),
        "fc-prop-mpl" => {
            let aim = Aim {
                load_line: false,
                mpl: true,
                ..tail
            };
            Box::new(plimsoll::Plimsoll::new(scenario, false, aim)?)
        }
        "fc-prop-auto" => {
            let aim = Aim {
                load_line: false,
                self_tuned: true,
                ..tail
            };
            Box::new(plimsoll::Plimsoll::new(scenario, false, aim)?)
        }
        "fc-prop-mean-updates" => {
            let aim = Aim {
                updates: true,
                ..mean
            };
            Box::new(plimsoll::Plimsoll::new(scenario, false, aim)?)
        }
        "fc-prop-updates" => {
            let aim = Aim {
                updates: true,
                ..tail
            };
            Box::new(plimsoll::Plimsoll::new(scenario, false, aim)?)
        }
        "fc-prop-mean" => Box::new(plimsoll::Plimsoll::new(scenario, false, mean)?),
        "fc-hash-mean" => Box::new(plimsoll::Plimsoll::new(scenario, true, mean)?),
        "round-robin" => Box::new(thesis::Thesis::new(scenario, schedule::Policy::RoundRobin)),
        "weighted-round-robin" => Box::new(thesis::Thesis::new(
            scenario,
            schedule::Policy::WeightedRoundRobin,
        )),
        "weighted-random" => Box::new(thesis::Thesis::new(
            scenario,
            schedule::Policy::WeightedRandom,
        )),
        "basic-li" => {
            let arrivals = 100.0;
            Box::new(thesis::Thesis::new(
                scenario,
                schedule::Policy::BasicLi { arrivals },
            ))
        }
        "job-informed" => Box::new(thesis::Thesis::new(scenario, schedule::Policy::JobInformed)),
        "load-informed" => {
            let policy = schedule::Policy::LoadInformed {
                max_nodes: 3,
                interval: 0.1,
                artificial: 0.01,
            };
            Box::new(thesis::Thesis::new(scenario, policy))
        }
        _ => Box::new(limits::Limited::new(
            scenario,
            limits::Kind::Static(static_limit(name)?),
        )),
    })
}
