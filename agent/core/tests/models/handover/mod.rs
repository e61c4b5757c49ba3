//! The hand-over of object sets: two nodes, two dispatchers, two agents and a Redis that is replicated late, forks and
//! loses its last change.
//!
//! [`Steward`](plimsoll_core::placement::Steward) and [`Follower`](plimsoll_core::placement::Follower) are agent/core's
//! own. What is around them is modelled: Redis' function library in `redis.rs`, the agent in `keeper.rs`, the proxy's
//! part in `world.rs`. A process that pauses is one that does nothing while time passes. Time is in whole units, the
//! same for all, and nodes end requests within `request_limit`; the steward's own clock stands still, so that it gives
//! up no hand-over. Answers to dispatchers may be late. A reading and what the keeper decides by it are one step.

mod keeper;
mod mends;
mod redis;
mod seen;
mod table;
mod world;

use std::collections::BTreeMap;

use stateright::{Model, Property};

use crate::{holds, is_broken};
pub use mends::Mend;
use mends::{FAILOVER, HOLD};
use world::{Action, Left, World};

const ONE_PRIMARY: &str = "no object set runs at two nodes";
const ONE_TABLE: &str = "dispatchers of one version have one table";
const ENDS: &str = "a hand-over ends once nothing goes wrong";

/// Possible events and their maximum numbers. Times are in units.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// `when_lost`.
    pub holds: bool,
    /// Object sets that move.
    pub sets: usize,
    pub lease: u8,
    pub request_limit: u8,
    /// Time beyond its lease that a dispatcher which holds may go on; so long a former master takes writes.
    pub margin: u8,
    /// A former master goes on with those left with it.
    pub forks: bool,
    /// Answers reach dispatchers late.
    pub slow_answers: bool,
    /// Dispatchers that have joined at the beginning; the others do later.
    pub joined: usize,
    /// Maximum ids of a dispatcher.
    pub joins: u8,
    pub left: Left,
    /// Every so many states it is checked that hand-overs end; 0 for never.
    pub rests: u64,
    pub without: Option<Mend>,
}

impl Config {
    /// No failures: the base for others.
    const QUIET: Config = Config {
        holds: false,
        sets: 1,
        lease: 1,
        request_limit: 1,
        margin: 0,
        forks: false,
        slow_answers: false,
        joined: 2,
        joins: 2,
        left: Left {
            ticks: 0,
            moves: 1,
            claims: 0,
            failovers: 0,
            cuts: 0,
            restarts: 0,
        },
        rests: 64,
        without: None,
    };

    fn at_once(&self) -> Config {
        Config {
            slow_answers: false,
            ..*self
        }
    }

    fn lacks(&self, mend: Mend) -> bool {
        self.without == Some(mend)
    }

    /// Above it ages are equal.
    fn max_age(&self) -> u8 {
        self.lease + self.margin + self.request_limit + 1
    }

    /// Before a table that does not go on is in force.
    fn opening(&self) -> u8 {
        self.lease + self.request_limit + if self.holds { self.margin } else { 0 }
    }

    /// Enough for everything to come to rest.
    fn rounds(&self) -> u8 {
        2 * self.max_age() + 8
    }
}

#[derive(Debug)]
struct HandOver(Config);

fn one_primary(_: &HandOver, world: &World) -> bool {
    let runs = &world.runs;
    runs.iter().all(|run| {
        let others = runs.iter().filter(|other| other.set == run.set);
        others.into_iter().all(|other| other.node == run.node)
    })
}

fn one_table(_: &HandOver, world: &World) -> bool {
    let mut tables = BTreeMap::new();
    let views = world.dispatchers.iter().filter_map(|known| known.view);
    views.into_iter().all(|(generation, version, nodes)| {
        *tables.entry((generation, version)).or_insert(nodes) == nodes
    })
}

fn comes_to_rest(model: &HandOver, world: &World) -> bool {
    let config = &model.0;
    config.rests == 0 || !world.digest().is_multiple_of(config.rests) || world.comes_to_rest(config)
}

fn is_on_lost_version(world: &World) -> bool {
    let views = world.dispatchers.iter().filter_map(|known| known.view);
    views.into_iter().any(|(generation, version, _)| {
        generation == world.master.at.generation && !world.master.has_been(version)
    })
}

impl Model for HandOver {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.0, actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        if !world.apply(action, &self.0) {
            return None;
        }
        world.refresh();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let Config {
            holds, left, forks, ..
        } = self.0;
        let mut properties = vec![
            Property::always(ONE_PRIMARY, one_primary),
            Property::always(ONE_TABLE, one_table),
            Property::always(ENDS, comes_to_rest),
            Property::sometimes("a request runs at the new primary", |_, world: &World| {
                world.runs.iter().any(|run| run.node == 1)
            }),
            Property::sometimes("a request runs while its set leaves", |_, world: &World| {
                !world.runs.is_empty() && !world.master.is_still()
            }),
        ];
        if left.claims > left.failovers {
            let name = "two agents take themselves for the keeper";
            properties.push(Property::sometimes(name, |_, world: &World| {
                let mut agents = world.agents.iter();
                agents.all(|agent| agent.term.is_some())
            }));
        }
        if left.failovers > 0 {
            let name = "a dispatcher acts on a lost version";
            properties.push(Property::sometimes(name, |_, world: &World| {
                is_on_lost_version(world)
            }));
            let name = "a keeper waits after a loss";
            properties.push(Property::sometimes(name, |_, world: &World| {
                world.agents.iter().any(keeper::Agent::is_after_loss)
            }));
            let name = "a dispatcher is in doubt";
            properties.push(Property::sometimes(name, |_, world: &World| {
                !world.master.gone.is_empty()
            }));
        }
        if forks {
            let name = "a request runs by a former master's table";
            properties.push(Property::sometimes(name, |_, world: &World| {
                let mut runs = world.runs.iter();
                let server = |sender: usize| world.dispatchers[sender].server;
                runs.any(|run| server(run.sender) != world.master.server)
            }));
        }
        if holds && left.ticks > 1 {
            let name = "a dispatcher holds";
            properties.push(Property::sometimes(name, |_, world: &World| {
                let mut dispatchers = world.dispatchers.iter();
                dispatchers.any(world::Dispatcher::is_suspended)
            }));
        }
        properties
    }
}

fn holds_in(config: Config) {
    holds(HandOver(config));
}

/// Checks that what is promised does not hold if the mend is lacking.
fn breaks(without: Mend, promise: &'static str, config: Config) {
    let without = Some(without);
    breaks_in(promise, Config { without, ..config });
}

fn breaks_in(promise: &'static str, config: Config) {
    // Whether hand-overs end is not asked.
    let config = Config { rests: 0, ..config };
    is_broken(HandOver(config), promise);
}

#[test]
fn handover_is_safe_and_ends_while_keepers_change() {
    holds_in(Config {
        slow_answers: true,
        left: Left {
            claims: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    });
}

#[test]
fn handover_of_one_of_two_sets_is_safe_and_ends() {
    holds_in(Config {
        sets: 2,
        ..Config::QUIET
    });
}

#[test]
fn handover_is_safe_and_ends_while_requests_are_cut_off() {
    holds_in(Config {
        lease: 0,
        request_limit: 0,
        left: Left {
            ticks: 1,
            cuts: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    });
}

#[test]
fn handover_is_safe_and_ends_while_a_dispatcher_restarts() {
    holds_in(Config {
        lease: 0,
        request_limit: 0,
        left: Left {
            ticks: 1,
            restarts: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    });
}

#[test]
fn handover_is_safe_and_ends_after_the_loss_of_a_change() {
    holds_in(FAILOVER);
}

#[test]
fn handover_is_safe_and_ends_while_a_dispatcher_pauses() {
    holds_in(HOLD);
}

#[test]
#[ignore = "takes a minute: `make model`"]
fn handover_is_safe_and_ends_while_keepers_change_and_sets_return() {
    holds_in(Config {
        slow_answers: true,
        left: Left {
            moves: 2,
            claims: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    });
}

#[test]
#[ignore = "takes a minute: `make model`"]
fn handover_is_safe_and_ends_while_a_dispatcher_pauses_for_longer() {
    holds_in(Config {
        lease: 1,
        request_limit: 1,
        left: Left {
            ticks: 4,
            ..HOLD.left
        },
        ..HOLD
    });
}
