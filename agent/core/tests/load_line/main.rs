//! The default law: right with an SLA and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod disturbed;
mod learning;
#[path = "../plants/mod.rs"]
mod plants;
mod slow_requests;
mod unseen;

use plants::{FifoNode, observation, sla};
use plimsoll_core::*;

const SLA_SECONDS: f64 = 0.5;

fn settings(nominal: Option<f64>) -> Settings {
    Settings {
        sla: sla(SLA_SECONDS, Objective::Quantile(0.95)),
        limits: BoundLimits {
            nominal: nominal.map(Cost),
            ..BoundLimits::default()
        },
        law: Law::LoadLine,
        mpl: false,
        mode: ServiceMode::Enforce,
        self_tuned: false,
        rules: Rules::default(),
    }
}

fn controller(nominal: Option<f64>) -> NodeController {
    NodeController::new(settings(nominal)).unwrap()
}

/// Results of the periods at a load.
#[derive(Debug, Default)]
struct Outcome {
    timely: f64,
    refused: u64,
    arrived: u64,
    /// p95 delay of each period, in seconds.
    p95: Vec<f64>,
    bounds: Vec<f64>,
    reasons: Vec<Reason>,
}

impl Outcome {
    fn of_capacity(&self, node: &FifoNode) -> f64 {
        self.timely / (node.capacity_per_second() * self.bounds.len() as f64)
    }

    fn refused_share(&self) -> f64 {
        self.refused as f64 / self.arrived as f64
    }
}

/// An agent beside a proxy that refuses what does not fit, and reports the share.
fn run(node: &mut FifoNode, agent: &mut NodeController, load: f64, periods: usize) -> Outcome {
    node.arrivals_per_second = load * node.capacity_per_second();
    let mut outcome = Outcome::default();
    let (refused, arrived) = (node.refused, node.arrived);
    for _ in 0..periods {
        let before = (node.refused, node.arrived);
        let mut seen = node.period(1.0, agent.decision().bound_jobs);
        let asked = (node.arrived - before.1).max(1);
        seen.refused_share = Some((node.refused - before.0) as f64 / asked as f64);
        outcome.timely += seen.delays.within(Seconds(SLA_SECONDS));
        outcome
            .p95
            .push(seen.delays.quantile(0.95).map_or(0.0, Seconds::get));
        let decision = agent.step(Some(&seen));
        outcome.bounds.push(decision.bound_jobs);
        outcome.reasons.push(decision.reason);
    }
    outcome.refused = node.refused - refused;
    outcome.arrived = node.arrived - arrived;
    outcome
}

/// 100 requests a second by four workers.
fn node(seed: u64) -> FifoNode {
    FifoNode::new(4, 0.04, 50.0, seed)
}

#[test]
fn nothing_is_refused_without_a_queue() {
    for (workers, service) in [(1, 0.3), (1, 0.1), (4, 0.04), (100, 0.02)] {
        let mut node = FifoNode::new(workers, service, 1.0, 3);
        let mut agent = controller(None);
        let calm = run(&mut node, &mut agent, 0.4, 60);
        assert_eq!(calm.refused, 0, "{workers} x {service} s: {calm:?}");
    }
}

#[test]
fn first_overload_is_held_within_the_sla_and_drained() {
    for load in [1.5, 3.0] {
        let (mut node, mut agent) = (node(5), controller(None));
        run(&mut node, &mut agent, 0.5, 20);
        let first = run(&mut node, &mut agent, load, 4);
        let held = run(&mut node, &mut agent, load, 30);
        assert!(held.of_capacity(&node) > 0.97, "{load}: {held:?}");
        let worst = |p95: &[f64]| p95.iter().fold(0.0f64, |most, p95| most.max(*p95));
        assert!(worst(&first.p95) < SLA_SECONDS, "{load}: {first:?}");
        assert!(worst(&held.p95) < 0.5 * SLA_SECONDS, "{load}: {held:?}");
    }
}

#[test]
fn fourfold_surge_within_capacity_is_admitted() {
    for (workers, service) in [(1, 0.02), (4, 0.04), (100, 0.1)] {
        let mut node = FifoNode::new(workers, service, 1.0, 17);
        let mut agent = controller(None);
        run(&mut node, &mut agent, 0.2, 60);
        let busy = run(&mut node, &mut agent, 0.85, 60);
        assert!(
            busy.refused_share() <= 0.005,
            "{workers} x {service} s: {busy:?}"
        );
    }
}

#[test]
fn two_seconds_after_the_overload_nothing_is_refused() {
    let (mut node, mut agent) = (node(7), controller(None));
    run(&mut node, &mut agent, 3.0, 30);
    run(&mut node, &mut agent, 0.5, 2);
    let calm = run(&mut node, &mut agent, 0.5, 60);
    assert_eq!(calm.refused, 0, "{calm:?}");
}

#[test]
fn high_load_is_not_overload() {
    let (mut node, mut agent) = (node(9), controller(None));
    run(&mut node, &mut agent, 3.0, 20);
    run(&mut node, &mut agent, 0.5, 5);
    let busy = run(&mut node, &mut agent, 0.85, 300);
    assert!(busy.refused_share() <= 0.005, "{busy:?}");
}

#[test]
fn wrong_nominal_bound_is_corrected_10_s_after_the_first_overload() {
    let mut timely = Vec::new();
    for nominal in [None, Some(4.5), Some(45.0), Some(450.0)] {
        let (mut node, mut agent) = (node(11), controller(nominal));
        run(&mut node, &mut agent, 0.5, 10);
        run(&mut node, &mut agent, 1.5, 10);
        timely.push(run(&mut node, &mut agent, 1.5, 40).of_capacity(&node));
    }
    let least = timely.iter().fold(f64::MAX, |least, one| least.min(*one));
    let most = timely.iter().fold(0.0f64, |most, one| most.max(*one));
    assert!(least > 0.97 * most && least > 0.95, "{timely:?}");
}

#[test]
fn bound_follows_the_nodes_speed() {
    let (mut node, mut agent) = (node(13), controller(None));
    run(&mut node, &mut agent, 1.5, 20);
    let whole = agent.decision().capacity.unwrap().get();
    node.service *= 10.0;
    let slow = run(&mut node, &mut agent, 1.5, 40);
    let tenth = agent.decision().capacity.unwrap().get();
    assert!(
        (0.05..0.2).contains(&(tenth / whole)),
        "{whole} {tenth} {slow:?}"
    );
    node.service /= 10.0;
    run(&mut node, &mut agent, 1.5, 40);
    let again = agent.decision().capacity.unwrap().get();
    assert!((0.8..1.25).contains(&(again / whole)), "{whole} {again}");
}

#[test]
fn holds_from_1_to_5000_requests_per_second() {
    for (workers, service) in [(1, 0.1), (1, 0.3), (100, 0.02)] {
        let mut node = FifoNode::new(workers, service, 1.0, 17);
        let mut agent = controller(None);
        run(&mut node, &mut agent, 0.3, 60);
        run(&mut node, &mut agent, 2.0, 10);
        let held = run(&mut node, &mut agent, 2.0, 60);
        // Of a worker at 0.3 s each the second in the node is late already.
        let least = if service > 0.2 { 0.4 } else { 0.9 };
        assert!(
            held.of_capacity(&node) > least,
            "{workers} x {service} s: {held:?}"
        );
    }
}

#[test]
fn routes_with_delays_1000_times_apart_share_a_node() {
    // Requests of 0.2 ms beside those of 0.2 s, and of 2 ms beside a few that are late by themselves.
    let mixes = [(0.0002, 0.1), (0.0002, 0.5), (0.002, 0.01), (0.002, 0.03)];
    for ((fast, slow), load) in mixes
        .map(|mix| [0.5, 1.5, 3.0].map(|load| (mix, load)))
        .concat()
    {
        let (mut node, mut agent) = (FifoNode::new(32, fast, 1.0, 53), controller(None));
        node.slow = (slow, 1000.0);
        run(&mut node, &mut agent, 0.4, 30);
        run(&mut node, &mut agent, load, 15);
        node.fast_delays.clear();
        let held = run(&mut node, &mut agent, load, 100);
        let capacity = node.capacity_per_second() * held.bounds.len() as f64;
        let done = (held.arrived - held.refused) as f64 / capacity;
        let late = node
            .fast_delays
            .iter()
            .filter(|delay| **delay > SLA_SECONDS);
        let late = late.count() as f64 / node.fast_delays.len() as f64;
        let what = format!("{slow} of {fast} s at {load}: {done} done, {late} late, {held:?}");
        assert!(late < 0.03, "{what}");
        if load < 1.0 {
            assert!(held.refused_share() <= 0.005, "{what}");
        } else {
            assert!(done > 0.8, "{what}");
        }
    }
}

#[test]
fn recalled_state_is_right_at_once() {
    let (mut node, mut agent) = (node(19), controller(None));
    run(&mut node, &mut agent, 3.0, 30);
    run(&mut node, &mut agent, 0.5, 10);
    let burst = agent.decision().bound_jobs;
    let mut restarted = controller(None);
    restarted.recall(agent.learned().unwrap());
    let calm = run(&mut node, &mut restarted, 0.5, 1);
    assert!(
        (0.8..1.25).contains(&(calm.bounds[0] / burst)),
        "{burst} {calm:?}"
    );
    assert_eq!(calm.reasons, [Reason::Burst]);
}

#[test]
fn unsound_state_is_not_recalled() {
    let sound = Learned {
        rate: 100.0,
        unloaded: Seconds(0.04),
        spread: 1.2,
        mean_cost: Cost(1.0),
        unloaded_objective: None,
        is_measured: true,
    };
    let broken = [
        Learned {
            rate: f64::NAN,
            ..sound
        },
        Learned { rate: 0.0, ..sound },
        Learned {
            unloaded: Seconds(-1.0),
            ..sound
        },
        Learned {
            spread: 0.0,
            ..sound
        },
        Learned {
            mean_cost: Cost(f64::INFINITY),
            ..sound
        },
    ];
    for learned in broken {
        let mut agent = controller(None);
        agent.recall(learned);
        assert_eq!(agent.learned(), None, "{learned:?}");
    }
}

#[test]
fn bound_that_is_not_obeyed_does_not_wind_down() {
    let (mut node, mut agent) = (node(23), controller(None));
    run(&mut node, &mut agent, 3.0, 20);
    let mut bounds = Vec::new();
    for _ in 0..30 {
        node.arrivals_per_second = 1.2 * node.capacity_per_second();
        let seen = node.period(1.0, f64::MAX);
        bounds.push(agent.step(Some(&seen)).bound_jobs);
    }
    assert!(bounds[29] > 0.5 * bounds[0], "{bounds:?}");
}

#[test]
fn bound_is_halved_by_failures_and_stalls_and_rises_in_steps() {
    let (mut node, mut agent) = (node(31), controller(None));
    run(&mut node, &mut agent, 3.0, 10);
    let whole = agent.decision().capacity.unwrap().get();
    for _ in 0..10 {
        let mut failing = observation(1.0, &[0.01], 1.0);
        failing.failed = 50;
        assert_eq!(agent.step(Some(&failing)).reason, Reason::Errors);
    }
    let cut = agent.decision();
    assert!(cut.bound_jobs <= 2.0, "{cut:?}");
    assert!(
        cut.capacity.unwrap().get() < 0.1 * whole,
        "keys must leave it: {cut:?}"
    );
    let good = observation(1.0, &[0.01; 20], 1.0);
    let risen = agent.step(Some(&good));
    assert_eq!(risen.reason, Reason::Recovering);
    assert!(risen.bound_jobs <= 2.0 * cut.bound_jobs + 1e-9, "{risen:?}");
    for _ in 0..10 {
        agent.step(Some(&good));
    }
    assert_eq!(agent.decision().reason, Reason::Burst);
}

#[test]
fn first_flood_requests_an_early_step() {
    let (mut node, mut agent) = (node(37), controller(None));
    assert!(!agent.is_flooded(5.0), "few jobs are no flood");
    assert!(agent.is_flooded(6.0), "nothing is known yet");
    run(&mut node, &mut agent, 0.5, 10);
    assert!(!agent.is_flooded(5.0));
    assert!(agent.is_flooded(60.0));
    agent.force(Some(Cost(10.0)));
    assert!(!agent.is_flooded(60.0), "an operator holds it");
    let papers = NodeController::new(Settings {
        law: Law::Fixed,
        ..settings(Some(10.0))
    });
    assert!(!papers.unwrap().is_flooded(1e3));
}

#[test]
fn empty_period_keeps_the_standing_bound() {
    let (mut node, mut agent) = (node(41), controller(None));
    run(&mut node, &mut agent, 0.5, 20);
    run(&mut node, &mut agent, 3.0, 10);
    let standing = agent.decision();
    assert_eq!(standing.reason, Reason::Standing);
    let empty = observation(1.0, &[], 0.0);
    let decision = agent.step(Some(&empty));
    assert_eq!(decision.reason, Reason::Empty);
    assert!(decision.bound_jobs <= standing.bound_jobs, "{decision:?}");
    // No request has arrived for long.
    for _ in 0..5 {
        agent.step(Some(&empty));
    }
    let burst = agent.decision().bound_jobs;
    assert!(burst > 1.5 * standing.bound_jobs, "{burst} {standing:?}");
}
