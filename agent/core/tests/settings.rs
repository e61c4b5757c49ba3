//! Settings out of their range are refused, by the key that has to be corrected.
#![allow(clippy::unwrap_used, missing_docs)]

mod plants;

use plants::settings;
use plimsoll_core::*;

/// The key and the text of what is refused after this change; the settings before it are valid.
fn refused(change: impl Fn(&mut Settings)) -> SettingsError {
    let mut settings = settings(1.0, Objective::Quantile(0.95), 100.0);
    settings.validate().unwrap();
    change(&mut settings);
    let error = settings.validate().unwrap_err();
    assert_eq!(NodeController::new(settings).err(), Some(error.clone()));
    error
}

fn pi(kp: f64, ki: f64) -> Law {
    Law::Pi {
        gains: PiGains { kp, ki },
        form: PiForm::Velocity,
    }
}

#[test]
fn no_amount_is_negative_endless_or_no_number() {
    for bad in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let keys = [
            refused(|it| it.sla.delay = Seconds(bad)).key,
            refused(|it| it.sla.settling = Seconds(bad)).key,
            refused(|it| it.sla.set_point = bad).key,
            refused(|it| it.sla.objective = Objective::Quantile(bad)).key,
            refused(|it| it.limits.min = Cost(bad)).key,
            refused(|it| it.limits.max = Cost(bad)).key,
            refused(|it| it.limits.nominal = Some(Cost(bad))).key,
            refused(|it| it.law = pi(bad, 0.1)).key,
            refused(|it| it.law = pi(0.1, bad)).key,
            refused(|it| it.law = Law::Proportional { gain: bad }).key,
            refused(|it| it.rules.light_load = bad).key,
            refused(|it| it.rules.headroom = bad).key,
            refused(|it| it.rules.max_failed = bad).key,
        ];
        let wanted = [
            "sla.delay",
            "sla.settling",
            "sla.set_point",
            "sla.objective",
            "bound.min",
            "bound.max",
            "bound.nominal",
            "controller.kp",
            "controller.ki",
            "controller.gain",
            "rules.light_load",
            "rules.headroom",
            "rules.max_failed",
        ];
        assert_eq!(keys, wanted, "{bad}");
    }
}

#[test]
fn limits_of_each_range_are_kept() {
    assert_eq!(refused(|it| it.sla.delay = Seconds(0.0)).key, "sla.delay");
    assert_eq!(
        refused(|it| it.sla.settling = Seconds(0.0)).key,
        "sla.settling"
    );
    for set_point in [0.0, 1.01] {
        assert_eq!(
            refused(|it| it.sla.set_point = set_point).key,
            "sla.set_point"
        );
    }
    for quantile in [0.0, 1.0] {
        let objective = Objective::Quantile(quantile);
        assert_eq!(
            refused(|it| it.sla.objective = objective).key,
            "sla.objective"
        );
    }
    assert_eq!(refused(|it| it.limits.min = Cost(0.0)).key, "bound.min");
    assert_eq!(refused(|it| it.limits.max = Cost(0.5)).key, "bound.max");
    for nominal in [0.5, 2e6] {
        assert_eq!(
            refused(|it| it.limits.nominal = Some(Cost(nominal))).key,
            "bound.nominal"
        );
    }
    assert_eq!(refused(|it| it.law = pi(0.0, 0.1)).key, "controller.kp");
    for gain in [0.0, 1.01] {
        let law = Law::Proportional { gain };
        assert_eq!(refused(|it| it.law = law).key, "controller.gain");
    }
    assert_eq!(
        refused(|it| it.rules.min_samples = 0).key,
        "rules.min_samples"
    );
    assert_eq!(
        refused(|it| it.rules.window_periods = 0).key,
        "rules.window_periods"
    );
    assert_eq!(
        refused(|it| it.rules.light_load = 1.01).key,
        "rules.light_load"
    );
    assert_eq!(refused(|it| it.rules.headroom = 0.99).key, "rules.headroom");
    for share in [0.0, 1.01] {
        assert_eq!(
            refused(|it| it.rules.max_failed = share).key,
            "rules.max_failed"
        );
    }
    let mut at_the_limits = settings(1.0, Objective::Mean, 1.0);
    at_the_limits.sla.set_point = 1.0;
    at_the_limits.limits.max = at_the_limits.limits.min;
    at_the_limits.law = Law::Proportional { gain: 1.0 };
    at_the_limits.rules.min_samples = 1;
    at_the_limits.rules.window_periods = 1;
    at_the_limits.rules.light_load = 1.0;
    at_the_limits.rules.headroom = 1.0;
    at_the_limits.rules.max_failed = 1.0;
    assert_eq!(at_the_limits.validate(), Ok(()));
    at_the_limits.rules.light_load = 0.0;
    at_the_limits.law = pi(0.1, 0.0);
    assert_eq!(at_the_limits.validate(), Ok(()));
}

#[test]
fn only_the_load_line_does_without_a_nominal_bound_and_only_velocity_is_tuned() {
    assert_eq!(refused(|it| it.limits.nominal = None).key, "bound.nominal");
    let mut free = settings(1.0, Objective::Mean, 1.0);
    free.limits.nominal = None;
    free.law = Law::LoadLine;
    assert_eq!(free.validate(), Ok(()));
    for law in [
        Law::LoadLine,
        Law::Proportional { gain: 0.5 },
        Law::Pi {
            gains: PiGains::default(),
            form: PiForm::DoubleIntegrating,
        },
    ] {
        let change = |it: &mut Settings| {
            it.law = law;
            it.self_tuned = true;
        };
        assert_eq!(refused(change).key, "controller.gains");
    }
    let mut tuned = settings(1.0, Objective::Mean, 1.0);
    tuned.self_tuned = true;
    assert_eq!(tuned.validate(), Ok(()));
}

#[test]
fn what_is_refused_is_named_with_its_value_and_its_limit() {
    let error = refused(|it| it.limits.max = Cost(0.5));
    assert_eq!(
        error.to_string(),
        "bound.max: must be at least bound.min (1), is 0.5"
    );
}
