//! Services of which more requests than the objective leaves out are late by themselves.

use plimsoll_core::*;

use crate::{Outcome, controller, plants::FifoNode, run};

/// A service: its workers, the delay of a request in an unloaded node in seconds, and which share of them takes how many
/// times that.
#[derive(Clone, Copy, Debug)]
struct Service {
    workers: usize,
    seconds: f64,
    slow: (f64, f64),
}

/// Services of which a tenth to all of the requests are late, however few are in the node.
const SERVICES: [Service; 5] = [
    Service {
        workers: 32,
        seconds: 0.02,
        slow: (0.3, 100.0),
    },
    Service {
        workers: 32,
        seconds: 0.02,
        slow: (0.1, 50.0),
    },
    Service {
        workers: 8,
        seconds: 0.1,
        slow: (0.2, 10.0),
    },
    Service {
        workers: 8,
        seconds: 0.8,
        slow: (0.0, 1.0),
    },
    Service {
        workers: 64,
        seconds: 2.0,
        slow: (0.0, 1.0),
    },
];

fn node(service: Service, seed: u64) -> FifoNode {
    let mut node = FifoNode::new(service.workers, service.seconds, 1.0, seed);
    node.slow = service.slow;
    node
}

/// Share of the node's capacity that was admitted.
fn admitted(node: &FifoNode, outcome: &Outcome) -> f64 {
    let admitted = (outcome.arrived - outcome.refused) as f64;
    admitted / (node.capacity_per_second() * outcome.bounds.len() as f64)
}

/// Mean over seeds of what `figure` finds, and the worst of them by `worse`.
fn over_seeds(figure: impl Fn(u64) -> f64, worse: fn(f64, f64) -> f64) -> (f64, f64) {
    let figures: Vec<f64> = (1..=5).map(|seed| figure(60 * seed)).collect();
    let mean = figures.iter().sum::<f64>() / figures.len() as f64;
    (mean, figures.into_iter().reduce(worse).unwrap())
}

#[test]
fn load_within_capacity_is_admitted() {
    for service in SERVICES {
        for (load, most) in [(0.5, 0.03), (0.85, 0.06)] {
            let refused = |seed| {
                let (mut node, mut agent) = (node(service, seed), controller(None));
                // Whether the delays are those of a queue is tried out once.
                run(&mut node, &mut agent, load, 120);
                run(&mut node, &mut agent, load, 300).refused_share()
            };
            let (mean, worst) = over_seeds(refused, f64::max);
            assert!(
                mean <= most && worst <= 0.1,
                "{service:?} at {load}: {mean}, at worst {worst}"
            );
        }
    }
}

/// Asserts that each service's node is kept busy at this load, a minute after what `begin` does with it and an agent.
fn assert_busy(load: f64, begin: impl Fn(&mut FifoNode) -> NodeController) {
    for service in SERVICES {
        let done = |seed| {
            let mut node = node(service, seed);
            let mut agent = begin(&mut node);
            run(&mut node, &mut agent, load, 60);
            let held = run(&mut node, &mut agent, load, 120);
            admitted(&node, &held)
        };
        let (mean, worst) = over_seeds(done, f64::min);
        assert!(
            mean > 0.85 && worst > 0.6,
            "{service:?} at {load}: {mean}, at worst {worst}"
        );
    }
}

#[test]
fn node_stays_busy_under_overload() {
    for load in [1.5, 3.0] {
        assert_busy(load, |node| {
            let mut agent = controller(None);
            run(node, &mut agent, 0.4, 60);
            agent
        });
    }
}

#[test]
fn agent_started_amid_overload_keeps_the_node_busy() {
    assert_busy(2.0, |_| controller(None));
}

#[test]
fn restarted_agent_knows_that_the_delays_are_no_queue() {
    for service in SERVICES {
        let (mut node, mut agent) = (node(service, 73), controller(None));
        run(&mut node, &mut agent, 2.0, 120);
        let mut restarted = controller(None);
        restarted.recall(agent.learned().unwrap());
        let calm = run(&mut node, &mut restarted, 0.5, 60);
        let refused = calm.refused_share();
        assert!(refused <= 0.05, "{service:?}: {refused}, {calm:?}");
    }
}

#[test]
fn agent_restarted_before_it_found_out_tries_again() {
    assert_busy(2.0, |node| {
        let mut agent = controller(None);
        run(node, &mut agent, 2.0, 4);
        let mut restarted = controller(None);
        if let Some(learned) = agent.learned() {
            restarted.recall(learned);
        }
        restarted
    });
}

#[test]
fn objective_that_is_missed_by_itself_is_over_sla() {
    let (mut node, mut agent) = (node(SERVICES[0], 79), controller(None));
    run(&mut node, &mut agent, 0.5, 120);
    let calm = run(&mut node, &mut agent, 0.5, 10);
    assert_eq!(calm.reasons, [Reason::OverSla; 10]);
}
