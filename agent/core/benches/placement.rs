//! Cost of a greedy placement, and of a whole plan.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{collections::BTreeMap, hint::black_box};

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

criterion_group!(benches, place);
criterion_main!(benches);
