//! The keeper over time: silent dispatchers, nodes that leave, pins, handovers that take too long.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::placement::*;

const LEASE: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn named(name: &str) -> ObjectSet {
    ObjectSet::Named(name.into())
}

fn settings() -> StewardSettings {
    StewardSettings {
        plan: PlanSettings::default(),
        moves: true,
        request_limit: LIMIT,
        lease: LEASE,
    }
}

fn nodes(live: &[NodeId]) -> Option<BTreeMap<NodeId, NodeNow>> {
    let node = NodeNow {
        capacity: 100.0,
        mean_cost: 1.0,
    };
    Some(live.iter().map(|id| (*id, node)).collect())
}

fn heard(id: DispatcherId, version: u64, busy: &[ObjectSet]) -> Heard {
    Heard {
        id,
        age: Duration::ZERO,
        version,
        joined: 1,
        busy: busy.to_vec(),
    }
}

/// One dispatcher that is up to date and free; eight rests asked for, all on node 1.
fn uneven(steward: &Steward) -> Reading {
    let loads = (0..8).map(|rest| (ObjectSet::Rest(rest), 1000.0));
    Reading {
        dispatchers: vec![heard(7, steward.table().version(), &[])],
        nodes: nodes(&[1, 2]),
        loads: Some(loads.collect()),
        ..Reading::default()
    }
}

fn on(steward: &Steward, node: NodeId) -> usize {
    let rests = (0..8).filter_map(|rest| steward.table().rest(rest));
    rests.filter(|state| *state == State::Settled(node)).count()
}

#[test]
fn uneven_load_is_balanced_in_two_steps() {
    let mut steward = Steward::new(Table::new(|_| 1), settings());
    let reading = uneven(&steward);
    let step = steward.step(seconds(0), &reading);
    assert_eq!(step.planned.unwrap().reason, PlanReason::Uneven);
    let delta = step.delta.unwrap();
    assert_eq!((delta.from, delta.to, delta.entries.len()), (1, 2, 4));
    assert_eq!((steward.moving(), on(&steward, 2)), (4, 0));
    let reading = Reading {
        loads: None,
        ..uneven(&steward)
    };
    let step = steward.step(seconds(1), &reading);
    assert_eq!(step.ended.len(), 4);
    assert!(
        step.ended
            .iter()
            .all(|(_, how, after)| *how == Ended::Done && *after == seconds(1))
    );
    assert_eq!((steward.moving(), on(&steward, 2)), (0, 4));
    let reading = uneven(&steward);
    let step = steward.step(seconds(2), &reading);
    assert_eq!(step.planned.unwrap().reason, PlanReason::Even);
    assert_eq!(step.delta, None);
}

#[test]
fn handover_waits_for_unknown_dispatcher_that_joined_before() {
    let mut steward = Steward::new(Table::new(|_| 1), settings());
    let nobody = Reading {
        dispatchers: Vec::new(),
        ..uneven(&steward)
    };
    steward.step(seconds(0), &nobody);
    // Not even in the same step, though no dispatcher is known: one may just be joining.
    assert_eq!(steward.moving(), 4);
    let mut reading = uneven(&steward);
    reading.dispatchers[0].version = 1;
    steward.step(seconds(1), &reading);
    assert_eq!(steward.moving(), 4);
    let reading = uneven(&steward);
    steward.step(seconds(2), &reading);
    assert_eq!(steward.moving(), 0);
}

#[test]
fn silent_dispatcher_blocks_and_reverts_handovers() {
    let mut steward = Steward::new(Table::new(|_| 1), settings());
    let mut reading = uneven(&steward);
    reading.dispatchers.push(heard(8, 1, &[]));
    steward.step(seconds(0), &reading);
    assert_eq!(steward.moving(), 4);
    // Dispatcher 8 misses the change.
    for second in 1..=70 {
        let mut reading = uneven(&steward);
        let mut silent = heard(8, 1, &[]);
        silent.age = seconds(second);
        reading.dispatchers.push(silent);
        let step = steward.step(seconds(second), &reading);
        assert_eq!(step.silent.is_empty(), second <= 10);
        assert!(step.planned.is_none());
    }
    let mut reading = uneven(&steward);
    let mut silent = heard(8, 1, &[]);
    silent.age = seconds(71);
    reading.dispatchers.push(silent);
    let step = steward.step(seconds(71), &reading);
    assert!(step.ended.iter().all(|(_, how, _)| *how == Ended::Back));
    assert_eq!((step.ended.len(), on(&steward, 1)), (4, 8));
    // It is reported dead, but its requests may still run.
    let mut reading = uneven(&steward);
    reading.gone = vec![8];
    let step = steward.step(seconds(72), &reading);
    assert_eq!((step.silent.len(), steward.moving()), (0, 0));
    for second in 73..=130 {
        let reading = uneven(&steward);
        steward.step(seconds(second), &reading);
    }
    assert_eq!(steward.moving(), 0, "not again so soon");
    let reading = uneven(&steward);
    steward.step(seconds(131), &reading);
    assert_eq!(steward.moving(), 4);
}

#[test]
fn node_loses_sets_after_a_lease_but_not_by_a_restart() {
    let quiet = StewardSettings {
        moves: false,
        ..settings()
    };
    let mut steward = Steward::new(Table::new(|rest| 1 + u32::from(rest % 2)), quiet);
    let look = |steward: &mut Steward, second, live: &[NodeId]| {
        let reading = Reading {
            nodes: nodes(live),
            ..uneven(steward)
        };
        steward.step(seconds(second), &reading)
    };
    look(&mut steward, 0, &[1, 2]);
    look(&mut steward, 10, &[1]);
    assert_eq!(steward.moving(), 0);
    look(&mut steward, 11, &[1, 2]);
    look(&mut steward, 21, &[1]);
    assert_eq!(steward.moving(), 0);
    look(&mut steward, 22, &[1]);
    assert_eq!(steward.moving(), 32);
    look(&mut steward, 23, &[1]);
    assert_eq!((steward.moving(), on(&steward, 1)), (0, 8));
    // Without `moves` nothing goes to it when it is back.
    look(&mut steward, 24, &[1, 2]);
    assert_eq!(steward.moving(), 0);
}

#[test]
fn set_reverts_after_loss_once_no_dispatcher_can_act_on_it() {
    let leaving = |rest| match rest {
        5 => State::Leaving(1),
        _ => State::Settled(1),
    };
    let entries = (0..RESTS).map(|rest| (ObjectSet::Rest(rest), leaving(rest)));
    let table = Table::from_entries(9, entries).unwrap();
    let first = first_of_term(9, 3).unwrap();
    let mut steward = Steward::resumed(table.clone(), settings(), first, true);
    assert_eq!(
        (steward.table().version(), first),
        (first, 4 * TERM_VERSIONS)
    );
    let mut reading = Reading {
        dispatchers: vec![heard(7, 9, &[]), heard(8, 9, &[])],
        ..Reading::default()
    };
    let step = steward.step(seconds(0), &reading);
    assert_eq!(
        step.delta.map(|delta| (delta.from, delta.to)),
        Some((9, first))
    );
    // One reported a version of this term; the other reported a lost one and is out.
    reading.dispatchers = vec![heard(8, first, &[])];
    reading.gone = vec![7];
    // Not even after as long as others are given up.
    steward.step(seconds(100), &reading);
    assert!(steward.is_after_loss() && steward.table().rest(5) == Some(State::Leaving(1)));
    reading.gone.clear();
    steward.step(seconds(101), &reading);
    assert!(!steward.is_after_loss());
    assert_eq!(steward.table().rest(5), Some(State::Settled(1)));
    // Where nothing was lost it is back at once, and there is no number from before.
    let same = Steward::resumed(table, settings(), first, false);
    assert_eq!(same.table().rest(5), Some(State::Settled(1)));
    assert_eq!(same.table().version(), first);
}

#[test]
fn handovers_wait_until_all_report_a_version_of_this_table() {
    let mut steward = Steward::new(Table::new(|_| 1), settings());
    let mut reading = uneven(&steward);
    reading.dispatchers.push(heard(8, 0, &[]));
    for second in 0..5 {
        let step = steward.step(seconds(second), &reading);
        assert_eq!((step.silent, steward.moving()), (vec![8], 0));
    }
}

#[test]
fn term_versions_increase_until_exhausted() {
    assert_eq!(first_of_term(0, 0), Some(TERM_VERSIONS));
    let far = first_of_term(TERM_VERSIONS - 1, u64::MAX).unwrap();
    assert_eq!(far, (1 << 20) * TERM_VERSIONS);
    let last = MAX_VERSION + 1 - TERM_VERSIONS;
    assert_eq!(first_of_term(last - 1, 0), Some(last));
    for (version, lot) in [(last, 0), (MAX_VERSION, 0), (last - 1, 1)] {
        assert_eq!(first_of_term(version, lot), None);
    }
    let rests = |version| {
        let entries = (0..RESTS).map(|rest| (ObjectSet::Rest(rest), State::Settled(1)));
        Table::from_entries(version, entries)
    };
    let mut table = rests(MAX_VERSION).unwrap();
    assert_eq!(rests(MAX_VERSION + 1), Err(Gap::Wrong));
    let beyond = Delta {
        from: MAX_VERSION,
        to: MAX_VERSION + 1,
        entries: Vec::new(),
    };
    assert_eq!(table.apply(&beyond), Err(Gap::Wrong));
}

#[test]
fn pinned_set_moves_to_its_node_and_stays() {
    let mut steward = Steward::new(Table::new(|_| 1), settings());
    let pins = BTreeMap::from([(named("A17"), 1), (ObjectSet::Rest(3), 2)]);
    let mut reading = uneven(&steward);
    reading.pins = pins.clone();
    let hot = (named("A17"), 4000.0);
    reading.loads.as_mut().unwrap().push(hot.clone());
    for second in 0..20 {
        steward.step(seconds(second), &reading);
        reading = uneven(&steward);
        reading.pins = pins.clone();
        reading.loads.as_mut().unwrap().push(hot.clone());
    }
    let table = steward.table();
    assert_eq!(table.state(&named("A17")), Some(State::Settled(1)));
    assert_eq!(table.rest(3), Some(State::Settled(2)));
    // 12,000 in all, 4,000 of them pinned: two rests go to node 1, six to node 2.
    assert_eq!((on(&steward, 1), on(&steward, 2)), (2, 6));
    // Its node dies: it waits for it.
    for second in 20..60 {
        let reading = Reading {
            pins: pins.clone(),
            nodes: nodes(&[2]),
            ..uneven(&steward)
        };
        steward.step(seconds(second), &reading);
    }
    let table = steward.table();
    assert_eq!(table.state(&named("A17")), Some(State::Settled(1)));
    assert_eq!(on(&steward, 2), 8);
}

#[test]
fn requested_move_is_carried_out_or_refused() {
    let mut steward = Steward::new(Table::new(|_| 1), settings());
    let mut reading = uneven(&steward);
    reading.loads = None;
    reading.wishes = vec![(named("A17"), 2), (ObjectSet::Rest(5), 2)];
    let step = steward.step(seconds(0), &reading);
    assert_eq!(step.refused, []);
    for second in 1..3 {
        let reading = Reading {
            loads: None,
            ..uneven(&steward)
        };
        steward.step(seconds(second), &reading);
    }
    assert_eq!(
        steward.table().state(&named("A17")),
        Some(State::Settled(2))
    );
    assert_eq!(steward.table().rest(5), Some(State::Settled(2)));
    let mut reading = uneven(&steward);
    reading.wishes = vec![(ObjectSet::Rest(64), 2)];
    let step = steward.step(seconds(3), &reading);
    let problem = KeeperError::NoEntry(ObjectSet::Rest(64));
    assert_eq!(step.refused, [(ObjectSet::Rest(64), problem)]);
}

#[test]
fn object_set_text_round_trips() {
    for word in ["=A17", "*0", "*63", "==", "=*5"] {
        assert_eq!(word.parse::<ObjectSet>().unwrap().to_string(), word);
    }
    for word in ["", "=", "A", "*64", "*-1", "*01", "*", "=a b", "=\u{e9}"] {
        assert_eq!(word.parse::<ObjectSet>(), Err(NoSet), "{word}");
    }
}

#[test]
fn bound_lowered_by_overload_does_not_strip_the_node() {
    let capacity = |of_first| {
        let node = |capacity| NodeNow {
            capacity,
            mean_cost: 1.0,
        };
        Some(BTreeMap::from([(1, node(of_first)), (2, node(100.0))]))
    };
    let evened_out = |bounds: &dyn Fn(u64) -> f64| {
        let mut steward = Steward::new(Table::new(|_| 1), settings());
        for second in 0..4 {
            let reading = Reading {
                nodes: capacity(bounds(second)),
                loads: (second == 3).then(|| uneven(&steward).loads.unwrap()),
                ..uneven(&steward)
            };
            steward.step(seconds(second), &reading);
        }
        let reading = Reading {
            loads: None,
            nodes: None,
            ..uneven(&steward)
        };
        steward.step(seconds(4), &reading);
        (on(&steward, 1), on(&steward, 2))
    };
    assert_eq!(evened_out(&|_| 100.0), (4, 4));
    // Halved in each second, as a bound is whose node answers nothing.
    assert_eq!(evened_out(&|second| 100.0 / (1 << second) as f64), (4, 4));
    // Always as small, or drained.
    assert_eq!(evened_out(&|_| 15.0), (1, 7));
    assert_eq!(
        evened_out(&|second| if second < 3 { 100.0 } else { 0.0 }),
        (0, 8)
    );
}
