//! The rules the papers leave open, one test each.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod plants;

use plants::{observation, settings};
use plimsoll_core::*;
use proptest::prelude::*;

fn controller(nominal: f64) -> NodeController {
    NodeController::new(settings(1.0, Objective::Quantile(0.95), nominal)).unwrap()
}

fn busy(delay: f64, jobs: f64) -> Observation {
    let mut seen = observation(1.0, &vec![delay; 200], jobs);
    seen.jobs = None;
    seen
}

#[test]
fn lost_source_holds_the_last_bound() {
    let mut c = controller(100.0);
    let good = c.step(Some(&busy(0.5, 100.0))).bound;
    for _ in 0..100 {
        let held = c.step(None);
        assert_eq!((held.bound, held.reason), (good, Reason::SourceLost));
    }
}

#[test]
fn a_source_lost_in_an_overload_leaves_no_bound_above_what_finished_in_time() {
    let mut c = controller(1000.0);
    // A third of it would have been in time; the law alone halves the bound.
    let late = c.step(Some(&busy(3.0, 1000.0))).bound;
    assert!(late.get() > 400.0, "{late:?}");
    for _ in 0..3 {
        let held = c.step(None);
        assert_eq!(held.reason, Reason::SourceLost);
        assert!((250.0..300.5).contains(&held.bound.get()), "{held:?}");
    }
}

#[test]
fn an_empty_period_is_held_then_drifts_to_the_nominal_bound() {
    let mut c = controller(100.0);
    for _ in 0..30 {
        c.step(Some(&busy(5.0, 100.0)));
    }
    let low = c.decision().bound.get();
    assert!(low < 5.0, "{low}");
    for _ in 0..5 {
        let held = c.step(Some(&observation(1.0, &[], 0.0)));
        assert_eq!((held.bound.get(), held.reason), (low, Reason::Empty));
    }
    for _ in 0..40 {
        assert_eq!(
            c.step(Some(&observation(1.0, &[], 0.0))).reason,
            Reason::IdleDrift
        );
    }
    assert_eq!(c.decision().bound.get(), 100.0);
}

#[test]
fn stalled_node_is_throttled() {
    let mut c = controller(100.0);
    c.step(Some(&observation(1.0, &[0.5; 200], 80.0)));
    let before = c.decision().bound.get();
    let reasons: Vec<_> = (0..6)
        .map(|_| c.step(Some(&observation(1.0, &[], 80.0))).reason)
        .collect();
    assert_eq!(reasons[0], Reason::Stalled);
    assert!(
        c.decision().bound.get() < 0.3 * before,
        "{:?}",
        c.decision()
    );
}

#[test]
fn the_oldest_request_alone_shows_a_stall() {
    let mut c = controller(100.0);
    let mut seen = observation(1.0, &[], 0.0);
    seen.jobs = None;
    seen.oldest_age = Some(Seconds(3.0));
    assert_eq!(c.step(Some(&seen)).reason, Reason::Stalled);
    assert!(c.decision().bound.get() < 100.0);
}

#[test]
fn backlog_predicts_delay_before_completions() {
    let mut c = controller(100.0);
    // 50 a second finish quickly, but 150 wait: they will take three seconds.
    let mut seen = observation(1.0, &[0.2; 50], 150.0);
    seen.peak_jobs = Some(150.0);
    let decision = c.step(Some(&seen));
    assert_eq!(decision.reason, Reason::LateSignal);
    assert!(decision.bound.get() < 100.0);
    assert_eq!(decision.control_delay, Some(Seconds(3.0)));
}

#[test]
fn bound_that_is_not_obeyed_keeps_a_minimum() {
    let mut c = controller(100.0);
    // 100 a second end, late, and the proxy lets in ever as much as before.
    for _ in 0..60 {
        c.step(Some(&observation(1.0, &[3.0; 100], 300.0)));
    }
    let kept = c.decision();
    assert_eq!(kept.reason, Reason::OverBound);
    // A third of what ends within the target.
    assert!((kept.bound.get() - 0.33 * 90.0).abs() < 1.0, "{kept:?}");
    for _ in 0..10 {
        let obeyed = c.decision().bound.get();
        c.step(Some(&observation(1.0, &[3.0; 100], obeyed)));
    }
    assert!(
        c.decision().bound.get() < 10.0,
        "obeyed, it falls as ever: {:?}",
        c.decision()
    );
}

#[test]
fn newly_arrived_work_is_no_stall() {
    let mut c = controller(100.0);
    let mut first = observation(1.0, &[], 3.0);
    for oldest in [Some(Seconds(0.09)), None] {
        first.oldest_age = oldest;
        let held = c.step(Some(&first));
        assert_eq!((held.bound.get(), held.reason), (100.0, Reason::FewSamples));
        c.step(Some(&observation(1.0, &[0.1; 30], 0.0)));
    }
    // Without an age, jobs that were there through a whole period and did not end are a stall.
    first.oldest_age = None;
    c.step(Some(&first));
    assert_eq!(c.step(Some(&first)).reason, Reason::Stalled);
}

#[test]
fn low_bound_recovers_under_light_load() {
    let mut c = controller(100.0);
    let mut late = observation(1.0, &[], 20.0);
    late.oldest_age = Some(Seconds(3.0));
    for _ in 0..3 {
        c.step(Some(&late));
    }
    assert!(c.decision().bound.get() < 15.0);
    // Its share of the traffic goes by its bound, and the node is far from busy with it.
    for _ in 0..40 {
        let decision = c.decision();
        let jobs = 0.4 * decision.bound.get();
        assert!(decision.bound.get() <= 100.0);
        c.step(Some(&busy(0.1, jobs)));
    }
    assert!(c.decision().bound.get() > 95.0, "{:?}", c.decision());
    for _ in 0..40 {
        c.step(Some(&busy(0.1, 40.0)));
    }
    assert_eq!(c.decision().bound.get(), 100.0, "it is not wound up beyond");
}

#[test]
fn an_idle_slow_node_recovers_within_the_headroom_only() {
    let mut c = controller(100.0);
    for _ in 0..60 {
        let jobs = c.decision().bound.get();
        c.step(Some(&busy(2.0, jobs)));
    }
    assert!(c.decision().bound.get() < 5.0);
    for _ in 0..60 {
        c.step(Some(&busy(0.3, 1.5)));
    }
    assert_eq!(c.decision().bound.get(), 6.0, "four times the recent peak");
}

#[test]
fn light_load_does_not_wind_the_bound_up() {
    let mut c = controller(100.0);
    for _ in 0..100 {
        assert_eq!(c.step(Some(&busy(0.01, 10.0))).reason, Reason::LightLoad);
    }
    assert_eq!(c.decision().bound.get(), 100.0);
}

#[test]
fn an_unused_bound_is_drawn_to_a_multiple_of_the_recent_peak() {
    let mut c = controller(10.0);
    for _ in 0..15 {
        let jobs = c.decision().bound.get();
        c.step(Some(&busy(0.1, jobs)));
    }
    let grown = c.decision().bound.get();
    assert!(grown > 100.0, "{grown}");
    for _ in 0..60 {
        c.step(Some(&busy(0.1, 5.0)));
    }
    assert!(c.decision().bound.get() < 22.0, "{:?}", c.decision());
}

#[test]
fn a_bound_between_one_and_two_jobs_can_still_grow() {
    let mut c = controller(1.9);
    let decision = c.step(Some(&busy(0.01, 1.0)));
    assert_eq!(decision.reason, Reason::UnderSla);
    assert!(decision.bound.get() > 1.9);
}

#[test]
fn fast_failures_do_not_raise_the_bound_and_many_lower_it() {
    let mut c = controller(100.0);
    let mut some = busy(0.001, 100.0);
    some.failed = 20;
    for _ in 0..20 {
        c.step(Some(&some));
    }
    assert!(c.decision().bound.get() <= 100.0, "{:?}", c.decision());
    assert!(
        c.decision().bound.get() > 80.0,
        "errors alone must not empty a node: {:?}",
        c.decision()
    );
    let mut most = busy(0.001, 100.0);
    most.failed = 300;
    let decision = c.step(Some(&most));
    assert_eq!(decision.reason, Reason::Errors);
    assert!(decision.bound < decision.previous);
}

#[test]
fn few_samples_are_added_up_before_the_law_acts() {
    let mut c = controller(4.0);
    let few = {
        let mut seen = observation(1.0, &[0.1; 6], 4.0);
        seen.jobs = None;
        seen
    };
    let reasons: Vec<_> = (0..4).map(|_| c.step(Some(&few)).reason).collect();
    assert_eq!(
        reasons,
        [
            Reason::FewSamples,
            Reason::FewSamples,
            Reason::FewSamples,
            Reason::UnderSla
        ]
    );
}

#[test]
fn a_bound_counts_items_where_cost_is_known() {
    let mut c = controller(8000.0);
    let mut seen = busy(0.5, 100.0);
    seen.finished_cost = Some(Cost(200.0 * 80.0));
    let decision = c.step(Some(&seen));
    assert_eq!(decision.mean_cost, Cost(80.0));
    assert!((decision.bound_jobs - decision.bound.get() / 80.0).abs() < 1e-9);
    assert_eq!(decision.reason, Reason::UnderSla);
}

#[test]
fn an_operators_bound_holds_and_the_law_resumes_without_a_bump() {
    let mut c = controller(100.0);
    c.step(Some(&busy(0.5, 100.0)));
    c.force(Some(Cost(40.0)));
    for _ in 0..3 {
        let forced = c.step(Some(&busy(0.1, 40.0)));
        assert_eq!((forced.bound.get(), forced.reason), (40.0, Reason::Fixed));
    }
    c.force(None);
    let resumed = c.step(Some(&busy(0.9, 40.0)));
    assert!((resumed.bound.get() - 40.0).abs() < 1.0, "{resumed:?}");
}

#[test]
fn reconfiguring_keeps_the_bound_and_a_bad_setting_changes_nothing() {
    let mut c = controller(100.0);
    c.step(Some(&busy(0.5, 100.0)));
    let bound = c.decision().bound.get();
    let mut other = settings(2.0, Objective::Mean, 50.0);
    c.reconfigure(other).unwrap();
    assert_eq!(c.step(None).bound.get(), bound);
    other.sla.delay = Seconds(0.0);
    let error = c.reconfigure(other).unwrap_err();
    assert_eq!(error.key, "sla.delay");
    assert_eq!(c.step(None).bound.get(), bound);
}

#[test]
fn prop_ac_and_fixed_follow_their_formulas() {
    let bound = |law| {
        let mut with_law = settings(1.0, Objective::Mean, 100.0);
        with_law.law = law;
        let mut c = NodeController::new(with_law).unwrap();
        c.step(Some(&busy(1.8, 100.0))).bound.get()
    };
    assert!((bound(Law::InverseDelay) - 50.0).abs() < 0.1);
    assert!((bound(Law::Proportional { gain: 0.5 }) - 50.0).abs() < 0.1);
    assert_eq!(bound(Law::Fixed), 100.0);
}

#[test]
fn weights_hold_inside_the_dead_band_and_never_reach_zero() {
    let mut scale = WeightScale::new(Some(Cost(100.0)), 0.05);
    assert_eq!(scale.percent(Some(Cost(50.0))), 50);
    assert_eq!(scale.percent(Some(Cost(52.0))), 50);
    assert_eq!(scale.percent(Some(Cost(53.0))), 53);
    assert_eq!(scale.percent(Some(Cost(0.0001))), 1);
    assert_eq!(scale.percent(Some(Cost(1e9))), 256);
    assert_eq!(scale.percent(Some(Cost(f64::NAN))), 1);
    assert_eq!(scale.percent(None), 100);
}

#[test]
fn without_a_configured_bound_a_weight_is_of_the_highest_capacity_which_is_forgotten() {
    let mut scale = WeightScale::new(None, 0.0);
    assert_eq!(scale.percent(Some(Cost(200.0))), 100);
    assert_eq!(scale.percent(Some(Cost(50.0))), 25);
    let two_hours = (0..7200).map(|_| scale.percent(Some(Cost(50.0))));
    assert!(two_hours.last() > Some(45));
    assert_eq!(scale.percent(Some(Cost(400.0))), 100);
}

#[test]
fn a_dead_band_holds_until_a_value_differs_by_more() {
    let mut held = DeadBand::new(0.1);
    assert_eq!(held.hold(100.0), 100.0);
    assert_eq!(held.hold(110.0), 100.0);
    assert_eq!(held.hold(90.0), 100.0);
    assert_eq!(held.hold(110.1), 110.1);
    assert_eq!(DeadBand::new(0.0).hold(1.0), 1.0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shares_sum_to_the_bound(jobs in 0.0..1e6f64, proxies in 1u32..64) {
        let total: u64 = (0..proxies).map(|i| u64::from(share_of_jobs(jobs, proxies, i))).sum();
        prop_assert_eq!(total, (jobs.floor() as u64).max(u64::from(proxies)).max(total.min(u64::from(proxies))));
    }

    #[test]
    fn any_observation_leaves_a_finite_bound_within_its_limits(
        seen in prop::collection::vec(
            (0.0..5.0f64, 0usize..200, 0u64..1000, prop::option::of(prop::num::f64::ANY),
             prop::option::of(prop::num::f64::ANY), prop::option::of(prop::num::f64::ANY)), 1..50),
        form in prop_oneof![Just(PiForm::Velocity), Just(PiForm::DoubleIntegrating)],
    ) {
        let mut with_form = settings(1.0, Objective::Quantile(0.9), 64.0);
        with_form.limits.max = Cost(1000.0);
        with_form.law = Law::Pi { gains: PiGains::default(), form };
        let mut c = NodeController::new(with_form).unwrap();
        for (delay, count, failed, jobs, oldest, cost) in seen {
            let mut period = observation(1.0, &vec![delay; count], 0.0);
            period.failed = failed;
            period.jobs = jobs;
            period.peak_jobs = jobs;
            period.oldest_age = oldest.map(Seconds);
            period.finished_cost = cost.map(Cost);
            let decision = c.step(Some(&period));
            prop_assert!(decision.bound.get() >= 1.0 && decision.bound.get() <= 1000.0, "{:?}", decision);
            prop_assert!(decision.bound_jobs.is_finite() && decision.bound_jobs >= 1.0);
        }
    }

    #[test]
    fn a_quantile_is_within_the_bucket_of_the_exact_one(
        delays in prop::collection::vec(0.001..100.0f64, 1..300), q in 0.01..0.99f64,
    ) {
        let estimate = plants::histogram(&delays).quantile(q).unwrap().get();
        let mut sorted = delays;
        sorted.sort_by(f64::total_cmp);
        let exact = sorted[((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        prop_assert!(estimate <= exact * 1.1001 && estimate >= exact / 1.1001, "{} vs {}", estimate, exact);
    }
}
