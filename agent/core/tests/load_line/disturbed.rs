//! A node that others slow down for some seconds.

use plimsoll_core::*;

use crate::{Outcome, controller, plants::FifoNode, run};

/// One process that finishes 18 requests a second, two in a hundred of which have ten times the work.
fn node(seed: u64) -> FifoNode {
    let mut node = FifoNode::new(1, 0.047, 1.0, seed);
    node.slow = (0.02, 10.0);
    node
}

/// Runs for some periods while the node does its work this many times slower; the load is of what it does otherwise.
fn run_slowed(
    node: &mut FifoNode,
    agent: &mut NodeController,
    times: f64,
    load: f64,
    periods: usize,
) -> Outcome {
    node.service *= times;
    let outcome = run(node, agent, times * load, periods);
    node.service /= times;
    outcome
}

#[test]
fn delays_of_a_node_that_was_slowed_are_not_taken_for_its_own() {
    for calm in [0, 8, 30] {
        for times in [2.0, 4.0, 10.0] {
            for seed in 1..=20 {
                let (mut node, mut agent) = (node(seed), controller(None));
                run(&mut node, &mut agent, 0.5, calm);
                run(&mut node, &mut agent, 1.5, 15);
                run_slowed(&mut node, &mut agent, times, 1.5, 5);
                run(&mut node, &mut agent, 3.0, 10);
                let after = run(&mut node, &mut agent, 3.0, 20);
                let bound = after.bounds.iter().sum::<f64>() / 20.0;
                // Nine jobs finish within the SLA.
                assert!(
                    bound < 16.0,
                    "{bound} jobs after {calm} calm periods and {times} times, seed {seed}"
                );
            }
        }
    }
}
