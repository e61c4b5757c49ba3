//! `vectors/observations.json`: a dispatcher's observation of a node as a line; Lua's must be the same.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test observation_vectors` writes it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::{
    Seconds,
    dispatch::{Decisions, Observed},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use vectors::compare;

/// Events, what the dispatcher knows besides, and the resulting line.
fn case(events: &[Value], besides: Option<(Decisions, u64)>) -> Value {
    let mut observed = Observed::default();
    let (mut answers, mut left, mut failures) = (0, 0, 0);
    for event in events {
        let number = |at: usize| event[at].as_f64().unwrap();
        match event[0].as_str().unwrap() {
            "answered" => {
                observed.answered(number(1), number(2));
                answers += 1;
            }
            "left" => {
                observed.left(number(1));
                left += 1;
            }
            _ => {
                observed.failed();
                failures += 1;
            }
        }
    }
    if let Some((decisions, jobs)) = besides {
        observed = observed.with(decisions, jobs);
    }
    let text = observed.text();
    // The reader takes what the writer wrote.
    let read = Observed::parse(&text).unwrap_or_else(|| panic!("{text} cannot be read"));
    assert_eq!(read.text(), text);
    let (delays, ages) = (read.delays().unwrap(), read.left_ages().unwrap());
    assert_eq!(
        (delays.count(), ages.count(), read.failures()),
        (answers, left, failures)
    );
    let jobs = besides.map(|(_, jobs)| jobs);
    assert_eq!(read.jobs(), jobs.map(|jobs| jobs as f64));
    let decisions = besides.map(|(decisions, _)| decisions).unwrap_or_default();
    json!({ "events": events, "asked": decisions.asked, "refused": decisions.refused, "jobs": jobs, "text": text })
}

#[test]
fn observation_lines_match_vectors() {
    let mut random = SmallRng::seed_from_u64(15);
    let slow_one = [
        vec![json!(["answered", 0.5, 1]); 100],
        vec![json!(["answered", 60, 1])],
    ];
    let mut cases = vec![case(&[], None), case(&slow_one.concat(), None)];
    // About the ends of the first bucket and of the last one that has an end, 22.6 s.
    for seconds in [
        0.0, 0.00099, 0.00101, 0.0012, 22.6, 22.7, 27.1, 27.3, 86_000.0,
    ] {
        let events = [json!(["answered", seconds, 80]), json!(["left", seconds])];
        cases.push(case(&events, None));
    }
    for _ in 0..20 {
        let events: Vec<Value> = (0..random.random_range(1..40))
            .map(|_| {
                let seconds = 10f64.powf(random.random_range(-4.0..3.0));
                match random.random_range(0..5) {
                    0 => json!(["failed"]),
                    1 => json!(["left", seconds]),
                    _ => json!(["answered", seconds, random.random_range(0..1000)]),
                }
            })
            .collect();
        let asked = random.random_range(0..1_000_000_000);
        let refused = random.random_range(0..=asked);
        let jobs = random.random_range(0..1000);
        cases.push(case(&events, Some((Decisions { asked, refused }, jobs))));
    }
    let what = "the line that a dispatcher tells of a node, after these events: [answered, delay in s, items], [left, age in s], [failed]; and its decisions for all nodes, and its requests in this one (null: unknown)";
    compare("observations.json", what, cases);
}

#[test]
fn delay_above_the_last_bucket_survives_parsing() {
    for version in [
        "1 101 110.000000 0 101 35:100,56:1",
        "2 101 110.000000 0 101 35:100,56:1 -",
        "3 101 110.000000 0 101 35:100,56:1 - 101 0 0",
    ] {
        let delays = Observed::parse(version).unwrap().delays().unwrap();
        assert_eq!(delays.count(), 101);
        let last = delays.upper_bounds().last().unwrap();
        assert_eq!(
            (delays.counts().last(), *last > 22.0 && *last < 23.0),
            (Some(&1), true)
        );
        assert_eq!(delays.within(Seconds(1.0)), 100.0);
    }
}

#[test]
fn hostile_lines_are_refused() {
    for line in [
        "",
        "x",
        "3 0 0 0 0 - -",
        "1 0 0 0 0 - -",
        "2 0 0 0 0 -",
        "2 1 0 0 0 - -",
        "2 1 nan 0 0 0:1 -",
        "2 1 -1 0 0 0:1 -",
        "2 1 1e300 0 0 0:1 -",
        "2 1 1e14 0 0 0:1 -",
        "2 1 1e14 0 0 56:1 -",
        "2 100 0.001 0 0 31:100 -",
        "2 1 0.001 0 1e14 0:1 -",
        "2 1 0 -1 0 0:1 -",
        "2 1 0 0 inf 0:1 -",
        "2 1 30 0 0 57:1 -",
        "2 1 0 0 0 0:x -",
        "2 1 0 0 0 0:1 57:1",
        "2 1 0 0 0 0:1 0:-1",
        "2 1 0 0 0 0:1 - more",
        "2 18446744073709551615 0 0 0 0:18446744073709551615 -",
        "2 0 0 0 0 - - 0 0 -",
        "3 0 0 0 0 - - 0 -",
        "3 0 0 0 0 - - 3 4 -",
        "3 0 0 0 0 - - 3 -1 -",
        "3 0 0 0 0 - - nan 0 -",
        "3 0 0 0 0 - - 18446744073709551615 0 -",
        "3 0 0 0 0 - - - 0 0",
        "3 0 0 0 0 - - 0 0 -1",
        "3 0 0 0 0 - - 0 0 1e3",
        "3 0 0 0 0 - - 0 0 0 more",
        "4 0 0 0 0 - - 0 0 -",
    ] {
        assert_eq!(Observed::parse(line), None, "{line}");
    }
    assert!(Observed::parse("1 0 0.000000 0 0 -").is_some());
    assert!(Observed::parse("2 1 30.5 0 80 56:1 56:1").is_some());
}
