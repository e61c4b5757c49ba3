//! Changes of nodes in the scenario.

use rand::Rng;

use super::{HEALTH_CHECK, World};
use crate::{events::Event, node::Health, scenario::State};

impl World<'_> {
    pub(super) fn change(&mut self, index: u32) {
        let change = self.scenario.changes[index as usize];
        for node in change.node..change.node + change.count {
            let place = node as usize;
            if change.to == State::Contended {
                self.nodes[place].contend(self.now, change.value.unwrap_or(0.0));
                self.plan(node);
                continue;
            }
            let was_down = self.nodes[place].health == Health::Down;
            self.nodes[place].health = match change.to {
                State::Good | State::Slow | State::Contended => Health::Good,
                State::Down => Health::Down,
                State::BlackHole => Health::BlackHole,
                State::Failing => Health::Failing(change.value.unwrap_or(1.0)),
            };
            let speed = match change.to {
                State::Slow => change.value.unwrap_or(1.0),
                _ => 1.0,
            };
            self.nodes[place].set_speed(self.now, speed);
            // Requests in a black hole are never answered.
            if change.to != State::BlackHole {
                let lost = match change.to {
                    State::Down => self.nodes[place].drop_all(self.now),
                    _ => self.nodes[place].drop_swallowed(),
                };
                for slot in lost {
                    self.wrote(slot, node, false);
                    if self.requests[slot as usize].orphaned {
                        self.release_slot(slot);
                    } else {
                        self.fail(slot, false);
                    }
                }
            }
            self.plan(node);
            let is_down = change.to == State::Down;
            if was_down != is_down {
                let wait = HEALTH_CHECK * (1.0 + self.chances.random::<f64>());
                let event = Event::Health { node, up: !is_down };
                self.events.put(self.now.after(wait), event);
            }
        }
    }
}
