//! Comparison of the plant with queueing theory, and invariants of every run.
#![allow(clippy::unwrap_used)]

use plimsoll_sim::{Outcome, Scenario, Second, run};

/// One node and an open load; `more` is added to the node's table.
fn scenario(load: f64, seconds: u32, items: &str, node: &str) -> Scenario {
    let text = format!(
        "about = 'test'\nsla_seconds = 1.0\nseconds = {seconds}.0\nmeasured_from = 20.0\npolicies = ['rr']\n\
         [clients]\nitems = {items}\nphases = [{{ from = 0.0, load = {load} }}]\n[[nodes]]\n{node}\n"
    );
    Scenario::parse("test.toml", &text).unwrap()
}

fn mean(outcome: &Outcome) -> f64 {
    outcome
        .delays
        .iter()
        .map(|delay| f64::from(*delay))
        .sum::<f64>()
        / outcome.delays.len() as f64
}

fn near(measured: f64, expected: f64) {
    assert!(
        (measured / expected - 1.0).abs() < 0.03,
        "{measured} is not near {expected}"
    );
}

#[test]
fn queue_of_equal_jobs_matches_pollaczek_khinchine() {
    let node = "cores = 1\nworkers = 1\nitem_seconds = 0.0001";
    for load in [0.3, 0.7, 0.9] {
        let outcome = run(&scenario(load, 2000, "[100, 100]", node), "rr", 1).unwrap();
        near(mean(&outcome), 0.01 * (1.0 + load / (2.0 * (1.0 - load))));
    }
}

#[test]
fn processor_sharing_delay_is_mean_size_over_free_capacity() {
    let node = "cores = 1\nworkers = 1000000\nitem_seconds = 0.0001";
    for load in [0.3, 0.7, 0.9] {
        let outcome = run(&scenario(load, 2000, "[1, 199]", node), "rr", 1).unwrap();
        near(mean(&outcome), 0.01 / (1.0 - load));
    }
}

#[test]
fn mean_delay_is_independent_of_service_order() {
    let node = "cores = 1\nworkers = 1\nitem_seconds = 0.0001";
    let fifo = run(&scenario(0.8, 2000, "[50, 150]", node), "rr", 1).unwrap();
    let random = format!("{node}\norder = 'random'");
    let random = run(&scenario(0.8, 2000, "[50, 150]", &random), "rr", 1).unwrap();
    near(mean(&random), mean(&fifo));
}

#[test]
fn contention_costs_throughput() {
    // 11 jobs are in the node at all times, ten over the first, each costs 5 %.
    let text = "about = 'test'\nsla_seconds = 1.0\nseconds = 200.0\npolicies = ['rr']\n[clients]\ncount = 11\n\
                items = [100, 100]\nphases = [{ from = 0.0, think = [0.0, 0.0] }]\n[[nodes]]\ncores = 1\nworkers = 100\n\
                item_seconds = 0.001\ncontention_from = 1\ncontention = 0.05\n";
    let outcome = run(&Scenario::parse("test.toml", text).unwrap(), "rr", 1).unwrap();
    let total: f64 = outcome.seconds.iter().map(|second| second.total).sum();
    near(total / 200.0, 1000.0 / 1.5);
}

#[test]
fn cache_of_half_the_keys_hits_half_of_the_time() {
    let node = "cores = 8\nworkers = 8\nitem_seconds = 0.0001\ncache_keys = 50\ncache_saves = 0.5";
    let scenario = scenario(0.5, 200, "[100, 100]\nkeys = 100", node);
    let outcome = run(&scenario, "rr", 1).unwrap();
    near(outcome.cache.0 as f64 / outcome.cache.1 as f64, 0.5);
}

#[test]
fn runs_are_deterministic_per_seed() {
    let mut scenario = Scenario::find("retry-storm").unwrap();
    scenario.seconds = 60.0;
    scenario.changes.truncate(1);
    for policy in ["fc-hash", "prequal", "aimd"] {
        let one = run(&scenario, policy, 7).unwrap();
        let two = run(&scenario, policy, 7).unwrap();
        let other = run(&scenario, policy, 8).unwrap();
        assert_eq!(one.delays, two.delays);
        assert_eq!(
            (one.sent, one.refused, one.errors),
            (two.sent, two.refused, two.errors)
        );
        assert_ne!(one.delays, other.delays);
    }
}

#[test]
fn every_policy_gets_the_same_open_work_and_accounts_for_all() {
    let mut scenario = Scenario::find("black-hole").unwrap();
    scenario.measured_from = 0.0;
    // What is still under way at the end is not accounted for: the last seconds send nothing.
    scenario.clients.phases.push(plimsoll_sim::Phase {
        from: 100.0,
        think: None,
        load: Some(0.0),
    });
    let mut sent = None;
    for policy in plimsoll_sim::POLICIES {
        let outcome = run(&scenario, policy, 3).unwrap();
        assert_eq!(*sent.get_or_insert(outcome.sent), outcome.sent, "{policy}");
        let ended = outcome.delays.len() as u64 + outcome.refused + outcome.errors;
        assert_eq!(ended, outcome.sent, "{policy}");
    }
}

#[test]
fn down_node_gets_no_requests_and_loses_its_own() {
    let text = "about = 'test'\nsla_seconds = 1.0\nseconds = 60.0\npolicies = ['rr']\n[clients]\nkeys = 1000\nitems = [80, 80]\n\
                phases = [{ from = 0.0, load = 0.4 }]\n[[nodes]]\ncount = 2\ncores = 8\nworkers = 8\nitem_seconds = 0.001\n\
                [[changes]]\nat = 20.0\nnode = 1\nto = 'down'\n[[changes]]\nat = 40.0\nnode = 1\nto = 'good'\n";
    let scenario = Scenario::parse("test.toml", text).unwrap();
    // Where a key has a primary, there is one for all of them here.
    let has_primaries =
        |policy: &&str| policy.starts_with("primary") || policy.starts_with("placement");
    for policy in plimsoll_sim::POLICIES
        .iter()
        .filter(|policy| !has_primaries(policy))
    {
        let outcome = run(&scenario, policy, 1).unwrap();
        let in_flight = outcome.errors;
        assert!(
            (1..200).contains(&in_flight),
            "{policy}: {in_flight} failed"
        );
        let sum = |of: fn(&Second) -> f64, from: usize, to: usize| -> f64 {
            outcome.seconds[from..to].iter().map(of).sum()
        };
        // CoDel refuses some of what has to wait.
        let refused = 80.0 * sum(|second| second.refused as f64, 25, 60);
        let offered = sum(|second| second.offered, 25, 60);
        near(sum(|second| second.timely, 25, 60) + refused, offered);
        // Bounds of nodes of which one was full meanwhile and the other not are not alike.
        let most = if policy.starts_with("fc-") { 0.7 } else { 0.6 };
        let on_it = outcome.node_items[1] / outcome.node_items[0];
        assert!((0.4..most).contains(&on_it), "{policy}: {on_it}");
    }
}
