//! The multiprogramming level on plants with a known optimum.
#![allow(clippy::unwrap_used)]

mod plants;

use plants::settings;
use plimsoll_core::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Throughput in requests/s of a node with so many jobs; demand always fills the limit.
fn periods(curve: impl Fn(f64) -> f64, noise: f64, count: usize, seed: u64) -> Vec<(f64, Reason)> {
    let mut settings = settings(1.0, Objective::Quantile(0.95), 64.0);
    settings.mpl = true;
    let mut controller = NodeController::new(settings).unwrap();
    let mut random = SmallRng::seed_from_u64(seed);
    (0..count)
        .map(|_| {
            let jobs = controller.decision().bound_jobs.floor();
            let throughput = curve(jobs) * (1.0 + noise * (2.0 * random.random::<f64>() - 1.0));
            let delay = jobs / throughput;
            let seen = plants::observation(1.0, &vec![delay; throughput as usize], jobs);
            controller.step(Some(&seen));
            (jobs, controller.decision().reason)
        })
        .collect()
}

/// Eight workers, and each job above them slows all: thrashing.
fn thrashing(jobs: f64) -> f64 {
    jobs.min(8.0) * 50.0 / (1.0 + 0.02 * (jobs - 8.0).max(0.0))
}

/// A smooth peak at 20.
fn smooth(jobs: f64) -> f64 {
    400.0 * (jobs / 20.0) * (1.0 - jobs / 20.0).exp()
}

/// Throughput does not fall, but more jobs do not raise it either.
fn flat(jobs: f64) -> f64 {
    jobs.min(16.0) * 25.0
}

#[test]
fn mpl_reaches_95_percent_of_best_throughput_in_20_periods() {
    for (name, curve, best) in [
        ("thrashing", &thrashing as &dyn Fn(f64) -> f64, 400.0),
        ("smooth", &smooth, 400.0),
        ("flat", &flat, 400.0),
    ] {
        for seed in 1..=10 {
            let seen = periods(curve, 0.01, 80, seed);
            let settled: Vec<f64> = seen[20..].iter().map(|(jobs, _)| curve(*jobs)).collect();
            let mean = settled.iter().sum::<f64>() / settled.len() as f64;
            assert!(
                mean >= 0.95 * best,
                "{name}, seed {seed}: {mean} of {best}: {seen:?}"
            );
        }
    }
}

#[test]
fn fewer_jobs_are_preferred_at_equal_throughput() {
    let seen = periods(flat, 0.01, 120, 3);
    let jobs: f64 = seen[60..].iter().map(|(jobs, _)| jobs).sum::<f64>() / 60.0;
    // 64 would do as much, within the SLA.
    assert!((12.0..28.0).contains(&jobs), "{jobs}");
    assert!(seen[60..].iter().any(|(_, reason)| *reason == Reason::Mpl));
}

#[test]
fn mpl_follows_a_moving_peak() {
    let mut settings = settings(10.0, Objective::Quantile(0.95), 64.0);
    settings.mpl = true;
    let mut controller = NodeController::new(settings).unwrap();
    let mut random = SmallRng::seed_from_u64(5);
    let mut done = [0.0; 2];
    for period in 0..200 {
        let best = if period < 100 { 40.0 } else { 10.0 };
        let jobs = controller.decision().bound_jobs.floor();
        let curve = 400.0 * (jobs / best) * (1.0 - jobs / best).exp();
        let throughput = (curve * (1.0 + 0.01 * (2.0 * random.random::<f64>() - 1.0))).max(1.0);
        let seen = plants::observation(1.0, &vec![jobs / throughput; throughput as usize], jobs);
        controller.step(Some(&seen));
        if period % 100 >= 40 {
            done[period / 100] += curve / 60.0;
        }
    }
    assert!(done.iter().all(|done| *done >= 0.95 * 400.0), "{done:?}");
}

#[test]
fn lower_bound_of_the_delay_takes_precedence() {
    // More jobs do more, but the SLA holds only up to 30 of them.
    let curve = |jobs: f64| 100.0 * (1.0 + jobs).ln();
    let mut settings = settings(0.1, Objective::Mean, 64.0);
    settings.sla.set_point = 1.0;
    settings.mpl = true;
    let mut controller = NodeController::new(settings).unwrap();
    let mut late = 0;
    for period in 0..100 {
        let jobs = controller.decision().bound_jobs.floor();
        let throughput = curve(jobs);
        let delay = jobs / throughput;
        late += u32::from(period >= 40 && delay > 0.1);
        let seen = plants::observation(1.0, &vec![delay; throughput as usize], jobs);
        controller.step(Some(&seen));
    }
    assert!(late <= 6, "{late} of 60 periods over the SLA");
}

#[test]
fn low_demand_keeps_the_level() {
    let mut settings = settings(1.0, Objective::Quantile(0.95), 64.0);
    settings.mpl = true;
    let mut controller = NodeController::new(settings).unwrap();
    for _ in 0..100 {
        let seen = plants::observation(1.0, &vec![0.02; 200], 4.0);
        controller.step(Some(&seen));
    }
    assert_eq!(controller.decision().bound.get(), 64.0);
}

#[test]
fn a_best_level_of_two_jobs_is_found_from_far_above_and_from_one() {
    for nominal in [20.0, 1.0] {
        let mut settings = settings(1.0, Objective::Quantile(0.95), nominal);
        settings.mpl = true;
        settings.limits.min = Cost(1.0);
        let mut controller = NodeController::new(settings).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let mut done = Vec::new();
        for _ in 0..100 {
            let jobs = controller.decision().bound_jobs.floor();
            let throughput = 120.0 * jobs.min(5.0) / (1.0 + 0.6 * (jobs - 2.0).max(0.0));
            // A slot is empty now and then as the period ends.
            let present = if random.random::<f64>() < 0.8 {
                jobs
            } else {
                jobs - 1.0
            };
            let mut seen =
                plants::observation(1.0, &vec![jobs / throughput; throughput as usize], jobs);
            seen.jobs = Some(present);
            controller.step(Some(&seen));
            done.push(throughput);
        }
        let settled = &done[40..];
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        assert!(mean >= 0.85 * 240.0, "from {nominal}: {mean}: {done:?}");
    }
}
