//! Adaptive update periods: cold items are updated less often under overload, and restored afterwards.
#![allow(clippy::unwrap_used, missing_docs)]

use plimsoll_core::{
    BoundLimits, Cost, Law, NodeController, Objective, Rules, Seconds, ServiceMode, Settings, Sla,
    freshness::{FreshnessSettings, ItemError, MAX_ITEMS, Pressure, UpdatePeriods},
};
use proptest::prelude::*;

const MAX_PERIOD: f64 = 5.0;

fn periods() -> UpdatePeriods {
    UpdatePeriods::new(FreshnessSettings {
        longest: Seconds(MAX_PERIOD),
        update_cost: Cost(1.0),
    })
}

/// Items of 0.5 s, read so often a second, watched for ten seconds.
fn watched(rates: &[(&str, f64)]) -> UpdatePeriods {
    let mut found = periods();
    for (name, _) in rates {
        found.declare(name, Seconds(0.5)).unwrap();
    }
    for _ in 0..10 {
        for (name, rate) in rates {
            found.accessed(name, *rate);
        }
        found.step(Seconds(1.0), Pressure::Held, Cost(1000.0));
    }
    found
}

fn period(of: &UpdatePeriods, name: &str) -> f64 {
    of.period(name).unwrap().get()
}

#[test]
fn cold_items_are_updated_as_often_as_they_are_read_and_hot_ones_as_before() {
    // AUR 0.2, 0.02 and 2: eq. 2 gives 2.5 s, P_max, and nothing.
    let mut found = watched(&[("cool", 0.4), ("cold", 0.04), ("hot", 4.0), ("never", 0.0)]);
    found.accessed("cool", 0.4);
    found.accessed("cold", 0.04);
    found.accessed("hot", 4.0);
    assert!(found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9)));
    assert!((period(&found, "cool") - 2.5).abs() < 1e-9);
    assert_eq!(period(&found, "cold"), MAX_PERIOD);
    assert_eq!(period(&found, "never"), MAX_PERIOD);
    assert_eq!(period(&found, "hot"), 0.5);
    assert_eq!(found.relaxed_count(), 3);
    let names: Vec<&str> = found.relaxed().map(|(name, _)| name).collect();
    assert_eq!(names, ["cold", "cool", "never"]);
    let (now, own) = found.updates_per_second();
    assert!((now - (2.0 + 0.4 + 0.2 + 0.2)).abs() < 1e-9);
    assert_eq!(own, 8.0);
}

#[test]
fn omitted_updates_match_the_bounds_reduction() {
    let names: Vec<String> = (0..100).map(|n| format!("item{n:02}")).collect();
    let rates: Vec<(&str, f64)> = names
        .iter()
        .map(|name| name.as_str())
        .zip((0..100).map(|n| 0.01 * f64::from(n)))
        .collect();
    let mut found = watched(&rates);
    // A tenth of 100 units a second: each of the coldest items gives 2 - 0.2 of them.
    found.step(Seconds(1.0), Pressure::Over(0.1), Cost(100.0));
    assert_eq!(found.relaxed_count(), 6);
    assert!(found.relaxed().all(|(name, _)| name < "item06"));
}

#[test]
fn periods_stay_without_overload_or_before_watching() {
    let mut found = watched(&[("cold", 0.01)]);
    for _ in 0..100 {
        assert!(!found.step(Seconds(1.0), Pressure::Light, Cost(1.0)));
        assert!(!found.step(Seconds(1.0), Pressure::Held, Cost(1.0)));
    }
    found.declare("new", Seconds(0.5)).unwrap();
    found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    assert_eq!(period(&found, "new"), 0.5);
    assert_eq!(period(&found, "cold"), MAX_PERIOD);
}

#[test]
fn item_read_more_often_becomes_fresh_under_overload() {
    let mut found = watched(&[("share", 0.1)]);
    found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    assert_eq!(period(&found, "share"), MAX_PERIOD);
    for _ in 0..10 {
        found.accessed("share", 100.0);
        found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    }
    assert_eq!(period(&found, "share"), 0.5);
    assert_eq!(found.relaxed_count(), 0);
}

#[test]
fn all_periods_are_restored_within_30_steps_after_overload() {
    let names: Vec<String> = (0..1000).map(|n| format!("i{n}")).collect();
    let rates: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 0.1)).collect();
    let mut found = watched(&rates);
    // Came back too early time and again, so that patience is at its longest.
    for _ in 0..10 {
        found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
        for _ in 0..12 {
            found.step(Seconds(1.0), Pressure::Light, Cost(1e9));
        }
    }
    found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    assert_eq!(found.relaxed_count(), 1000);
    let mut left = Vec::new();
    for _ in 0..30 {
        found.step(Seconds(1.0), Pressure::Light, Cost(1e9));
        left.push(found.relaxed_count());
    }
    assert!(left.windows(2).all(|pair| pair[1] <= pair[0]), "{left:?}");
    // Not all at once: that would be the next overload.
    assert!(
        left.windows(2).all(|pair| pair[0] - pair[1] <= 125),
        "{left:?}"
    );
    assert_eq!(left[29], 0, "{left:?}");
}

#[test]
fn hottest_items_are_restored_first() {
    let mut found = watched(&[("a", 0.1), ("b", 0.9), ("c", 0.5)]);
    found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    let mut order = Vec::new();
    for _ in 0..20 {
        let before: Vec<String> = found.relaxed().map(|(name, _)| name.into()).collect();
        for (name, rate) in [("a", 0.1), ("b", 0.9), ("c", 0.5)] {
            found.accessed(name, rate);
        }
        found.step(Seconds(1.0), Pressure::Light, Cost(1e9));
        order.extend(
            before
                .into_iter()
                .filter(|name| period(&found, name) == 0.5),
        );
    }
    assert_eq!(order, ["b", "c", "a"]);
}

#[test]
fn invalid_names_and_periods_are_refused() {
    let mut found = periods();
    for name in ["", "white space", "tab\t", "ä", &"x".repeat(129)] {
        assert_eq!(found.declare(name, Seconds(1.0)), Err(ItemError::Name));
    }
    for period in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1e9] {
        assert_eq!(
            found.declare("x", Seconds(period)),
            Err(ItemError::Period),
            "{period}"
        );
    }
    assert!(found.is_empty());
    found.accessed("unknown", 1.0);
    assert!(found.is_empty());
}

#[test]
fn coldest_items_beyond_the_maximum_are_dropped_and_counted() {
    let mut found = periods();
    for n in 0..MAX_ITEMS {
        found.declare(&format!("n{n}"), Seconds(0.5)).unwrap();
    }
    found.accessed("n0", 50.0);
    found.step(Seconds(1.0), Pressure::Held, Cost(1.0));
    assert_eq!(found.forgotten(), 0);
    found.declare("newcomer", Seconds(0.5)).unwrap();
    assert_eq!(found.period("newcomer"), None);
    found.step(Seconds(1.0), Pressure::Held, Cost(1.0));
    assert!(found.forgotten() > 0);
    found.declare("newcomer", Seconds(0.5)).unwrap();
    assert_eq!(period(&found, "newcomer"), 0.5);
    assert_eq!(period(&found, "n0"), 0.5);
    assert!(found.len() <= MAX_ITEMS);
}

#[test]
fn stopped_or_backward_clock_changes_nothing() {
    let mut found = watched(&[("cold", 0.01)]);
    for passed in [0.0, -5.0, f64::NAN, f64::INFINITY] {
        assert!(!found.step(Seconds(passed), Pressure::Over(1.0), Cost(1e9)));
    }
    assert_eq!(period(&found, "cold"), 0.5);
}

#[test]
fn pressure_follows_the_controllers_decision() {
    let settings = Settings {
        sla: Sla {
            delay: Seconds(1.0),
            settling: Seconds(10.0),
            objective: Objective::Mean,
            set_point: 1.0,
        },
        limits: BoundLimits {
            min: Cost(1.0),
            max: Cost(1e6),
            nominal: Some(Cost(100.0)),
        },
        law: Law::Fixed,
        mpl: false,
        mode: ServiceMode::Enforce,
        self_tuned: false,
        rules: Rules::default(),
    };
    let mut decision = NodeController::new(settings).unwrap().decision();
    assert_eq!(Pressure::of(&decision), Pressure::Held);
    for (reason, bound, wanted) in [
        ("over_sla", 80.0, Pressure::Over(0.2)),
        ("under_sla", 120.0, Pressure::Over(0.05)),
        ("at_min", 100.0, Pressure::Over(1.0)),
        ("light_load", 100.0, Pressure::Light),
        ("source_lost", 100.0, Pressure::Held),
        ("fixed", 50.0, Pressure::Held),
        ("few_samples", 100.0, Pressure::Held),
        ("few_samples", 250.0, Pressure::Light),
    ] {
        decision.reason = plimsoll_core::Reason::ALL
            .into_iter()
            .find(|known| known.as_str() == reason)
            .unwrap();
        decision.previous = Cost(100.0);
        decision.recent_peak = Cost(90.0);
        decision.bound = Cost(bound);
        match (Pressure::of(&decision), wanted) {
            (Pressure::Over(found), Pressure::Over(wanted)) => {
                assert!((found - wanted).abs() < 1e-9, "{reason}");
            }
            (found, wanted) => assert_eq!(found, wanted, "{reason}"),
        }
    }
}

#[test]
fn unknown_period_does_not_restart_the_calm() {
    let mut found = watched(&[("cold", 0.01)]);
    found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    assert_eq!(found.relaxed_count(), 1);
    for pressure in [
        Pressure::Light,
        Pressure::Held,
        Pressure::Light,
        Pressure::Held,
        Pressure::Held,
    ] {
        assert!(!found.step(Seconds(1.0), pressure, Cost(1.0)));
    }
    assert!(found.step(Seconds(1.0), Pressure::Light, Cost(1.0)));
    assert_eq!(period(&found, "cold"), 0.5);
}

proptest! {
    #[test]
    fn periods_stay_between_own_and_longest(
        steps in prop::collection::vec(
            (0u8..4, 0.0f64..2.0, 0.0f64..1e4, prop::collection::vec((0usize..20, 0.0f64..50.0), 0..20)),
            1..60,
        ),
        own in prop::collection::vec(0.01f64..20.0, 20),
    ) {
        let mut found = periods();
        for (n, own) in own.iter().enumerate() {
            found.declare(&format!("i{n}"), Seconds(*own)).unwrap();
        }
        for (kind, part, work, accesses) in steps {
            for (n, times) in accesses {
                found.accessed(&format!("i{n}"), times);
            }
            let pressure = match kind {
                0 => Pressure::Over(part),
                1 => Pressure::Held,
                _ => Pressure::Light,
            };
            let version = found.version();
            let changed = found.step(Seconds(1.0), pressure, Cost(work));
            prop_assert_eq!(changed, found.version() != version);
            for (n, own) in own.iter().enumerate() {
                let now = period(&found, &format!("i{n}"));
                prop_assert!(now >= *own && now <= own.max(MAX_PERIOD), "{} of {}", now, own);
            }
            let relaxed: Vec<_> = found.relaxed().collect();
            prop_assert_eq!(relaxed.len(), found.relaxed_count());
        }
    }
}

#[test]
fn removed_items_leave_all_counts() {
    let mut found = periods();
    for name in ["a", "b"] {
        found.declare(name, Seconds(0.5)).unwrap();
    }
    for _ in 0..5 {
        found.step(Seconds(1.0), Pressure::Over(1.0), Cost(1e9));
    }
    assert_eq!(found.relaxed_count(), 2);
    let version = found.version();
    found.retain(|name| name == "b");
    assert_eq!((found.len(), found.relaxed_count()), (1, 1));
    assert!(found.version() > version);
    assert_eq!(found.period("a"), None);
    assert_eq!(found.longest_period(), Some(Seconds(MAX_PERIOD)));
    found.retain(|_| false);
    assert_eq!((found.longest_period(), found.relaxed_count()), (None, 0));
}
