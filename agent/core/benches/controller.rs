//! Cost of one controller step.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::*;

fn step(c: &mut Criterion) {
    let settings = Settings {
        sla: Sla {
            delay: Seconds(1.0),
            settling: Seconds(10.0),
            objective: Objective::Quantile(0.95),
            set_point: 0.9,
        },
        limits: BoundLimits {
            min: Cost(8.0),
            max: Cost(1e6),
            nominal: Some(Cost(64.0)),
        },
        law: Law::Pi {
            gains: PiGains::default(),
            form: PiForm::Velocity,
        },
        mpl: false,
        mode: ServiceMode::Enforce,
        self_tuned: false,
        rules: Rules::default(),
    };
    let mut controller = NodeController::new(settings).unwrap();
    let mut delays = DelayHistogram::empty(DelayHistogram::fine_bounds()).unwrap();
    for i in 0..500 {
        delays.record(Seconds(0.5 + f64::from(i) / 1000.0));
    }
    let observation = Observation {
        failed: 3,
        finished_cost: Some(Cost(40_000.0)),
        jobs: Some(60.0),
        peak_jobs: Some(64.0),
        oldest_age: Some(Seconds(0.9)),
        ..Observation::new(Seconds(1.0), delays)
    };
    c.bench_function("controller step", |b| {
        b.iter(|| black_box(controller.step(Some(black_box(&observation)))));
    });
}

criterion_group!(benches, step);
criterion_main!(benches);
