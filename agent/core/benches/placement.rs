//! Time of a greedy placement, of a whole plan, and of one step of the keeper.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{collections::BTreeMap, hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::placement::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

fn place(c: &mut Criterion) {
    let mut random = SmallRng::seed_from_u64(1);
    let loads: Vec<f64> = (0..10_000)
        .map(|_| -(1.0 - random.random::<f64>()).ln())
        .collect();
    let capacities = vec![1.0; 100];
    c.bench_function("greedy placement of 10,000 object sets on 100 nodes", |b| {
        b.iter(|| black_box(greedy(black_box(&loads), &capacities)));
    });
    let mut keeper = Keeper::new(Table::new(|_| 0));
    let name = |i: usize| -> Box<str> { format!("set{i}").into() };
    let named: Vec<Change> = (0..loads.len()).map(|i| Change::Name(name(i), 0)).collect();
    keeper.begin(&named).unwrap();
    let asked: Vec<SetLoad> = loads
        .iter()
        .enumerate()
        .map(|(i, load)| SetLoad {
            set: ObjectSet::Named(name(i)),
            load: *load,
            noise: 0.0,
        })
        .collect();
    let nodes: BTreeMap<NodeId, f64> = (0..100).map(|node| (node, 1.0)).collect();
    c.bench_function("plan for 10,000 object sets on one of 100 nodes", |b| {
        b.iter(|| black_box(Planner::default().plan(keeper.table(), black_box(&asked), &nodes)));
    });
}

/// 10,000 object sets with entries of their own on ten nodes, 20 dispatchers.
fn keep(c: &mut Criterion) {
    let mut random = SmallRng::seed_from_u64(1);
    let name = |i: u32| ObjectSet::Named(format!("set{i}").into());
    let rests =
        (0..RESTS).map(|rest| (ObjectSet::Rest(rest), State::Settled(u32::from(rest) % 10)));
    let names = (0..10_000).map(|i| (name(i), State::Settled(i % 10)));
    let table = Table::from_entries(1, rests.chain(names)).unwrap();
    let settings = StewardSettings {
        plan: PlanSettings::default(),
        moves: true,
        request_limit: Duration::from_secs(60),
        lease: Duration::from_secs(10),
    };
    let dispatchers = (1..=20).map(|id| Heard {
        id,
        age: Duration::ZERO,
        version: 1,
        joined: 1,
        busy: Vec::new(),
    });
    let node = NodeNow {
        capacity: 1.0,
        mean_cost: 1.0,
    };
    let quiet = Reading {
        dispatchers: dispatchers.collect(),
        ..Reading::default()
    };
    let loads = (0..10_000).map(|i| (name(i), 50.0 + random.random::<f64>()));
    let period = Reading {
        nodes: Some((0..10).map(|id| (id, node)).collect()),
        loads: Some(loads.collect()),
        ..quiet.clone()
    };
    let mut steward = Steward::new(table, settings);
    let mut now = Duration::ZERO;
    for (what, reading) in [
        ("while something moves", &quiet),
        ("once a period", &period),
    ] {
        let title = format!("a look at 20 dispatchers and 10,000 object sets, {what}");
        c.bench_function(&title, |b| {
            b.iter(|| {
                now += Duration::from_secs(1);
                black_box(steward.step(now, reading))
            });
        });
    }
}

criterion_group!(benches, place, keep);
criterion_main!(benches);
