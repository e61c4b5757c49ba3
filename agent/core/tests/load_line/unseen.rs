//! The bound while the source is late or lost.

use std::time::Duration;

use plimsoll_core::*;

use crate::{SLA_SECONDS, controller, node, plants::sla, run, settings};

#[test]
fn late_source_only_lowers_the_bound() {
    let (mut node, mut agent) = (node(29), controller(None));
    run(&mut node, &mut agent, 3.0, 10);
    run(&mut node, &mut agent, 0.5, 10);
    let before = agent.decision().bound_jobs;
    let mut last = before;
    for _ in 0..20 {
        let decision = agent.step_late(Seconds(1.0), None);
        assert_eq!(decision.reason, Reason::SourceLate);
        assert!(decision.bound_jobs <= last, "{decision:?}");
        last = decision.bound_jobs;
    }
    assert!(last < 0.7 * before && last >= 1.0, "{before} {last}");
    // One that was late within the target is only a gap.
    let lost = controller(None).step_late(Seconds(0.1), None);
    assert_eq!(lost.reason, Reason::SourceLost);
}

#[test]
fn scrapes_that_time_out_before_the_sla_do_not_hold_the_bound() {
    let mut agent = NodeController::new(Settings {
        sla: sla(1.0, Objective::Quantile(0.95)),
        ..settings(None)
    })
    .unwrap();
    let mut node = node(43);
    run(&mut node, &mut agent, 0.5, 20);
    run(&mut node, &mut agent, 3.0, 2);
    let (before, mut silence) = (agent.decision(), Silence::default());
    assert!(before.capacity.is_some(), "{before:?}");
    // Asked once a second, each time for half a second.
    let given_up = |second| Duration::from_secs(second) + Duration::from_millis(500);
    silence.answered(Duration::ZERO);
    let late = |second, agent: &mut NodeController| {
        let waited = silence.length(given_up(second));
        assert_eq!(waited, Seconds(second as f64 + 0.5));
        agent.step_late(waited, None)
    };
    let lowered = late(1, &mut agent);
    assert_eq!(lowered.reason, Reason::SourceLate);
    assert!(
        lowered.bound_jobs < 0.5 * before.bound_jobs,
        "{before:?} {lowered:?}"
    );
    for second in 2..20 {
        let decision = late(second, &mut agent);
        assert_eq!(decision.reason, Reason::SourceLate);
        assert!(decision.bound <= lowered.bound, "{decision:?}");
        assert_eq!(
            decision.capacity, before.capacity,
            "weights go by what was learned, and not by the bound"
        );
    }
    // An answer that is no observation ends it.
    silence.failed(Duration::from_secs(20));
    assert_eq!(silence.length(given_up(21)), Seconds(1.5));
}

#[test]
fn source_that_never_answered_in_time_does_not_throttle_the_node() {
    let mut agent = controller(None);
    let before = agent.decision().bound_jobs;
    // Its exporter may need longer than the scrape's timeout.
    let mut silence = Silence::default();
    silence.failed(Duration::ZERO);
    for second in 1..20 {
        let waited = silence.length(Duration::from_secs(second));
        let decision = agent.step_late(waited, None);
        assert_eq!(decision.reason, Reason::SourceLost);
        assert_eq!(decision.bound_jobs, before);
    }
}

#[test]
fn a_lost_source_holds_no_more_than_finished_in_time() {
    let (mut node, mut agent) = (node(47), controller(None));
    run(&mut node, &mut agent, 3.0, 10);
    let known = agent.learned().unwrap();
    let in_time = known.rate * SLA_SECONDS * 0.9;
    // Restarted in front of a source that is not there.
    let mut restarted = controller(None);
    restarted.recall(known);
    let held = restarted.step(None);
    assert_eq!(held.reason, Reason::SourceLost);
    assert!(held.bound_jobs <= in_time, "{in_time} {held:?}");
    // What an operator set goes with it.
    agent.force(Some(Cost(1000.0)));
    assert_eq!(agent.step(None).bound_jobs, 1000.0);
    agent.force(None);
    let released = agent.step(None);
    assert!(released.bound_jobs <= in_time, "{in_time} {released:?}");
}
