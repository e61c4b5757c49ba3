//! Runs with transactions, primaries and their handover.
#![allow(clippy::unwrap_used)]

use plimsoll_sim::{Change, Outcome, Phase, Scenario, State, run};

const PLACING: [&str; 4] = ["primary-one", "primary-even", "placement", "placement-even"];

fn scenario() -> Scenario {
    Scenario::find("middle-r-placement").unwrap()
}

fn total(outcome: &Outcome, from: usize, to: usize) -> f64 {
    let seconds = &outcome.seconds[from..to];
    seconds.iter().map(|second| second.total).sum::<f64>() / (to - from) as f64
}

#[test]
fn transactions_cost_every_node_its_share() {
    let mut scenario = scenario();
    // More than can be done: what each replica spends is for one transaction in n its own.
    scenario.clients.phases[0].load = Some(2.0);
    for (nodes, expected) in [(9, 200.0), (3, 126.3), (1, 60.0)] {
        scenario.nodes[0].count = nodes;
        let outcome = run(&scenario, "primary-even", 1).unwrap();
        let done = total(&outcome, 5, 60);
        assert!((done / expected - 1.0).abs() < 0.05, "{nodes}: {done}");
    }
}

#[test]
fn no_two_nodes_run_transactions_of_one_set() {
    let scenario = scenario();
    for policy in PLACING {
        let outcome = run(&scenario, policy, 1).unwrap();
        assert_eq!(outcome.two_primaries, 0, "{policy}");
    }
    // Or it would not be noticed.
    assert!(run(&scenario, "leastconn", 1).unwrap().two_primaries > 0);
}

#[test]
fn nodes_that_die_during_handover_lose_only_their_own_requests() {
    for seed in 1..=2 {
        for (node, at) in [(0, 1.1), (0, 1.2), (4, 1.15), (4, 2.1)] {
            let mut scenario = scenario();
            let change = |at, to| Change {
                at,
                node,
                count: 1,
                to,
                value: None,
            };
            scenario.changes = vec![change(at, State::Down), change(30.0, State::Good)];
            // Eight nodes have some to spare.
            scenario.clients.phases[0].load = Some(0.27);
            scenario.clients.patience = Some(0.5);
            scenario.clients.phases.push(Phase {
                from: 55.0,
                think: None,
                load: Some(0.0),
            });
            let outcome = run(&scenario, "placement", seed).unwrap();
            assert_eq!(outcome.two_primaries, 0, "node {node} at {at}, seed {seed}");
            let ended = outcome.delays.len() as u64 + outcome.refused + outcome.errors;
            assert_eq!(ended, outcome.sent);
            // Of 146, less what clients do not wait for; one node would do 60.
            for (from, to) in [(15, 30), (40, 55)] {
                let done = total(&outcome, from, to);
                assert!(done > 130.0, "node {node} at {at}, seed {seed}: {done}");
            }
        }
    }
}
