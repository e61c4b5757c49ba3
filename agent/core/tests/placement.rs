//! Plans: balance, few moves, and robustness against chance and floods.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use plimsoll_core::placement::*;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop, prop_assert, prop_oneof, proptest};
use rand::{Rng, SeedableRng, rngs::SmallRng};

fn brute_force(loads: &[f64], capacities: &[f64]) -> f64 {
    let nodes = capacities.len();
    let all = nodes.pow(loads.len() as u32);
    let of = |mut code: usize| -> Vec<usize> {
        let digit = |_| {
            let node = code % nodes;
            code /= nodes;
            node
        };
        loads.iter().map(digit).collect()
    };
    (0..all)
        .map(|code| variance(loads, capacities, &of(code)))
        .fold(f64::INFINITY, f64::min)
}

fn named(name: &str, load: f64) -> SetLoad {
    SetLoad {
        set: ObjectSet::Named(name.into()),
        load,
        noise: 0.0,
    }
}

fn nodes(capacities: &[f64]) -> BTreeMap<NodeId, f64> {
    (0..).zip(capacities.iter().copied()).collect()
}

/// A table in which each of these names has an entry of its own, at this node.
fn table(names: &[(String, NodeId)]) -> Table {
    let mut keeper = Keeper::new(Table::new(|_| 0));
    let change = |(name, node): &(String, NodeId)| Change::Name(name.as_str().into(), *node);
    keeper
        .begin(&names.iter().map(change).collect::<Vec<_>>())
        .unwrap();
    assert!(!keeper.is_moving());
    keeper.table().clone()
}

fn carried_out(table: &Table, planned: &Planned) -> Table {
    let mut keeper = Keeper::new(table.clone());
    keeper.begin(&planned.changes).unwrap();
    keeper.table().clone()
}

#[test]
fn greedy_puts_the_hottest_set_on_the_least_loaded_node() {
    let found = greedy(&[1.0, 5.0, 3.0, 4.0], &[1.0, 1.0]).unwrap();
    assert_eq!(found, [0, 0, 1, 1]);
    // Twice the capacity, twice the load.
    let found = greedy(&[1.0; 9], &[1.0, 2.0]).unwrap();
    assert_eq!(found.iter().filter(|node| **node == 1).count(), 6);
    // Nothing for a node without capacity.
    let found = greedy(&[1.0; 9], &[1.0, 0.0, f64::NAN, -1.0, 1.0]).unwrap();
    assert!(found.iter().all(|node| [0, 4].contains(node)));
    assert_eq!(greedy(&[1.0], &[0.0]), None);
    assert_eq!(greedy(&[1.0], &[]), None);
}

#[test]
fn variance_matches_the_paper_for_equal_nodes() {
    // 6 and 2: the mean is 4.
    assert_eq!(variance(&[6.0, 2.0], &[1.0, 1.0], &[0, 1]), 4.0);
    assert_eq!(variance(&[6.0, 2.0], &[1.0, 1.0, 0.0], &[0, 1]), 4.0);
    assert_eq!(variance(&[6.0, 2.0], &[3.0, 1.0], &[0, 1]), 0.0);
}

fn few() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    let loads = prop::collection::vec(
        prop_oneof![1.0..100.0_f64, (1..20_u8).prop_map(f64::from)],
        1..=7,
    );
    let capacities = prop_oneof![
        (2..=4_usize).prop_map(|count| vec![1.0; count]),
        prop::collection::vec(0.5..2.0_f64, 2..=4),
    ];
    (loads, capacities)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn branch_and_bound_finds_the_best((loads, capacities) in few()) {
        let mut found = greedy(&loads, &capacities).unwrap();
        prop_assert!(branch_and_bound(&loads, &capacities, &mut found, 1_000_000));
        let best = brute_force(&loads, &capacities);
        let scale: f64 = loads.iter().sum::<f64>().powi(2);
        prop_assert!(variance(&loads, &capacities, &found) <= best + 1e-9 * scale);
    }

    #[test]
    fn greedy_removes_most_of_the_variance((loads, capacities) in few()) {
        let capacities = vec![1.0; capacities.len()];
        let of = |found: &[usize]| variance(&loads, &capacities, found);
        let mut found = greedy(&loads, &capacities).unwrap();
        let uneven = of(&vec![0; loads.len()]);
        prop_assert!(of(&found) <= brute_force(&loads, &capacities) + 0.05 * uneven);
        let before = of(&found);
        improve(&loads, &capacities, &mut found);
        prop_assert!(of(&found) <= before + 1e-9 * uneven);
    }

    #[test]
    fn a_plan_is_at_most_5_percent_worse_than_the_best((loads, capacities) in few()) {
        let names: Vec<(String, NodeId)> = (0..loads.len()).map(|i| (format!("set{i}"), 0)).collect();
        let table = table(&names);
        let asked: Vec<SetLoad> = names.iter().zip(&loads).map(|((name, _), load)| named(name, *load)).collect();
        let all = PlanSettings { threshold: 0.0, gain: 0.0 };
        let planned = Planner::new(all).plan(&table, &asked, &nodes(&capacities));
        let after = carried_out(&table, &planned);
        let primaries: Vec<usize> = names
            .iter()
            .map(|(name, _)| after.state(&after.set_of(name)).unwrap().primary() as usize)
            .collect();
        let now = variance(&loads, &capacities, &primaries);
        let before = variance(&loads, &capacities, &vec![0; loads.len()]);
        prop_assert!(now <= 1.05 * brute_force(&loads, &capacities) + 1e-5 * before, "{now} {planned:?}");
    }

    #[test]
    fn plan_is_valid_for_any_loads(
        loads in prop::collection::vec(prop_oneof![8 => 0.0..10.0_f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-1.0)], 0..40),
        capacities in prop::collection::vec(prop_oneof![3 => 0.1..2.0_f64, 1 => Just(0.0), 1 => Just(f64::NAN)], 0..6),
        homes in prop::collection::vec(0..8_u32, 40),
    ) {
        let names: Vec<(String, NodeId)> = homes.iter().enumerate().map(|(i, node)| (format!("set{i}"), *node)).collect();
        let table = table(&names);
        let asked: Vec<SetLoad> = (0..).zip(&loads).map(|(i, load)| named(&format!("set{i}"), *load)).collect();
        let nodes = nodes(&capacities);
        let planned = Planner::default().plan(&table, &asked, &nodes);
        prop_assert!(planned.before.is_finite() && planned.after.is_finite());
        prop_assert!(planned.after <= planned.before + 1e-9);
        match planned.reason {
            PlanReason::Even | PlanReason::NoNodes => prop_assert!(planned.before <= planned.even + 1e-9),
            PlanReason::Uneven | PlanReason::NoGain => prop_assert!(planned.before >= planned.even - 1e-9),
        }
        let lives = |node: NodeId| nodes.get(&node).is_some_and(|capacity| *capacity > 0.0);
        if planned.reason != PlanReason::NoNodes {
            let after = carried_out(&table, &planned);
            for (set, state) in after.entries() {
                prop_assert!(lives(state.primary()), "{set:?} {state:?}");
            }
        }
    }
}

#[test]
fn even_load_moves_nothing() {
    let names: Vec<(String, NodeId)> = (0..36).map(|i| (format!("table{i}"), i % 9)).collect();
    let table = table(&names);
    // No rest matters, but they have to be somewhere.
    let noisy = |i: usize| 10.0 + (i * 7 % 5) as f64 / 5.0;
    let asked: Vec<SetLoad> = names
        .iter()
        .enumerate()
        .map(|(i, (name, _))| named(name, noisy(i)))
        .collect();
    let planned = Planner::default().plan(&table, &asked, &nodes(&[1.0; 9]));
    assert_eq!(
        (planned.reason, planned.changes),
        (PlanReason::Even, Vec::new())
    );
    // Uneven, but not improvable: one set has all of the load.
    let planned = Planner::default().plan(&table, &[named("table3", 50.0)], &nodes(&[1.0; 9]));
    assert_eq!(
        (planned.reason, planned.changes.len()),
        (PlanReason::NoGain, 0)
    );
    // And without any load.
    let planned = Planner::default().plan(&table, &[], &nodes(&[1.0; 9]));
    assert_eq!(
        (planned.reason, planned.changes.len()),
        (PlanReason::Even, 0)
    );
}

#[test]
fn small_imbalance_moves_few_sets() {
    let mut names: Vec<(String, NodeId)> = (0..1000).map(|i| (format!("set{i}"), i % 10)).collect();
    for (_, node) in names.iter_mut().take(100) {
        *node = 0;
    }
    let table = table(&names);
    let asked: Vec<SetLoad> = names.iter().map(|(name, _)| named(name, 1.0)).collect();
    let planned = Planner::default().plan(&table, &asked, &nodes(&[1.0; 10]));
    assert_eq!(planned.reason, PlanReason::Uneven);
    assert!(planned.after < 0.05, "{planned:?}");
    assert!(planned.changes.len() < 120, "{}", planned.changes.len());
}

#[test]
fn sets_of_a_dead_node_move_under_even_load() {
    let names: Vec<(String, NodeId)> = (0..30).map(|i| (format!("set{i}"), i % 3)).collect();
    let table = table(&names);
    let asked: Vec<SetLoad> = names.iter().map(|(name, _)| named(name, 1.0)).collect();
    let planned = Planner::default().plan(&table, &asked, &nodes(&[1.0, 1.0, 0.0]));
    assert!(planned.after < 0.01, "{planned:?}");
    let after = carried_out(&table, &planned);
    assert!(after.entries().all(|(_, state)| state.primary() != 2));
    let planned = Planner::default().plan(&table, &asked, &nodes(&[0.0, 0.0, 0.0]));
    assert_eq!(planned.reason, PlanReason::NoNodes);
}

#[test]
fn invalid_names_are_refused_with_a_reason() {
    assert_eq!(check_name("orders/7"), Ok(()));
    assert_eq!(check_name(""), Err(NameError::Empty));
    assert_eq!(check_name(&"x".repeat(129)), Err(NameError::Long(129)));
    assert_eq!(check_name("a b"), Err(NameError::Character(1)));
    assert_eq!(check_name("grün"), Err(NameError::Character(2)));
    assert_eq!(check_name("a\u{0}"), Err(NameError::Character(1)));
    let mut follower = Follower::default();
    assert_eq!(follower.route("a\nb"), Err(NameError::Character(1)));
}

#[test]
fn name_flood_is_bounded_in_memory_and_hides_no_hot_name() {
    let mut loads = SetLoads::new(100);
    for period in 0..20 {
        for i in 0..1000 {
            loads.came(&format!("junk{period}-{i}"), 1.0).unwrap();
            loads.came("orders", 1.0).unwrap();
        }
        loads.end_period();
        assert!(loads.loads().len() <= 100 + usize::from(RESTS));
    }
    let loads_now = loads.loads();
    let of = |name: &str| {
        loads_now
            .iter()
            .find(|set| set.set == ObjectSet::Named(name.into()))
    };
    assert_eq!(of("orders").unwrap().load, 1000.0);
    assert!(loads.forgotten() > 1000);
    // Names that are not counted individually count towards their rests.
    let all: f64 = loads_now.iter().map(|set| set.load).sum();
    assert!(all > 1800.0, "{all}");
}

#[test]
fn coldest_names_lose_entries_when_few_are_free() {
    let names: Vec<(String, NodeId)> = (0..13_000).map(|i| (format!("set{i}"), i % 2)).collect();
    let table = table(&names);
    let hot = names.iter().take(20).map(|(name, _)| named(name, 1.0));
    let planned = Planner::default().plan(&table, &hot.collect::<Vec<_>>(), &nodes(&[1.0, 1.0]));
    let mut keeper = Keeper::new(table);
    keeper.begin(&planned.changes).unwrap();
    assert_eq!((keeper.table().named(), keeper.forgotten()), (20, 12_980));
}

#[test]
fn variance_by_chance_moves_nothing() {
    let names: Vec<(String, NodeId)> = (0..36).map(|i| (format!("table{i}"), i % 9)).collect();
    let table = table(&names);
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..100 {
        // Few requests for each; every set is as hot as any other.
        let mut loads = SetLoads::default();
        for _ in 0..180 {
            loads
                .came(&names[random.random_range(0..36)].0, 1.0)
                .unwrap();
        }
        loads.end_period();
        let planned = Planner::default().plan(&table, &loads.loads(), &nodes(&[1.0; 9]));
        assert_eq!(
            (planned.reason, planned.changes.len()),
            (PlanReason::Even, 0),
            "{planned:?}"
        );
    }
}

#[test]
fn invalid_changes_leave_the_table_unchanged() {
    let mut table = Table::new(|_| 7);
    let before = table.clone();
    let delta = |from, to, entries| Delta { from, to, entries };
    assert_eq!(table.apply(&delta(1, 1, vec![])), Err(Gap::Late));
    assert_eq!(table.apply(&delta(2, 3, vec![])), Err(Gap::Missed));
    let settled = Some(State::Settled(1));
    for wrong in [
        (ObjectSet::Rest(RESTS), settled),
        (ObjectSet::Rest(0), None),
        (ObjectSet::Named("".into()), settled),
    ] {
        assert_eq!(table.apply(&delta(1, 2, vec![wrong])), Err(Gap::Wrong));
    }
    assert_eq!(table, before);
}

#[test]
fn keeper_refuses_invalid_requests() {
    let mut keeper = Keeper::new(Table::new(|_| 0));
    assert_eq!(keeper.heard(1, 1, &[]), Err(KeeperError::Unknown(1)));
    keeper.join(1).unwrap();
    assert_eq!(keeper.join(1), Err(KeeperError::Joined(1)));
    assert_eq!(
        keeper.heard(1, 9, &[]),
        Err(KeeperError::Ahead { have: 1, told: 9 })
    );
    keeper.node_down(3);
    let refused = |keeper: &mut Keeper, change| keeper.begin(&[change]).unwrap_err().to_string();
    assert_eq!(
        refused(&mut keeper, Change::Move(ObjectSet::Rest(0), 3)),
        "node 3 is down"
    );
    assert_eq!(
        refused(&mut keeper, Change::Forget("x".into())),
        "object set x has no entry of its own"
    );
    assert_eq!(
        refused(&mut keeper, Change::Move(ObjectSet::Rest(99), 1)),
        "rest 99, maximum 63"
    );
    assert!(refused(&mut keeper, Change::Name("a b".into(), 1)).contains("visible ASCII"));
    assert_eq!(keeper.table(), &Table::new(|_| 0));
}

#[test]
fn recovered_keeper_reverts_handovers_at_once() {
    let mut before = Keeper::new(Table::new(|rest| u32::from(rest) % 2));
    before.join(1).unwrap();
    before
        .begin(&[Change::Move(ObjectSet::Rest(0), 5)])
        .unwrap();
    let mut keeper = Keeper::recovered(before.table().clone());
    assert_eq!(keeper.table().rest(0), Some(State::Settled(0)));
    keeper.join_at(1, 1).unwrap();
    // A dispatcher that left meanwhile may have requests in flight.
    keeper.join_at(2, 1).unwrap();
    keeper.left(2, false);
    let change = Change::Move(ObjectSet::Rest(1), 5);
    keeper.begin(std::slice::from_ref(&change)).unwrap();
    keeper.heard(1, keeper.table().version(), &[]).unwrap();
    assert_eq!(keeper.table().rest(1), Some(State::Leaving(1)));
    keeper.vouched(1);
    assert_eq!(keeper.table().rest(1), Some(State::Settled(5)));
}

#[test]
fn name_leaves_a_rest_whose_primary_goes_down() {
    let mut keeper = Keeper::new(Table::new(|_| 1));
    keeper.join(7).unwrap();
    keeper.begin(&[Change::Name("hot".into(), 2)]).unwrap();
    keeper.node_down(1);
    let version = keeper.table().version();
    keeper.heard(7, version, &[]).unwrap();
    assert!(!keeper.is_moving(), "nothing else could ever move");
    let hot = keeper.table().state(&ObjectSet::Named("hot".into()));
    assert_eq!(hot, Some(State::Settled(2)));
    assert_eq!(keeper.table().rest(rest_of("hot")), Some(State::Settled(1)));
}
