//! The schedulers of the load balancing thesis (MySQL, 2003, chapter 3), one choice at a time.
//!
//! A dispatcher holds one [`Scheduler`], tells it news about the nodes when there are any and asks it
//! for a node for each request. Randomness comes in as 32-bit numbers, so that Lua and Rust choose
//! alike; `vectors/schedules.json` pins that.

mod board;
mod load;
mod tokens;

pub use board::{Board, NewsSettings, UpdateAlgorithm};

use load::{BasicLi, LeastLoaded};
use tokens::Tokens;

/// What is known of a node. Nodes are named by their position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeNews {
    /// Share of the work it should get; 0 takes it out.
    pub weight: u32,
    /// Active requests.
    pub jobs: f64,
    /// Load in whatever unit the nodes agree on, such as delay over SLA.
    pub load: f64,
}

/// Which scheduler, and its settings.
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
        /// Requests expected until the next news, above 0.
        arrivals: f64,
    },
    /// Algorithm 3.4.
    JobInformed,
    /// Algorithm 3.6 with the artificial load of 3.7.
    LoadInformed {
        /// The most nodes to draw among.
        max_nodes: usize,
        /// How far over the least load a node may be to be drawn.
        interval: f64,
        /// Load that a request adds until the next news.
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

/// One dispatcher's state.
#[derive(Clone, Debug)]
pub struct Scheduler {
    policy: Policy,
    state: State,
}

/// `0..count` from a 32-bit random number.
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

    /// A load that is no number is not an invitation.
    fn load(&self) -> f64 {
        if self.load.is_finite() {
            self.load
        } else {
            f64::MAX
        }
    }
}

impl Scheduler {
    /// A scheduler that knows these nodes.
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

    /// Takes in news: `OnLoadUpdate` of the thesis.
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

    /// The node for a request: `GetNextNode`. `None` where no node has a weight.
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

    /// Algorithm 3.8: `dispatchers` act on the same news, so each asks as many times as there are of
    /// them and takes one of the answers.
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

    /// A request left the node before the next news: its artificial load goes (algorithm 3.7, line 11).
    pub fn finished(&mut self, node: usize) {
        if let (State::LeastLoaded(loads), Policy::LoadInformed { artificial, .. }) =
            (&mut self.state, self.policy)
        {
            loads.decrease(node, artificial);
        }
    }
}
