//! Learning from periods: rate and unloaded delay.

use plimsoll_core::*;

use crate::{
    controller,
    plants::{observation, sla},
    settings,
};

#[test]
fn rate_includes_empty_periods_of_long_requests() {
    let mut agent = NodeController::new(Settings {
        sla: sla(10.0, Objective::Quantile(0.95)),
        ..settings(None)
    })
    .unwrap();
    // Eight requests that share the node end together after twenty seconds of nothing.
    for _ in 0..3 {
        for _ in 0..19 {
            agent.step(Some(&observation(1.0, &[], 8.0)));
        }
        agent.step(Some(&observation(1.0, &[19.5; 8], 8.0)));
    }
    let rate = agent.learned().unwrap().rate;
    assert!((0.3..0.6).contains(&rate), "{rate} of 0.4 requests/s");
}

#[test]
fn recalled_unloaded_delay_stays_valid_after_a_light_period() {
    let mut agent = controller(None);
    agent.recall(Learned {
        rate: 20.0,
        unloaded: Seconds(0.2),
        spread: 2.0,
        mean_cost: Cost(1.0),
        unloaded_objective: None,
        is_measured: true,
    });
    agent.step(Some(&observation(1.0, &[0.2; 5], 1.0)));
    let mut full = observation(1.0, &[0.5; 20], 10.0);
    full.refused_share = Some(0.5);
    assert_eq!(agent.step(Some(&full)).reason, Reason::Standing);
    let unloaded = agent.learned().unwrap().unloaded.get();
    assert!((0.19..0.21).contains(&unloaded), "{unloaded}");
}

/// A period of an overloaded node: `count` requests end after `delay` seconds, and as many are refused.
fn overloaded(count: usize, delay: f64, jobs: f64) -> Observation {
    Observation {
        refused_share: Some(0.5),
        ..observation(1.0, &vec![delay; count], jobs)
    }
}

#[test]
fn queue_that_stands_from_the_first_request_on_is_not_taken_for_unloaded_delays() {
    let mut agent = controller(None);
    // The first requests are too few for a rate.
    let reasons: Vec<Reason> = (0..5)
        .map(|_| agent.step(Some(&observation(1.0, &[1.2; 8], 10.0))).reason)
        .collect();
    assert_eq!(reasons[..2], [Reason::Open; 2]);
    assert!(!reasons[3..].contains(&Reason::Open), "{reasons:?}");
    let bound = agent.decision().bound_jobs;
    assert!(bound < 10.0, "{bound} jobs: no fewer than were there");
}

#[test]
fn draining_flood_does_not_raise_the_rate() {
    let mut agent = controller(None);
    for _ in 0..3 {
        agent.step(Some(&overloaded(40, 1.5, 60.0)));
    }
    assert_eq!(agent.decision().reason, Reason::Standing);
    let before = agent.learned().unwrap().rate;
    // Most of what ends now was worked on before; the bound is far below.
    agent.step(Some(&overloaded(130, 0.45, 50.0)));
    agent.step(Some(&overloaded(130, 0.2, 25.0)));
    let rate = agent.learned().unwrap().rate;
    assert!(rate < 1.2 * before, "{before} to {rate} requests/s");
}

#[test]
fn assumed_unloaded_delay_does_not_raise_the_rate() {
    let mut agent = controller(None);
    for _ in 0..2 {
        agent.step(Some(&overloaded(100, 0.6, 60.0)));
    }
    for _ in 0..3 {
        let jobs = agent.decision().bound_jobs.floor();
        agent.step(Some(&overloaded(100, jobs / 100.0, jobs)));
    }
    let unloaded = agent.learned().unwrap().unloaded.get();
    assert!(unloaded < 0.05, "it was never seen: {unloaded} s");
    // Fewer jobs than the bound allows, and no faster.
    for _ in 0..5 {
        agent.step(Some(&overloaded(100, 0.05, 5.0)));
    }
    let rate = agent.learned().unwrap().rate;
    assert!(
        rate < 105.0,
        "{rate} requests/s, where it never did over 100"
    );
}

#[test]
fn chance_dip_of_throughput_is_not_starvation() {
    let mut agent = controller(None);
    for _ in 0..3 {
        agent.step(Some(&overloaded(100, 0.6, 60.0)));
    }
    let reasons = |agent: &mut NodeController, rate: usize| -> Vec<Reason> {
        let period = |_| {
            let jobs = agent.decision().bound_jobs.floor();
            agent
                .step(Some(&overloaded(rate, jobs / rate as f64, jobs)))
                .reason
        };
        (0..5).map(period).collect()
    };
    reasons(&mut agent, 100);
    // Of 200 requests, 2.4 standard deviations.
    let dip = reasons(&mut agent, 83);
    assert!(!dip.contains(&Reason::Starved), "{dip:?}");
    reasons(&mut agent, 100);
    let starved = reasons(&mut agent, 60);
    assert!(starved.contains(&Reason::Starved), "{starved:?}");
}

#[test]
fn one_drained_period_does_not_end_a_standing_queue_if_refusals_are_unknown() {
    let mut agent = controller(None);
    let period = |count: usize, delay: f64| Observation {
        jobs: None,
        ..observation(1.0, &vec![delay; count], 0.0)
    };
    let (full, drained) = (period(100, 0.6), period(50, 0.02));
    // The same in the second queue that stands.
    for _ in 0..2 {
        let stands = |_: &usize| agent.step(Some(&full)).reason == Reason::Standing;
        assert!((0..10).find(stands).is_some());
        // Proxies have not filled their shares of the lower bound yet.
        assert_eq!(agent.step(Some(&drained)).reason, Reason::Standing);
        assert_eq!(agent.step(Some(&drained)).reason, Reason::Burst);
    }
}

#[test]
fn bound_does_not_grow_after_a_rate_that_the_node_does_not_reach() {
    let mut agent = controller(None);
    agent.recall(Learned {
        rate: 100.0,
        unloaded: Seconds(0.02),
        spread: 2.0,
        mean_cost: Cost(1.0),
        unloaded_objective: None,
        is_measured: true,
    });
    let full = |agent: &mut NodeController| {
        let jobs = agent.decision().bound_jobs.floor();
        agent.step(Some(&overloaded(100, jobs / 100.0, jobs)))
    };
    let bounds = |agent: &mut NodeController| -> Vec<f64> {
        (0..60).map(|_| full(agent).bound_jobs).collect()
    };
    let before = bounds(&mut agent)[59];
    // By chance little waits.
    let short = |_| agent.step(Some(&overloaded(105, 0.02, 2.0))).reason;
    let reasons: Vec<Reason> = (0..2).map(short).collect();
    assert_eq!(reasons[1], Reason::Starved);
    let after = bounds(&mut agent);
    let highest = after.iter().copied().fold(0.0, f64::max);
    assert!(highest < 1.3 * before, "{before} to {highest} jobs");
    assert!(after[59] < 1.1 * before, "{before} to {} jobs", after[59]);
}
