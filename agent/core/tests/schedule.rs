//! Guarantees of the schedulers, and their conformance vectors.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test schedule` writes `vectors/schedules.json`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::schedule::{Board, NewsSettings, NodeNews, Policy, Scheduler, UpdateAlgorithm};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

const LOAD_INFORMED: Policy = Policy::LoadInformed {
    max_nodes: 3,
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
fn unchanged_weights_do_not_restart_the_round() {
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
fn load_informed_leaves_a_node_whose_artificial_load_grew() {
    let counts = chosen(LOAD_INFORMED, &nodes(&[1; 3], &[0.0, 50.0, 100.0]), 60);
    assert!(
        counts[0] > counts[1] && counts[1] > counts[2] && counts[2] > 0,
        "{counts:?}"
    );
    let mut scheduler = Scheduler::new(
        Policy::LoadInformed {
            max_nodes: 1,
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
fn non_finite_load_attracts_no_requests() {
    let mut news = nodes(&[1; 2], &[1.0, 1.0]);
    news[0].load = f64::NAN;
    news[0].jobs = f64::NAN;
    for (name, policy) in POLICIES {
        assert!(chosen(policy, &news, 50)[1] > 0, "{name}");
    }
    assert_eq!(chosen(LOAD_INFORMED, &news, 50), [0, 50]);
}

#[test]
fn schedulers_match_vectors() {
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

/// Age of each node's posted news, second by second, with one snapshot a second.
fn ages(update: UpdateAlgorithm, phase: f64, count: usize) -> Vec<Vec<f64>> {
    let mut board = Board::new(NewsSettings { update, phase });
    (0..40)
        .map(|second| {
            let now = f64::from(second);
            // The load tells when it was heard.
            let heard = NodeNews {
                weight: 1,
                jobs: now,
                load: now,
            };
            board.heard(now, &vec![heard; count]);
            let posted = board.posted().iter();
            posted.map(|news| now - news.jobs).collect()
        })
        .collect()
}

#[test]
fn periodic_news_changes_together_once_a_phase() {
    let ages = ages(UpdateAlgorithm::Periodic, 10.0, 4);
    for (second, ages) in ages.iter().enumerate() {
        assert_eq!(*ages, vec![(second % 10) as f64; 4]);
    }
}

#[test]
fn continuous_news_changes_one_after_the_other_once_a_phase_each() {
    let ages = ages(UpdateAlgorithm::Continuous, 8.0, 4);
    for place in 0..4 {
        let of_one: Vec<f64> = ages.iter().skip(8).map(|ages| ages[place]).collect();
        let fresh: Vec<usize> = (0..of_one.len()).filter(|at| of_one[*at] == 0.0).collect();
        assert!(fresh.windows(2).all(|two| two[1] - two[0] == 8));
        assert!(of_one.iter().all(|age| *age < 8.0));
    }
    // At any time one is fresh, one about a phase old.
    let oldest = |ages: &Vec<f64>| ages.iter().copied().fold(0.0, f64::max);
    assert!(ages.iter().skip(8).all(|ages| oldest(ages) >= 6.0));
}

#[test]
fn news_takes_effect_at_once_without_a_phase() {
    for update in [UpdateAlgorithm::Periodic, UpdateAlgorithm::Continuous] {
        let ages = ages(update, 0.0, 3);
        assert!(ages.iter().flatten().all(|age| *age == 0.0));
    }
}

#[test]
fn stated_load_of_a_response_holds_for_a_phase() {
    let mut board = Board::new(NewsSettings {
        update: UpdateAlgorithm::OnAccess,
        phase: 3.0,
    });
    let heard = |jobs| NodeNews {
        weight: 1,
        jobs,
        load: 0.5,
    };
    let jobs = |board: &Board| -> Vec<f64> { board.posted().iter().map(|n| n.jobs).collect() };
    board.heard(0.0, &[heard(1.0), heard(2.0)]);
    board.heard(4.0, &[heard(3.0), heard(4.0)]);
    assert_eq!(jobs(&board), [3.0, 4.0]);
    assert!(board.accessed(4.5, 0, Some(9.0), None));
    board.heard(5.0, &[heard(5.0), heard(6.0)]);
    assert_eq!(jobs(&board), [9.0, 6.0]);
    assert_eq!(board.posted()[0].load, 0.5);
    board.heard(7.5, &[heard(7.0), heard(8.0)]);
    assert_eq!(jobs(&board), [7.0, 8.0]);
    assert!(!board.accessed(8.0, 0, None, None), "it told nothing");
    assert!(!board.accessed(8.0, 7, Some(1.0), None), "nobody's place");
    assert!(board.accessed(8.0, 1, None, Some(2.0)));
    // Choices are not made anew with every answer of a busy cluster, but what they told is there.
    assert!(!board.accessed(8.001, 0, Some(11.0), None));
    assert_eq!(jobs(&board), [11.0, 8.0]);
    assert!(board.accessed(8.03, 1, Some(12.0), None));
}

#[test]
fn joining_and_leaving_nodes_are_posted_at_once() {
    for update in [
        UpdateAlgorithm::Periodic,
        UpdateAlgorithm::Continuous,
        UpdateAlgorithm::OnAccess,
    ] {
        let mut board = Board::new(NewsSettings {
            update,
            phase: 60.0,
        });
        let news = |weight, jobs| NodeNews {
            weight,
            jobs,
            load: 0.0,
        };
        board.heard(0.0, &[news(1, 1.0), news(1, 1.0)]);
        board.accessed(0.0, 0, Some(1.0), None);
        assert!(board.heard(1.0, &[news(0, 2.0), news(1, 2.0)]));
        assert_eq!(board.posted(), [news(0, 2.0), news(1, 1.0)]);
        assert!(board.heard(2.0, &[news(1, 3.0), news(1, 3.0), news(1, 3.0)]));
        assert_eq!(board.posted(), [news(1, 3.0), news(1, 1.0), news(1, 3.0)]);
        assert!(board.heard(3.0, &[news(1, 4.0)]));
        assert_eq!(board.posted().len(), 1);
    }
}
