//! The shed fraction: its limits, and the loop closed over simulated nodes, agents and a proxy.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod plants;

use plants::{
    cluster::{Cluster, Load, Second},
    observation,
};
use plimsoll_core::*;
use proptest::prelude::*;

fn flow(admitted: f64, ended: f64, backlog: f64, bound: f64) -> Flow {
    Flow {
        admitted,
        ended,
        backlog,
        bound,
    }
}

proptest! {
    #[test]
    fn shed_fraction_is_in_range_for_any_flow(
        flows in prop::collection::vec([prop::num::f64::ANY; 4], 1..20), shed: f64, seconds: f64,
    ) {
        let mut shedder = Shedder::default();
        for [admitted, ended, backlog, bound] in flows {
            let fraction = shedder.step(&flow(admitted, ended, backlog, bound), shed, seconds);
            prop_assert!((0.0..=0.98).contains(&fraction), "{fraction}");
        }
    }

    #[test]
    fn shed_fraction_grows_with_backlog(
        ended in 1.0..1e4f64, over in 0.1..10.0f64, backlog in 0.0..1e4f64, more in 0.0..1e4f64, shed in 0.0..0.98f64,
    ) {
        let at = |backlog| Shedder::default().step(&flow(over * ended, ended, backlog, 1e3), shed, 1.0);
        prop_assert!(at(backlog + more) >= at(backlog));
    }

    #[test]
    fn nothing_is_shed_while_the_backlog_is_low(load in 0.0..1e4f64, backlog in 0.0..0.5f64) {
        let mut shedder = Shedder::default();
        for _ in 0..5 {
            prop_assert_eq!(shedder.step(&flow(load, load, backlog * 1e3, 1e3), 0.0, 1.0), 0.0);
        }
    }

    #[test]
    fn agents_with_the_same_flow_agree(
        first in prop::array::uniform3(0.0..1e4f64), second in prop::array::uniform3(0.0..1e4f64), now in prop::array::uniform3(1.0..1e3f64), shed in 0.0..0.98f64,
    ) {
        let [mut one, mut other] = [first, second].map(|[admitted, ended, backlog]| {
            let mut shedder = Shedder::default();
            shedder.step(&flow(admitted, ended, backlog, 1e3), 0.5, 1.0);
            shedder
        });
        let [admitted, ended, backlog] = now;
        let now = flow(admitted, ended, backlog, 1e3);
        let apart = (0..16).map(|_| (one.step(&now, shed, 1.0) - other.step(&now, shed, 1.0)).abs());
        prop_assert!(apart.last().unwrap() < 1e-3 + 0.01);
    }
}

#[test]
fn admitted_cost_is_ended_cost_plus_backlog_growth() {
    let mut meter = FlowMeter::default();
    let mut admitted = 0.0;
    for (ended, jobs) in [(10, 5.0), (20, 25.0), (40, 5.0), (0, 5.0)] {
        let flow = meter
            .measure(&observation(0.5, &vec![0.1; ended], jobs), 3.0, 100.0)
            .unwrap();
        assert_eq!((flow.backlog, flow.bound), (3.0 * jobs, 100.0));
        admitted += 0.5 * flow.admitted;
    }
    assert_eq!(admitted, 3.0 * 70.0);
    let mut unknown = observation(1.0, &[0.2; 50], 0.0);
    unknown.jobs = None;
    let flow = FlowMeter::default().measure(&unknown, 1.0, 100.0).unwrap();
    assert!((flow.backlog - 10.0).abs() < 1e-9, "Little: {flow:?}");
    assert_eq!(flow.admitted, flow.ended);
    assert_eq!(
        FlowMeter::default().measure(&observation(0.0, &[], 1.0), 1.0, 1.0),
        None
    );
}

#[test]
fn flow_counts_failures_and_given_costs_and_sums_over_nodes() {
    let mut seen = observation(0.5, &[0.1; 10], 4.0);
    seen.failed = 5;
    let measured = |seen: &Observation| FlowMeter::default().measure(seen, 2.0, 100.0);
    let by_mean = measured(&seen).unwrap();
    assert_eq!(by_mean, flow(60.0, 60.0, 8.0, 100.0));
    seen.finished_cost = Some(Cost(35.0));
    let by_cost = measured(&seen).unwrap();
    assert_eq!(by_cost, flow(90.0, 90.0, 8.0, 100.0));
    let sum: Flow = [by_mean, by_cost].into_iter().sum();
    assert_eq!(sum, flow(150.0, 150.0, 16.0, 200.0));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        seen.period = Seconds(seconds);
        assert_eq!(measured(&seen), None, "{seconds}");
    }
}

#[test]
fn backlog_before_a_gap_does_not_count_as_shrunk() {
    let mut meter = FlowMeter::default();
    let mut step = |ended: usize, jobs: Option<f64>| {
        let mut seen = observation(1.0, &vec![0.1; ended], 0.0);
        seen.jobs = jobs;
        meter.measure(&seen, 1.0, 100.0).unwrap().admitted
    };
    assert_eq!(step(10, Some(50.0)), 10.0);
    assert_eq!(step(10, Some(45.0)), 5.0);
    // More left than ended: nothing was admitted.
    assert_eq!(step(10, Some(5.0)), 0.0);
    assert_eq!(step(10, None), 10.0);
    assert_eq!(step(10, Some(90.0)), 10.0);
}

#[test]
fn shed_fraction_closes_part_of_the_gap_to_the_target_backlog() {
    let first = |flow: Flow, shed, seconds| Shedder::default().step(&flow, shed, seconds);
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
    // At the target the throughput passes, beyond it less, and never under a third of it.
    near(first(flow(200.0, 100.0, 800.0, 1e3), 0.0, 1.0), 0.5);
    near(first(flow(200.0, 100.0, 900.0, 1e3), 0.0, 1.0), 0.65);
    near(first(flow(200.0, 100.0, 900.0, 1e3), 0.0, 2.0), 0.575);
    near(first(flow(200.0, 100.0, 1800.0, 1e3), 0.0, 1.0), 0.85);
    // Below it more passes, by the bound or by the throughput.
    near(first(flow(500.0, 100.0, 300.0, 1e3), 0.0, 1.0), 0.5);
    near(first(flow(4e3, 2e3, 300.0, 1e3), 0.0, 1.0), 0.4375);
    near(first(flow(100.0, 100.0, 800.0, 1e3), 0.0, 1.0), 0.0);
    near(first(flow(100.5, 100.0, 800.0, 1e3), 0.0, 1.0), 0.0);
    // What was admitted is what passed of the load.
    near(first(flow(100.0, 100.0, 800.0, 1e3), 0.5, 1.0), 0.5);
    let mut shedder = Shedder::default();
    near(shedder.step(&flow(200.0, 100.0, 800.0, 1e3), 0.0, 1.0), 0.5);
    near(shedder.step(&flow(150.0, 100.0, 800.0, 1e3), 0.5, 1.0), 0.5);
}

#[test]
fn shed_fraction_follows_small_changes_of_the_load_by_half_and_steps_at_once() {
    let after = |admitted: f64| {
        let mut shedder = Shedder::default();
        shedder.step(&flow(200.0, 100.0, 800.0, 1e3), 0.0, 1.0);
        let shed = shedder.step(&flow(admitted, 100.0, 800.0, 1e3), 0.0, 1.0);
        100.0 / (1.0 - shed)
    };
    for (admitted, offered) in [
        (240.0, 220.0),
        (260.0, 230.0),
        (140.0, 170.0),
        (300.0, 300.0),
        (130.0, 130.0),
    ] {
        let found = after(admitted);
        assert!((found - offered).abs() < 1e-9, "{admitted}: {found}");
    }
}

#[test]
fn without_a_sound_flow_the_fraction_in_force_stays() {
    let sound = flow(200.0, 100.0, 900.0, 1e3);
    let bad = flow(f64::NAN, 100.0, 900.0, 1e3);
    let unbound = flow(200.0, 100.0, 900.0, 0.0);
    for (flow, seconds) in [(bad, 1.0), (unbound, 1.0), (sound, 0.0)] {
        for (shed, kept) in [(0.0, 0.0), (0.25, 0.25), (1.0, 0.98), (-1.0, 0.0)] {
            let found = Shedder::default().step(&flow, shed, seconds);
            assert!((found - kept).abs() < 1e-9, "{flow:?} {shed}: {found}");
        }
    }
}

/// Five nodes of 100 requests a second, agents that step each second, a proxy that asks twice in it.
fn cluster(seed: u64) -> Cluster {
    Cluster::new(&[0.08; 5], 8, 1.0, 64.0, seed)
}

fn run(cluster: &mut Cluster, seconds: usize) -> Vec<Second> {
    (0..seconds).map(|_| cluster.second()).collect()
}

fn mean(seconds: &[Second], figure: impl Fn(&Second) -> f64) -> f64 {
    seconds.iter().map(figure).sum::<f64>() / seconds.len() as f64
}

/// Judged from 5 s after the burst on: throughput, timeliness, backlog near the bound, no swinging.
fn assert_held(case: &str, capacity: f64, burst: &[Second]) {
    let settled = &burst[5..];
    let case = format!("{case}: {settled:.2?}");
    let finished = mean(settled, |s| s.finished as f64) / capacity;
    let timely = mean(settled, |s| s.timely as f64) / capacity;
    let backlog = mean(settled, |s| s.backlog / s.bound);
    assert!(finished > 0.95, "finished {finished:.3}, {case}");
    assert!(timely > 0.8, "timely {timely:.3}, {case}");
    assert!(
        (0.5..1.4).contains(&backlog),
        "backlog {backlog:.3} of the bound, {case}"
    );
    let tail = &settled[settled.len() / 2..];
    let middle = mean(tail, |s| s.shed);
    let swing = mean(tail, |s| (s.shed - middle).powi(2)).sqrt();
    assert!(
        swing < 0.06,
        "swings by {swing:.3} around {middle:.3}, {case}"
    );
}

#[test]
fn open_loop_burst_is_held_at_the_bound() {
    for seed in 0..3 {
        for (before, over) in [(0.8, 1.5), (0.9, 2.0), (0.95, 3.0)] {
            let mut cluster = cluster(seed);
            let capacity = cluster.capacity();
            cluster.begin(Load::Open(before * capacity));
            let quiet = run(&mut cluster, 30);
            assert!(quiet[5..].iter().all(|s| s.shed == 0.0), "{quiet:?}");
            cluster.load = Load::Open(over * capacity);
            let burst = run(&mut cluster, 45);
            assert_held(&format!("{before} to {over}"), capacity, &burst);
            let shed = mean(&burst[20..], |s| s.shed);
            assert!(
                (shed - (1.0 - 1.0 / over)).abs() < 0.05,
                "{over}: sheds {shed}"
            );
            cluster.load = Load::Open(0.7 * capacity);
            let after = run(&mut cluster, 20);
            assert!(after[8..].iter().all(|s| s.shed == 0.0), "{after:.2?}");
        }
    }
}

#[test]
fn closed_loop_burst_is_held_at_the_bound() {
    for seed in 0..3 {
        for over in [1.5, 2.0, 3.0] {
            let mut cluster = cluster(seed);
            let capacity = cluster.capacity();
            let clients = (1.25 * over * capacity) as usize;
            cluster.begin(Load::Closed {
                clients,
                think: (3.5, 4.0),
            });
            run(&mut cluster, 20);
            cluster.load = Load::Closed {
                clients,
                think: (1.0, 1.5),
            };
            let burst = run(&mut cluster, 40);
            assert_held(&format!("{clients} clients"), capacity, &burst);
        }
    }
}

#[test]
fn shed_fraction_does_not_wind_up_if_not_applied() {
    let mut cluster = cluster(1);
    cluster.shedding = false;
    cluster.begin(Load::Open(0.8 * cluster.capacity()));
    run(&mut cluster, 20);
    let published = (0..20).map(|_| {
        cluster.second();
        cluster.published
    });
    assert!(published.into_iter().all(|shed| shed == 0.0));
}

#[test]
fn a_flow_with_a_value_that_cannot_be_is_not_sound() {
    let sound = [1.0, 0.0, 3.0, f64::MAX];
    let is_sound = |[admitted, ended, backlog, bound]: [f64; 4]| {
        flow(admitted, ended, backlog, bound).is_sound()
    };
    assert!(is_sound(sound));
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        for place in 0..sound.len() {
            let mut figures = sound;
            figures[place] = bad;
            assert!(!is_sound(figures), "{figures:?}");
        }
    }
}
