//! The schedulers' promises, and their conformance vectors.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test schedule` writes `vectors/schedules.json`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::schedule::{NodeNews, Policy, Scheduler};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

const LOAD_INFORMED: Policy = Policy::LoadInformed {
    most_nodes: 3,
    interval: 0.1,
    artificial: 0.05,
};
const POLICIES: [(&str, Policy); 6] = [
    ("round_robin", Policy::RoundRobin),
    ("weighted_round_robin", Policy::WeightedRoundRobin),
    ("weighted_random", Policy::WeightedRandom),
    ("basic_li", Policy::BasicLi { arrivals: 100.0 }),
    ("job_informed", Policy::JobInformed),
    ("load_informed", LOAD_INFORMED),
];

fn nodes(weights: &[u32], jobs: &[f64]) -> Vec<NodeNews> {
    let both = weights.iter().zip(jobs);
    both.map(|(weight, jobs)| NodeNews {
        weight: *weight,
        jobs: *jobs,
        load: jobs / 100.0,
    })
    .collect()
}

fn chosen(policy: Policy, nodes: &[NodeNews], times: usize) -> Vec<usize> {
    let mut random = SmallRng::seed_from_u64(7);
    let mut scheduler = Scheduler::new(policy, nodes);
    let mut counts = vec![0; nodes.len()];
    for _ in 0..times {
        counts[scheduler.next(&mut || random.random()).unwrap()] += 1;
    }
    counts
}

#[test]
fn a_node_without_weight_gets_nothing() {
    for (name, policy) in POLICIES {
        let counts = chosen(policy, &nodes(&[1, 0, 2], &[3.0, 0.0, 5.0]), 300);
        assert_eq!(counts[1], 0, "{name}");
        let none = Scheduler::new(policy, &nodes(&[0, 0], &[0.0, 0.0])).next(&mut || 0);
        assert_eq!(none, None, "{name}");
        assert_eq!(Scheduler::new(policy, &[]).next(&mut || 0), None, "{name}");
    }
}

#[test]
fn weights_are_kept_exactly_over_a_round() {
    for policy in [Policy::WeightedRoundRobin, Policy::WeightedRandom] {
        assert_eq!(
            chosen(policy, &nodes(&[1, 2, 5], &[0.0; 3]), 80),
            [10, 20, 50]
        );
    }
    assert_eq!(
        chosen(Policy::RoundRobin, &nodes(&[1, 2, 5], &[0.0; 3]), 81),
        [27; 3]
    );
}

#[test]
fn the_same_weights_again_do_not_start_the_round_anew() {
    let nodes = nodes(&[1, 3], &[0.0; 2]);
    let mut scheduler = Scheduler::new(Policy::WeightedRoundRobin, &nodes);
    let mut counts = [0, 0];
    for _ in 0..40 {
        scheduler.on_news(&nodes);
        counts[scheduler.next(&mut || 0).unwrap()] += 1;
    }
    assert_eq!(counts, [10, 30]);
}

#[test]
fn job_informed_fills_up_the_idle_nodes_first() {
    // 60 jobs, equal weights: 20 a node, so that node 2 is 20 short and node 1 10 over.
    let counts = chosen(
        Policy::JobInformed,
        &nodes(&[10; 3], &[30.0, 30.0, 0.0]),
        20,
    );
    assert_eq!(counts, [0, 0, 20]);
    // 2 and 6 over and 8 short of 20. In the next round they have their weight less what they are over.
    let news = nodes(&[10; 3], &[22.0, 26.0, 12.0]);
    assert_eq!(chosen(Policy::JobInformed, &news, 8), [0, 0, 8]);
    assert_eq!(chosen(Policy::JobInformed, &news, 8 + 22), [8, 4, 8 + 10]);
}

#[test]
fn basic_li_brings_the_nodes_to_one_level() {
    let policy = Policy::BasicLi { arrivals: 90.0 };
    let counts = chosen(policy, &nodes(&[1; 3], &[30.0, 0.0, 0.0]), 9000);
    // Level 40: 10, 40 and 40 of the 90 that arrive.
    for (count, want) in counts.iter().zip([1000, 4000, 4000]) {
        assert!(count.abs_diff(want) < 200, "{counts:?}");
    }
    // Too few arrivals to bring the busiest to the others' level: it gets none.
    let few = chosen(
        Policy::BasicLi { arrivals: 10.0 },
        &nodes(&[1; 3], &[30.0, 0.0, 4.0]),
        1000,
    );
    assert_eq!(few[0], 0);
    assert!(few[1].abs_diff(700) < 60, "{few:?}");
}

#[test]
fn load_informed_leaves_a_node_when_its_artificial_load_has_grown() {
    let counts = chosen(LOAD_INFORMED, &nodes(&[1; 3], &[0.0, 50.0, 100.0]), 60);
    assert!(
        counts[0] > counts[1] && counts[1] > counts[2] && counts[2] > 0,
        "{counts:?}"
    );
    let mut scheduler = Scheduler::new(
        Policy::LoadInformed {
            most_nodes: 1,
            interval: 0.0,
            artificial: 1.0,
        },
        &nodes(&[1; 2], &[0.0, 50.0]),
    );
    assert_eq!(scheduler.next(&mut || 0), Some(0));
    assert_eq!(scheduler.next(&mut || 0), Some(1));
    scheduler.finished(0);
    assert_eq!(scheduler.next(&mut || 0), Some(0));
}

#[test]
fn dispatchers_with_the_same_news_do_not_herd() {
    let news = nodes(
        &[10; 10],
        &[0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0],
    );
    let most = |dispatchers: usize| {
        let mut counts = [0; 10];
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut scheduler = Scheduler::new(Policy::JobInformed, &news);
            for _ in 0..4 {
                counts[scheduler
                    .next_among(dispatchers, &mut || random.random())
                    .unwrap()] += 1;
            }
        }
        counts[0]
    };
    // Alone each sends all four to the idle node; knowing of the others, only its part.
    assert_eq!(most(1), 80);
    assert!(most(20) < 30, "{}", most(20));
}

#[test]
fn news_that_is_no_number_does_not_attract() {
    let mut news = nodes(&[1; 2], &[1.0, 1.0]);
    news[0].load = f64::NAN;
    news[0].jobs = f64::NAN;
    for (name, policy) in POLICIES {
        assert!(chosen(policy, &news, 50)[1] > 0, "{name}");
    }
    assert_eq!(chosen(LOAD_INFORMED, &news, 50), [0, 50]);
}

#[test]
fn schedules() {
    let mut random = SmallRng::seed_from_u64(11);
    let mut cases: Vec<Value> = Vec::new();
    for (name, policy) in POLICIES {
        for (count, dispatchers) in [(1, 1), (3, 1), (5, 1), (8, 3)] {
            let mut scheduler = Scheduler::new(policy, &[]);
            let mut phases = Vec::new();
            for _ in 0..4 {
                let news: Vec<NodeNews> = (0..count)
                    .map(|_| NodeNews {
                        weight: if random.random_bool(0.15) {
                            0
                        } else {
                            random.random_range(1..12)
                        },
                        jobs: f64::from(random.random_range(0..60_u32)),
                        load: f64::from(random.random_range(0..64_u32)) / 64.0,
                    })
                    .collect();
                scheduler.on_news(&news);
                let mut numbers = Vec::new();
                let picks: Vec<Option<usize>> = (0..24)
                    .map(|_| {
                        scheduler.next_among(dispatchers, &mut || {
                            let number = random.random();
                            numbers.push(number);
                            number
                        })
                    })
                    .collect();
                phases.push(json!({
                    "weights": news.iter().map(|n| n.weight).collect::<Vec<u32>>(),
                    "jobs": news.iter().map(|n| n.jobs).collect::<Vec<f64>>(),
                    "loads": news.iter().map(|n| n.load).collect::<Vec<f64>>(),
                    "random": numbers, "chosen": picks,
                }));
            }
            cases.push(json!({"policy": name, "dispatchers": dispatchers, "phases": phases}));
        }
    }
    vectors::compare(
        "schedules.json",
        "news of a phase, then 24 choices that use up the random numbers in order; basic_li: 100 arrivals; load_informed: 3 nodes, interval 0.1, artificial 0.05",
        cases,
    );
}
