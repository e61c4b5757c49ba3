//! Schedulers of the load balancing thesis (MySQL, 2003, chapter 3).
//!
//! A dispatcher has one [`Scheduler`], passes it news of the nodes and gets a node for each request. Randomness is
//! passed in as 32-bit numbers, so that Lua and Rust choose alike; `vectors/schedules.json` pins that.

mod board;
mod load;
mod tokens;

pub use board::{Board, NewsSettings, UpdateAlgorithm};

use load::{BasicLi, LeastLoaded};
use tokens::Tokens;

/// News of one node. Nodes are identified by their position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeNews {
    /// Relative share of the work; 0 for none.
    pub weight: u32,
    /// Active requests.
    pub jobs: f64,
    /// Load in a common unit of the nodes, such as delay / SLA.
    pub load: f64,
}

/// Scheduler and its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Algorithm 3.1.
    RoundRobin,
    /// Algorithm 3.2, with the expired list.
    WeightedRoundRobin,
    /// Algorithm 3.3.
    WeightedRandom,
    /// BasicLI, section 3.5.
    BasicLi {
        /// Requests expected until the next news, at least 1.
        arrivals: f64,
    },
    /// Algorithm 3.4.
    JobInformed,
    /// Algorithm 3.6 with the artificial load of 3.7.
    LoadInformed {
        /// Maximum number of nodes to choose among, at least 1.
        max_nodes: usize,
        /// Maximum difference from the least load.
        interval: f64,
        /// Load that each request adds until the next news.
        artificial: f64,
    },
}

#[derive(Clone, Debug)]
enum State {
    RoundRobin { live: Vec<usize>, next: usize },
    Tokens(Tokens),
    BasicLi(BasicLi),
    LeastLoaded(LeastLoaded),
}

/// Scheduler of one dispatcher.
#[derive(Clone, Debug)]
pub struct Scheduler {
    policy: Policy,
    state: State,
}

/// Maps a 32-bit random number to `0..count`.
fn drawn(number: u32, count: usize) -> usize {
    ((u64::from(number) * count as u64) >> 32) as usize
}

impl NodeNews {
    fn jobs(&self) -> f64 {
        if self.jobs.is_finite() {
            self.jobs.max(0.0)
        } else {
            0.0
        }
    }

    /// The load; the maximum if it is not finite, so that it attracts no requests.
    fn load(&self) -> f64 {
        if self.load.is_finite() {
            self.load
        } else {
            f64::MAX
        }
    }
}

impl Scheduler {
    /// Creates a scheduler for these nodes.
    pub fn new(policy: Policy, nodes: &[NodeNews]) -> Self {
        let state = match policy {
            Policy::RoundRobin => State::RoundRobin {
                live: Vec::new(),
                next: 0,
            },
            Policy::WeightedRoundRobin | Policy::WeightedRandom | Policy::JobInformed => {
                State::Tokens(Tokens::default())
            }
            Policy::BasicLi { .. } => State::BasicLi(BasicLi::default()),
            Policy::LoadInformed { .. } => State::LeastLoaded(LeastLoaded::default()),
        };
        let mut scheduler = Scheduler { policy, state };
        scheduler.on_news(nodes);
        scheduler
    }

    /// Applies news: `OnLoadUpdate` of the thesis.
    pub fn on_news(&mut self, nodes: &[NodeNews]) {
        match (&mut self.state, self.policy) {
            (State::RoundRobin { live, next }, _) => {
                *live = (0..nodes.len()).filter(|i| nodes[*i].weight > 0).collect();
                *next = if live.is_empty() {
                    0
                } else {
                    *next % live.len()
                };
            }
            (State::Tokens(tokens), Policy::JobInformed) => tokens.inform(nodes),
            (State::Tokens(tokens), _) => tokens.set_weights(nodes),
            (State::BasicLi(li), Policy::BasicLi { arrivals }) => li.inform(nodes, arrivals),
            (State::LeastLoaded(loads), _) => loads.inform(nodes),
            (State::BasicLi(_), _) => {}
        }
    }

    /// Node for a request: `GetNextNode`. `None` if no node has a weight.
    pub fn next(&mut self, random: &mut impl FnMut() -> u32) -> Option<usize> {
        match (&mut self.state, self.policy) {
            (State::RoundRobin { live, next }, _) => {
                let chosen = *live.get(*next)?;
                *next = (*next + 1) % live.len();
                Some(chosen)
            }
            (State::Tokens(tokens), Policy::WeightedRandom) => tokens.next_random(random()),
            (State::Tokens(tokens), _) => tokens.next_in_turn(),
            (State::BasicLi(li), _) => li.next(random()),
            (
                State::LeastLoaded(loads),
                Policy::LoadInformed {
                    max_nodes,
                    interval,
                    artificial,
                },
            ) => loads.next(max_nodes, interval, artificial, random()),
            (State::LeastLoaded(_), _) => None,
        }
    }

    /// Algorithm 3.8: as all `dispatchers` act on the same news, each draws that many nodes and takes one of them.
    pub fn next_among(
        &mut self,
        dispatchers: usize,
        random: &mut impl FnMut() -> u32,
    ) -> Option<usize> {
        let dispatchers = dispatchers.max(1);
        if dispatchers == 1 {
            return self.next(random);
        }
        let take = drawn(random(), dispatchers);
        let mut taken = None;
        for turn in 0..dispatchers {
            let chosen = self.next(random)?;
            if turn == take {
                taken = Some(chosen);
            }
        }
        taken
    }

    /// Removes the artificial load of a request that has ended (algorithm 3.7, line 11).
    pub fn finished(&mut self, node: usize) {
        if let (State::LeastLoaded(loads), Policy::LoadInformed { artificial, .. }) =
            (&mut self.state, self.policy)
        {
            loads.decrease(node, artificial);
        }
    }
}
