//! Upper bound of a policy with complete knowledge.

use plimsoll_core::dispatch::Held;

use super::{Ask, Ended, Placed, Policy};
use crate::{node::Node, scenario::Scenario};

/// Knows each node's work and present speed, and admits the requests that will be timely.
pub struct Oracle {
    within: f64,
    turn: usize,
}

impl Oracle {
    pub fn new(scenario: &Scenario) -> Self {
        Oracle {
            within: 0.99 * scenario.sla_seconds,
            turn: 0,
        }
    }
}

impl Policy for Oracle {
    fn place(&mut self, ask: &Ask<'_>, _: &mut dyn FnMut() -> u32) -> Placed {
        let good = |node: &usize| ask.nodes[*node].is_good();
        self.turn += 1;
        let in_turn = (0..ask.nodes.len()).map(|i| (self.turn + i) % ask.nodes.len());
        let wait = |node: usize| Node::foretold(&ask.nodes[node], ask.items);
        let best = in_turn
            .filter(good)
            .map(|node| (wait(node), node))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        Placed::on(
            best.filter(|(wait, _)| *wait <= self.within)
                .map(|(_, node)| node),
        )
    }

    fn ended(&mut self, _: &Ended, _: Option<Held>) {}
}
