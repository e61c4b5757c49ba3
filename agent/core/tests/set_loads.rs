//! Demand per object set: smoothing, chance, and what is forgotten.
#![allow(clippy::unwrap_used)]

use plimsoll_core::placement::{ObjectSet, RESTS, SetLoad, SetLoads, rest_of};

fn name(name: &str) -> ObjectSet {
    ObjectSet::Named(name.into())
}

fn of(loads: &SetLoads, set: &ObjectSet) -> Option<SetLoad> {
    loads.loads().into_iter().find(|load| load.set == *set)
}

fn names(loads: &SetLoads) -> Vec<String> {
    let all = loads.loads().into_iter();
    let named = all.filter(|load| matches!(load.set, ObjectSet::Named(_)));
    named.map(|load| load.set.to_string()).collect()
}

#[test]
fn first_five_periods_are_averaged_and_later_ones_count_for_a_fifth() {
    let mut loads = SetLoads::default();
    let mut period = |cost: f64| {
        loads.came("orders", cost).unwrap();
        loads.end_period();
        of(&loads, &name("orders")).unwrap().load
    };
    for (cost, smoothed) in [
        (10.0, 10.0),
        (20.0, 15.0),
        (30.0, 20.0),
        (40.0, 25.0),
        (50.0, 30.0),
        (0.0, 24.0),
        (44.0, 28.0),
    ] {
        let found = period(cost);
        assert!((found - smoothed).abs() < 1e-9, "{found} for {smoothed}");
    }
}

#[test]
fn variance_by_chance_is_the_sum_of_squared_costs_and_averages_out() {
    let mut loads = SetLoads::default();
    loads.came("orders", 3.0).unwrap();
    loads.came("orders", 4.0).unwrap();
    loads.told(&name("told"), 10.0, 2.0);
    loads.told(&name("told"), 1.0, 2.0);
    loads.told(&ObjectSet::Rest(5), 6.0, 0.5);
    let noise = |loads: &SetLoads, set: &ObjectSet| of(loads, set).unwrap().noise;
    loads.end_period();
    assert_eq!(noise(&loads, &name("orders")), 25.0);
    assert_eq!(noise(&loads, &name("told")), 22.0);
    assert_eq!(noise(&loads, &ObjectSet::Rest(5)), 3.0);
    assert_eq!(of(&loads, &name("told")).unwrap().load, 11.0);
    loads.came("orders", 2.0).unwrap();
    loads.end_period();
    assert_eq!(noise(&loads, &name("orders")), 25.0 / 4.0 + 4.0 / 4.0);
}

#[test]
fn a_name_without_room_counts_towards_its_rest() {
    let mut loads = SetLoads::new(1);
    loads.came("first", 1.0).unwrap();
    loads.came("second", 2.0).unwrap();
    loads.told(&name("third"), 4.0, 1.0);
    loads.told(&name("first"), 8.0, 1.0);
    loads.told(&ObjectSet::Rest(RESTS), 16.0, 1.0);
    loads.end_period();
    let rests = ["second", "third"].map(|name| ObjectSet::Rest(rest_of(name)));
    assert_ne!(rests[0], rests[1]);
    assert_eq!(of(&loads, &rests[0]).unwrap().load, 2.0);
    assert_eq!(of(&loads, &rests[1]).unwrap().load, 4.0);
    assert_eq!(loads.loads().iter().map(|it| it.load).sum::<f64>(), 6.0);
    assert_eq!(loads.forgotten(), 1, "a full count makes room");
}

#[test]
fn a_cost_that_cannot_be_is_no_load() {
    let mut loads = SetLoads::default();
    for cost in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        loads.came("orders", cost).unwrap();
        loads.told(&name("told"), cost, 1.0);
    }
    assert!(loads.came("no name", 1.0).is_err());
    loads.end_period();
    assert_eq!(loads.loads(), []);
}

#[test]
fn coldest_names_are_forgotten_while_more_than_three_quarters_are_taken() {
    let after = |costs: &[f64]| {
        let mut loads = SetLoads::new(4);
        for (name, cost) in ["a", "b", "c", "d"].iter().zip(costs) {
            loads.came(name, *cost).unwrap();
        }
        loads.end_period();
        (names(&loads).join(""), loads.forgotten())
    };
    assert_eq!(after(&[4.0, 1.0, 3.0, 2.0]), ("=a=c=d".to_owned(), 1));
    assert_eq!(after(&[4.0, 1.0, 3.0]), ("=a=b=c".to_owned(), 0));
    // Those as hot as the first one beyond go with it.
    assert_eq!(after(&[1.0, 2.0, 1.0, 1.0]), ("=b".to_owned(), 3));
}

#[test]
fn a_name_without_demand_fades() {
    let mut loads = SetLoads::default();
    loads.came("cold", 1.0).unwrap();
    let mut kept = 0;
    for _ in 0..100 {
        loads.came("hot", 1.0).unwrap();
        loads.end_period();
        kept += usize::from(of(&loads, &name("cold")).is_some());
    }
    assert!((80..100).contains(&kept), "{kept}");
    assert_eq!(
        (names(&loads), loads.forgotten()),
        (vec!["=hot".to_owned()], 1)
    );
}
