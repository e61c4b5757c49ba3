//! Control quality on simulated plants: overshoot, settling, no limit cycle, with one tuning.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod plants;

use plants::{ArxPlant, FifoNode, histogram, observation, settings};
use plimsoll_core::*;

/// Largest of the series after the first time it was at the target.
fn overshoot(series: &[f64], target: f64) -> f64 {
    let reached = series
        .iter()
        .position(|s| *s >= target)
        .unwrap_or(series.len());
    series[reached..]
        .iter()
        .fold(0.0f64, |most, s| most.max(s / target - 1.0))
}

/// Periods until the series stays within `band` of the target.
fn settling(series: &[f64], target: f64, band: f64) -> usize {
    series
        .iter()
        .rposition(|s| (s / target - 1.0).abs() > band)
        .map_or(0, |last| last + 1)
}

/// Half the peak-to-peak of the last third, over the target.
fn amplitude(series: &[f64], target: f64) -> f64 {
    let tail = &series[series.len() * 2 / 3..];
    let most = tail.iter().fold(f64::MIN, |a, b| a.max(*b));
    let least = tail.iter().fold(f64::MAX, |a, b| a.min(*b));
    (most - least) / 2.0 / target
}

fn run_arx(plant: &mut ArxPlant, controller: &mut NodeController, periods: usize) -> Vec<f64> {
    (0..periods)
        .map(|_| {
            let (delay, seen) = plant.step(controller.decision().bound.get());
            controller.step(Some(&seen));
            delay
        })
        .collect()
}

#[test]
fn arx_plants_settle_without_overshoot_or_limit_cycle() {
    // Shapes: first order slow, Chronos eq. 4, Chronos-C eq. 3, underdamped; each with dead time 0 and 1.
    let shapes = [
        ("overdamped", [0.7, 0.0], [1.0, 0.0]),
        ("chronos eq. 4", [0.507, -0.089], [0.115, 0.009]),
        ("chronos-c eq. 3", [-0.0228, -0.1371], [0.0179, 0.0084]),
        ("underdamped", [0.6, -0.5], [1.0, 0.0]),
    ];
    for (name, a, b) in shapes {
        for dead in [0, 1] {
            for sla_delay in [0.001, 0.1, 1.0] {
                let target = 0.9 * sla_delay;
                let gain = (b[0] + b[1]) / (1.0 - a[0] - a[1]);
                // Scale so that the right bound is 100, and start at a fifth of it.
                let b = b.map(|b| b / gain * target / 100.0);
                let mut plant = ArxPlant::new(a, b, dead, 1.0, 20.0);
                let mut controller =
                    NodeController::new(settings(sla_delay, Objective::Mean, 20.0)).unwrap();
                let series = run_arx(&mut plant, &mut controller, 90);
                let case = format!("{name}, dead time {dead}, SLA {sla_delay} s: {series:.4?}");
                assert!(overshoot(&series, target) < 0.2, "overshoot: {case}");
                assert!(settling(&series, target, 0.1) <= 25, "settling: {case}");
                assert!(amplitude(&series, target) < 0.03, "limit cycle: {case}");
            }
        }
    }
}

#[test]
fn a_tenfold_change_of_service_time_is_absorbed_without_retuning() {
    for factor in [10.0, 0.1] {
        let mut node = FifoNode::new(8, 0.02, 2_000.0, 7);
        let mut controller =
            NodeController::new(settings(1.0, Objective::Quantile(0.95), 64.0)).unwrap();
        let mut bounds = Vec::new();
        for period in 0..160 {
            if period == 60 {
                node.service *= factor;
                node.arrivals_per_second /= factor;
            }
            let seen = node.period(1.0, controller.decision().bound_jobs);
            bounds.push(controller.step(Some(&seen)).bound.get());
        }
        let ideal_before = 0.9 * 8.0 / 0.02;
        let ideal_after = ideal_before / factor;
        assert!(
            (bounds[59] / ideal_before - 1.0).abs() < 0.15,
            "{factor}: {bounds:.0?}"
        );
        assert!(
            (bounds[159] / ideal_after - 1.0).abs() < 0.2,
            "{factor}: {bounds:.0?}"
        );
        assert!(
            amplitude(&bounds, ideal_after) < 0.15,
            "{factor}: {bounds:.0?}"
        );
    }
}

#[test]
fn one_tuning_holds_the_tail_from_1_ms_to_1_s() {
    for sla_delay in [0.001f64, 0.01, 0.1, 1.0] {
        // The same node in other units: 8 workers, 80 ms of work per 1 s of SLA, twice the demand.
        let service = 0.08 * sla_delay;
        let period = sla_delay.max(0.05);
        let mut node = FifoNode::new(8, service, 2.0 * 8.0 / service, 3);
        let mut controller =
            NodeController::new(settings(sla_delay, Objective::Quantile(0.95), 32.0)).unwrap();
        let (mut timely, mut all) = (0u64, 0u64);
        let mut p95 = Vec::new();
        for k in 0..60 {
            let seen = node.period(period, controller.decision().bound_jobs);
            if k >= 10 {
                let late = seen.delays.count() - within(&seen, sla_delay);
                timely += seen.delays.count() - late;
                all += seen.delays.count();
                p95.push(seen.delays.quantile(0.95).unwrap().get());
            }
            controller.step(Some(&seen));
        }
        let capacity = node.capacity_per_second() * 50.0 * period;
        assert!(
            timely as f64 > 0.97 * capacity,
            "SLA {sla_delay}: {timely} of {capacity}, {all} in all"
        );
        assert!(
            amplitude(&p95, 0.9 * sla_delay) < 0.2,
            "SLA {sla_delay}: {p95:.4?}"
        );
    }
}

fn within(seen: &Observation, limit: f64) -> u64 {
    let bounds = seen.delays.upper_bounds();
    let upto = bounds.partition_point(|b| *b <= limit * 1.0001);
    seen.delays.counts()[..upto].iter().sum()
}

#[test]
fn a_burst_after_light_load_stays_within_the_sla() {
    let mut node = FifoNode::new(8, 0.08, 60.0, 11);
    let mut controller =
        NodeController::new(settings(1.0, Objective::Quantile(0.95), 64.0)).unwrap();
    let mut worst_mean = 0.0f64;
    for period in 0..200 {
        if period == 120 {
            node.arrivals_per_second = 400.0;
        }
        let seen = node.period(1.0, controller.decision().bound_jobs);
        worst_mean = worst_mean.max(seen.delays.mean().map_or(0.0, Seconds::get));
        let decision = controller.step(Some(&seen));
        if period == 119 {
            assert!(
                decision.bound.get() <= 64.0 + 1e-9,
                "wound up: {decision:?}"
            );
        }
    }
    assert!(worst_mean < 1.0, "{worst_mean}");
    assert!(
        (controller.decision().bound.get() - 90.0).abs() < 15.0,
        "{:?}",
        controller.decision()
    );
}

#[test]
fn a_slow_node_gets_a_fifth_of_the_bound() {
    let bound_of = |service: f64| {
        let mut node = FifoNode::new(8, service, 400.0, 5);
        let mut controller =
            NodeController::new(settings(1.0, Objective::Quantile(0.95), 64.0)).unwrap();
        for _ in 0..80 {
            let seen = node.period(1.0, controller.decision().bound_jobs);
            controller.step(Some(&seen));
        }
        controller.decision().bound.get()
    };
    let (fast, slow) = (bound_of(0.08), bound_of(0.4));
    assert!((slow / fast - 0.2).abs() < 0.06, "fast {fast}, slow {slow}");
}

#[test]
fn chronos_c_eq_5_taken_literally_overshoots_and_velocity_form_does_not() {
    let worst = |form| {
        let mut with_form = settings(1.0, Objective::Mean, 20.0);
        with_form.law = Law::Pi {
            gains: PiGains::default(),
            form,
        };
        let mut controller = NodeController::new(with_form).unwrap();
        let mut plant = ArxPlant::new([0.5, 0.0], [0.0045, 0.0], 1, 1.0, 20.0);
        let series = run_arx(&mut plant, &mut controller, 120);
        (overshoot(&series, 0.9), amplitude(&series, 0.9))
    };
    let (velocity, literal) = (worst(PiForm::Velocity), worst(PiForm::DoubleIntegrating));
    assert!(velocity.0 < 0.2 && velocity.1 < 0.03, "{velocity:?}");
    assert!(literal.0 > 2.0 * velocity.0.max(0.05), "{literal:?}");
}

fn node_of_64() -> NodeController {
    NodeController::new(settings(1.0, Objective::Quantile(0.95), 64.0)).unwrap()
}

#[test]
fn clients_that_leave_early_do_not_lower_the_bound() {
    for objective in [Objective::Quantile(0.95), Objective::Mean] {
        let mut node = FifoNode::new(8, 0.02, 200.0, 5);
        let mut controller = NodeController::new(settings(1.0, objective, 64.0)).unwrap();
        for _ in 0..30 {
            let mut seen = node.period(1.0, controller.decision().bound_jobs);
            // Beside 200 a second that are answered well; two of them are there at any time.
            seen.left = Some(histogram(&[0.01; 220]));
            seen.jobs = seen.jobs.map(|jobs| jobs + 2.0);
            let decision = controller.step(Some(&seen));
            assert!(decision.bound.get() >= 64.0, "{decision:?}");
        }
    }
}

#[test]
fn hung_node_is_throttled_by_the_ages_of_leaving_clients() {
    for objective in [Objective::Quantile(0.95), Objective::Mean] {
        let mut controller = NodeController::new(settings(1.0, objective, 64.0)).unwrap();
        let mut seen = observation(1.0, &[0.2; 200], 0.0);
        // A log tells neither of jobs nor of what is unfinished.
        (seen.jobs, seen.peak_jobs) = (None, None);
        controller.step(Some(&seen));
        let before = controller.decision().bound.get();
        seen.delays = histogram(&[]);
        for second in 0..40 {
            let leaving = if second < 5 {
                0.0
            } else {
                controller.decision().bound_jobs / 5.0
            };
            seen.left = Some(histogram(&vec![5.0; leaving.ceil() as usize]));
            controller.step(Some(&seen));
        }
        let decision = controller.decision();
        assert!(decision.bound.get() < 0.1 * before, "{decision:?}");
    }
}

#[test]
fn hung_node_is_throttled_even_if_clients_leave_early() {
    let mut controller = node_of_64();
    controller.step(Some(&observation(1.0, &[0.2; 200], 40.0)));
    let mut seen = observation(1.0, &[], 40.0);
    seen.left = Some(histogram(&[0.5; 80]));
    for _ in 0..10 {
        controller.step(Some(&seen));
    }
    let decision = controller.decision();
    assert_eq!(decision.bound, Cost(1.0), "{decision:?}");
}

#[test]
fn late_leavers_count_beside_answered_requests() {
    let mut controller = node_of_64();
    let mut seen = observation(1.0, &[0.3; 90], 40.0);
    seen.left = Some(histogram(&[2.0; 10]));
    let decision = controller.step(Some(&seen));
    // A tenth was late, so the 95th percentile is.
    let measured = decision.measured_delay.unwrap().get();
    assert!((1.8..2.2).contains(&measured), "{decision:?}");
}
