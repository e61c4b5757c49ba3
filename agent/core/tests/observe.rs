//! Observe mode: a bound that is only reported winds neither down nor up, and is right once it is applied.
#![allow(clippy::unwrap_used, missing_docs)]

mod plants;

use plants::{FifoNode, observation, sla};
use plimsoll_core::*;

const SLA_SECONDS: f64 = 0.5;
/// Delay of an overloaded node.
const HOURS: usize = 2000;

fn settings(law: Law, mode: ServiceMode) -> Settings {
    let nominal = (law != Law::LoadLine).then_some(Cost(40.0));
    Settings {
        mode,
        sla: sla(SLA_SECONDS, Objective::Quantile(0.95)),
        limits: BoundLimits {
            nominal,
            ..BoundLimits::default()
        },
        law,
        mpl: false,
        self_tuned: false,
        rules: Rules::default(),
    }
}

const PI: Law = Law::Pi {
    gains: PiGains { kp: 0.25, ki: 1.0 },
    form: PiForm::Velocity,
};
const DOUBLE: Law = Law::Pi {
    gains: PiGains { kp: 0.25, ki: 1.0 },
    form: PiForm::DoubleIntegrating,
};
const LAWS: [Law; 6] = [
    Law::LoadLine,
    PI,
    DOUBLE,
    Law::InverseDelay,
    Law::Proportional { gain: 0.5 },
    Law::Fixed,
];

fn watching(law: Law) -> NodeController {
    NodeController::new(settings(law, ServiceMode::Observe)).unwrap()
}

/// 100 requests a second by four workers: 45 jobs take the target of 0.45 s.
fn node(seed: u64) -> FifoNode {
    FifoNode::new(4, 0.04, 50.0, seed)
}

/// Reported bounds while only a foreign limit of `limit` jobs refuses requests.
fn watch(
    node: &mut FifoNode,
    agent: &mut NodeController,
    load: f64,
    limit: f64,
    periods: usize,
) -> Vec<f64> {
    node.arrivals_per_second = load * node.capacity_per_second();
    let step = |_| {
        let seen = node.period(1.0, limit);
        agent.step(Some(&seen)).bound_jobs
    };
    (0..periods).map(step).collect()
}

fn range(bounds: &[f64]) -> (f64, f64) {
    let least = bounds.iter().copied().fold(f64::INFINITY, f64::min);
    (least, bounds.iter().copied().fold(0.0, f64::max))
}

#[test]
fn no_law_winds_down_in_hours_of_overload() {
    // Twice what is in time, for good: the proxy's own limit is too high.
    for law in LAWS {
        let (mut node, mut agent) = (node(3), watching(law));
        watch(&mut node, &mut agent, 0.5, 100.0, 30);
        let bounds = watch(&mut node, &mut agent, 1.3, 100.0, HOURS);
        let (early, late) = (range(&bounds[10..30]), range(&bounds[HOURS - 20..]));
        assert!(late.0 > 0.7 * early.0, "{law:?}: {early:?} {late:?}");
        assert!(late.1 < 1.4 * early.1, "{law:?}: {early:?} {late:?}");
        assert!(late.0 > 5.0, "{law:?}: {late:?}");
        assert!(late.1 <= 101.0, "{law:?}: {late:?}");
    }
}

#[test]
fn observed_bound_is_the_one_enforcing_would_begin_with() {
    let (mut watched, mut agent) = (node(5), watching(Law::LoadLine));
    watch(&mut watched, &mut agent, 0.5, 1e9, 30);
    let shown = watch(&mut watched, &mut agent, 1.3, 400.0, 60);
    let (mut obeyed, mut other) = (node(5), watching(Law::LoadLine));
    other
        .reconfigure(settings(Law::LoadLine, ServiceMode::Enforce))
        .unwrap();
    let mut held = Vec::new();
    for load in std::iter::repeat_n(0.5, 30).chain(std::iter::repeat_n(1.3, 60)) {
        obeyed.arrivals_per_second = load * obeyed.capacity_per_second();
        let seen = obeyed.period(1.0, other.decision().bound_jobs);
        held.push(other.step(Some(&seen)).bound_jobs);
    }
    let (shown, held) = (shown[59], held[89]);
    assert!((0.6..1.7).contains(&(shown / held)), "{shown} {held}");
}

#[test]
fn no_law_winds_up_in_hours_of_light_load() {
    for law in LAWS {
        let (mut node, mut agent) = (node(7), watching(law));
        watch(&mut node, &mut agent, 1.5, 400.0, 30);
        let bounds = watch(&mut node, &mut agent, 0.4, 400.0, HOURS);
        let (early, late) = (range(&bounds[100..120]), range(&bounds[HOURS - 20..]));
        assert!(late.1 < 1.3 * early.1, "{law:?}: {early:?} {late:?}");
        // That law has no memory: its bound is the nominal one times target over delay.
        let most = if law == Law::InverseDelay {
            500.0
        } else {
            100.0
        };
        assert!(late.1 < most, "{law:?}: {late:?}");
        assert!(late.0 > 0.7 * early.0, "{law:?}: {early:?} {late:?}");
    }
}

#[test]
fn passing_loads_leave_no_effect() {
    for law in LAWS {
        let (mut node, mut agent) = (node(11), watching(law));
        let mut seen = Vec::new();
        for _ in 0..60 {
            let over = watch(&mut node, &mut agent, 1.4, 120.0, 20);
            watch(&mut node, &mut agent, 0.5, 120.0, 20);
            seen.push(range(&over[15..]));
        }
        let (second, last) = (seen[1], seen[59]);
        assert!(last.0 > 0.6 * second.0, "{law:?}: {second:?} {last:?}");
        assert!(last.1 < 1.7 * second.1, "{law:?}: {second:?} {last:?}");
    }
}

#[test]
fn failures_stalls_and_a_late_source_cut_once() {
    for law in LAWS {
        let (mut node, mut agent) = (node(13), watching(law));
        watch(&mut node, &mut agent, 1.2, 60.0, 30);
        let whole = agent.decision().bound_jobs;
        let mut after = Vec::new();
        for turn in 0..200 {
            let mut seen = observation(1.0, &[], 20.0);
            seen.failed = if turn % 3 == 0 { 50 } else { 0 };
            after.push(agent.step(Some(&seen)).bound_jobs);
        }
        for _ in 0..200 {
            after.push(agent.step_late(Seconds(2.0), Some(20.0)).bound_jobs);
        }
        let (least, most) = range(&after);
        assert!(least >= 0.15 * whole, "{law:?}: {whole} {least}");
        assert!(most <= 2.0 * whole, "{law:?}: {whole} {most}");
    }
    // Before anything is known.
    let mut agent = watching(Law::LoadLine);
    let first = agent.step_late(Seconds(2.0), None).bound_jobs;
    for _ in 0..50 {
        assert_eq!(agent.step_late(Seconds(2.0), None).bound_jobs, first);
    }
}

#[test]
fn slower_node_gets_a_lower_observed_bound() {
    let (mut node, mut agent) = (node(17), watching(Law::LoadLine));
    watch(&mut node, &mut agent, 0.5, 200.0, 30);
    let whole = watch(&mut node, &mut agent, 1.3, 200.0, 60)[59];
    node.service *= 3.0;
    let slower = watch(&mut node, &mut agent, 1.3, 200.0, 120)[119];
    assert!(slower < 0.75 * whole, "{slower} {whole}");
    node.service /= 3.0;
    let again = watch(&mut node, &mut agent, 1.3, 200.0, 120)[119];
    assert!((0.7..1.4).contains(&(again / whole)), "{again} {whole}");
}

#[test]
fn bound_continues_across_mode_changes_and_sla_holds_at_once() {
    for law in [Law::LoadLine, PI] {
        let (mut node, mut agent) = (node(19), watching(law));
        watch(&mut node, &mut agent, 0.5, 1e9, 30);
        watch(&mut node, &mut agent, 1.3, 200.0, 300);
        let shown = agent.decision();
        agent
            .reconfigure(settings(law, ServiceMode::Enforce))
            .unwrap();
        assert_eq!(agent.decision(), shown, "{law:?}: nothing before a step");
        let mut bounds = vec![shown.bound_jobs];
        for _ in 0..30 {
            let seen = node.period(1.0, agent.decision().bound_jobs);
            bounds.push(agent.step(Some(&seen)).bound_jobs);
        }
        for (before, after) in bounds.iter().zip(&bounds[1..]).take(5) {
            let change = after / before;
            assert!((0.45..2.0).contains(&change), "{law:?}: {bounds:?}");
        }
        let seen = node.period(10.0, agent.decision().bound_jobs);
        let p95 = seen.delays.quantile(0.95).unwrap().get();
        assert!(p95 < 1.1 * SLA_SECONDS, "{law:?}: {p95} {bounds:?}");
        let held = agent.decision();
        agent
            .reconfigure(settings(law, ServiceMode::Observe))
            .unwrap();
        assert_eq!(agent.decision(), held, "{law:?}");
    }
}

#[test]
fn node_is_learned_in_observe_mode() {
    let (mut node, mut agent) = (node(29), watching(Law::LoadLine));
    watch(&mut node, &mut agent, 0.5, 1e9, 30);
    assert_eq!(agent.learned(), None, "nothing has waited");
    watch(&mut node, &mut agent, 1.3, 200.0, 100);
    let learned = agent.learned().unwrap();
    assert!((0.9..1.1).contains(&(learned.rate / 100.0)), "{learned:?}");
    // What a request takes unloaded was seen before the overload, and stays.
    assert!(
        (0.03..0.09).contains(&learned.unloaded.get()),
        "{learned:?}"
    );
}

#[test]
fn unreachable_sla_does_not_wind_the_bound_down() {
    for law in [Law::LoadLine, PI] {
        // Each request takes 0.8 s where 0.5 s are promised; the load swings about what fills the bound.
        let mut ends = Vec::new();
        for mode in [ServiceMode::Observe, ServiceMode::Enforce] {
            let mut node = FifoNode::new(16, 0.8, 10.0, 37);
            let mut agent = NodeController::new(settings(law, mode)).unwrap();
            let mut bounds = Vec::new();
            for turn in 0..40 {
                let load = [1.1, 0.8, 0.5, 0.2][turn % 4];
                bounds.extend(watch(&mut node, &mut agent, load, 24.0, 20));
            }
            ends.push(range(&bounds[240..320]).0);
            ends.push(range(&bounds[720..]).0);
        }
        assert!(
            ends[1] > 0.8 * ends[0] && ends[1] > 3.0,
            "{law:?}: {ends:?}"
        );
        assert!(
            ends[3] < ends[1],
            "as one that believes it is obeyed does, {law:?}: {ends:?}"
        );
    }
}
