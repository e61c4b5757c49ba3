//! Invariants of a dispatcher under any events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use plimsoll_core::{
    dispatch::{
        Class, Costs, DispatchSettings, Dispatcher, Held, NodeShare, Placement, Pulse, Verdict,
    },
    ring::RingTable,
    schedule::{NewsSettings, Policy},
};
use proptest::prelude::*;

fn settings(placement: Placement) -> DispatchSettings {
    DispatchSettings {
        placement,
        age_limit: 10.0,
        lease: 3.0,
        spill: 1.0,
        least_cost: 1.0,
        news: NewsSettings::default(),
    }
}

fn share(name: &str, granted: f64) -> NodeShare {
    NodeShare {
        name: name.to_owned(),
        address: format!("{name}:80"),
        granted,
        bound_jobs: granted,
        mean_cost: 1.0,
        jobs: 0.0,
        load: 0.0,
    }
}

fn fresh(placement: Placement, granted: &[f64]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(settings(placement));
    let names: Vec<String> = (0..granted.len()).map(|n| format!("node{n}")).collect();
    let shares: Vec<NodeShare> = names
        .iter()
        .zip(granted)
        .map(|(name, granted)| share(name, *granted))
        .collect();
    dispatcher.on_shares(0.0, 1, &shares);
    let owners = (0..=u8::MAX).map(|slot| slot % granted.len() as u8);
    let table = RingTable::from_owners(1, names.len(), owners.collect()).unwrap();
    dispatcher.on_ring(table, names);
    dispatcher
}

fn admit(dispatcher: &mut Dispatcher, now: f64, hash: u32, cost: f64) -> Verdict {
    let mut random = || hash.wrapping_mul(0x9e37_79b9);
    dispatcher.admit(now, Some(hash), cost, Class::HIGHEST, &mut random)
}

fn placed(verdict: Verdict) -> Held {
    match verdict {
        Verdict::Placed(held) => held,
        other => panic!("{other:?}"),
    }
}

fn placements() -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(Placement::FcHash),
        Just(Placement::FcProp),
        Just(Placement::Scheduled(Policy::RoundRobin)),
        Just(Placement::Scheduled(Policy::WeightedRandom)),
        Just(Placement::Scheduled(Policy::JobInformed)),
    ]
}

proptest! {
    #[test]
    fn in_flight_returns_to_zero_and_share_is_exceeded_by_one_request_at_most(
        placement in placements(),
        granted in prop::collection::vec(0.5..500.0_f64, 1..6),
        requests in prop::collection::vec((any::<u32>(), 0.0..80.0_f64, 0..4_u8, 0..6_usize), 1..200),
    ) {
        let mut dispatcher = fresh(placement, &granted);
        let mut under_way: Vec<Held> = Vec::new();
        for (number, (hash, cost, end, other)) in requests.into_iter().enumerate() {
            let now = number as f64 / 100.0;
            if let Verdict::Placed(held) = admit(&mut dispatcher, now, hash, cost) {
                under_way.push(held);
            }
            for (_, address, cost, count) in dispatcher.usage() {
                let place: usize = address.trim_start_matches("node").trim_end_matches(":80").parse().unwrap();
                prop_assert!(cost <= granted[place] + 1e-6 || count == 1, "{address}: {cost} in {count}");
            }
            match end {
                0 => {}
                // A retry that goes elsewhere may pass a share, so it ends before the next look.
                1 => if let Some(held) = under_way.pop() {
                    let cost = held.cost();
                    dispatcher.left(held.place(), 0.5);
                    if let Some(moved) = dispatcher.attempt(Some(held), Some(other), cost) {
                        dispatcher.answered(moved.place(), 0.1, 200, cost);
                        dispatcher.release(moved);
                    }
                },
                _ => if !under_way.is_empty() {
                    let held = under_way.swap_remove(hash as usize % under_way.len());
                    dispatcher.release(held);
                },
            }
        }
        for held in under_way {
            dispatcher.release(held);
        }
        for (_, _, cost, count) in dispatcher.usage() {
            prop_assert_eq!((cost, count), (0.0, 0));
        }
    }
}

#[test]
fn drained_node_gets_no_request() {
    for placement in [
        Placement::FcHash,
        Placement::FcProp,
        Placement::Scheduled(Policy::RoundRobin),
    ] {
        let mut dispatcher = fresh(placement, &[10.0, 10.0]);
        let mut shares = [share("node0", 0.0), share("node1", 10.0)];
        dispatcher.on_shares(1.0, 1, &shares);
        for hash in 0..10 {
            assert_eq!(
                placed(admit(&mut dispatcher, 1.0, hash << 24, 1.0)).place(),
                1
            );
        }
        assert_eq!(admit(&mut dispatcher, 1.0, 0, 1.0), Verdict::Full);
        // With all of them out the proxy decides: it may know better.
        shares[1] = share("node1", 0.0);
        dispatcher.on_shares(1.0, 1, &shares);
        assert_eq!(admit(&mut dispatcher, 1.0, 0, 1.0), Verdict::Unknown);
    }
}

#[test]
fn ejections_grow_and_spare_the_last_open_node() {
    let mut dispatcher = fresh(Placement::FcProp, &[100.0, 100.0]);
    let out = |dispatcher: &mut Dispatcher, now: f64| {
        let held: Vec<Held> = (0..2)
            .map(|hash| placed(admit(dispatcher, now, hash, 1.0)))
            .collect();
        let out = held.iter().all(|held| held.place() == 1);
        held.into_iter().for_each(|held| dispatcher.release(held));
        out
    };
    for _ in 0..5 {
        assert!(!out(&mut dispatcher, 0.0));
        dispatcher.unanswered(0, 0.0);
    }
    assert!(out(&mut dispatcher, 0.0));
    // The other is all there is.
    for _ in 0..20 {
        dispatcher.unanswered(1, 0.0);
    }
    assert!(out(&mut dispatcher, 0.0));
    dispatcher.on_time(0.9);
    assert!(out(&mut dispatcher, 0.9));
    dispatcher.on_time(1.0);
    assert!(!out(&mut dispatcher, 1.0));
    // Once more is enough, and for twice as long.
    dispatcher.unanswered(0, 1.0);
    dispatcher.on_time(2.9);
    assert!(out(&mut dispatcher, 2.9));
    dispatcher.on_time(3.0);
    assert!(!out(&mut dispatcher, 3.0));
    dispatcher.answered(0, 0.1, 200, 1.0);
    for _ in 0..4 {
        dispatcher.unanswered(0, 3.0);
    }
    assert!(!out(&mut dispatcher, 3.0));
    assert_eq!(dispatcher.counts().ejections, 2);
}

#[test]
fn leaving_clients_eject_no_node() {
    let mut dispatcher = fresh(Placement::FcProp, &[100.0, 100.0]);
    for _ in 0..100 {
        dispatcher.left(0, 0.2);
    }
    assert_eq!(dispatcher.counts().ejections, 0);
    assert_eq!(
        dispatcher.report()[0].observation,
        "3 0 0.000000 0 0 - 30:100 0 0 0"
    );
}

#[test]
fn stale_snapshot_is_unused_and_missing_node_expires_after_lease() {
    let mut dispatcher = fresh(Placement::FcProp, &[10.0, 10.0]);
    dispatcher.on_shares(4.0, 1, &[share("node1", 10.0)]);
    for _ in 0..10 {
        assert_eq!(placed(admit(&mut dispatcher, 4.0, 1, 1.0)).place(), 1);
    }
    assert_eq!(admit(&mut dispatcher, 4.0, 1, 1.0), Verdict::Full);
    assert_eq!(admit(&mut dispatcher, 14.1, 1, 1.0), Verdict::Unknown);
    let counts = dispatcher.counts();
    assert_eq!(
        (counts.admitted(), counts.refused(), counts.undecided),
        (10, 1, 1)
    );
}

#[test]
fn lapsed_shares_admit_one_request_alone_until_there_are_new_ones() {
    let mut dispatcher = fresh(Placement::FcProp, &[10.0]);
    dispatcher.lapse(2.0, 2.5);
    let alone = placed(admit(&mut dispatcher, 2.5, 0, 1.0));
    assert_eq!(admit(&mut dispatcher, 2.5, 0, 1.0), Verdict::Full);
    // A node that is missing has no new share.
    dispatcher.on_shares(2.5, 2, &[]);
    assert_eq!(admit(&mut dispatcher, 2.5, 0, 1.0), Verdict::Full);
    dispatcher.on_shares(2.6, 2, &[share("node0", 2.0)]);
    let second = placed(admit(&mut dispatcher, 2.6, 0, 1.0));
    assert_eq!(admit(&mut dispatcher, 2.6, 0, 1.0), Verdict::Full);
    dispatcher.release(alone);
    dispatcher.release(second);
}

#[test]
fn lapsed_shares_are_used_again_after_two_seconds_without_new_ones() {
    let mut dispatcher = fresh(Placement::FcProp, &[10.0]);
    dispatcher.lapse(1.0, 5.0);
    dispatcher.on_time(7.0);
    let mut held = vec![placed(admit(&mut dispatcher, 7.0, 0, 1.0))];
    assert_eq!(admit(&mut dispatcher, 7.0, 0, 1.0), Verdict::Full);
    dispatcher.on_time(7.1);
    held.extend((0..9).map(|_| placed(admit(&mut dispatcher, 7.1, 0, 1.0))));
    assert_eq!(admit(&mut dispatcher, 7.1, 0, 1.0), Verdict::Full);
    held.into_iter().for_each(|held| dispatcher.release(held));
}

#[test]
fn stale_shares_do_not_lapse() {
    let mut dispatcher = fresh(Placement::FcProp, &[10.0]);
    // Only those that were stale when the process was stopped.
    dispatcher.lapse(10.0, 20.0);
    let alone = placed(admit(&mut dispatcher, 20.0, 0, 1.0));
    assert_eq!(admit(&mut dispatcher, 20.0, 0, 1.0), Verdict::Full);
    dispatcher.release(alone);
    let mut dispatcher = fresh(Placement::FcProp, &[10.0]);
    dispatcher.lapse(10.1, 20.0);
    assert_eq!(admit(&mut dispatcher, 20.0, 0, 1.0), Verdict::Unknown);
}

#[test]
fn a_pulse_notices_a_stop_in_which_the_lease_may_have_ended() {
    let mut pulse = Pulse::default();
    assert_eq!(pulse.beat(100.0, 3.0), None);
    // There are no shares yet.
    assert_eq!(pulse.beat(200.0, 3.0), None);
    assert!(pulse.granted(200.0, 200.0, 3.0));
    assert_eq!(pulse.beat(202.9, 3.0), None);
    // Redis is silent for longer than a lease, while the process runs.
    for tenth in 0..20 {
        assert_eq!(pulse.beat(203.0 + f64::from(tenth) / 10.0, 3.0), None);
    }
    // Its late answer is good.
    assert!(pulse.granted(201.0, 204.9, 3.0));
    assert_eq!(pulse.beat(205.5, 3.0), Some(204.9));
    assert_eq!(pulse.beat(205.6, 3.0), None);
    // After a stop it is not, unless it was asked for in time.
    assert!(!pulse.granted(202.0, 205.6, 3.0));
    assert!(pulse.granted(205.6, 205.7, 3.0));
    assert_eq!(pulse.beat(208.5, 3.0), None);
    assert_eq!(pulse.beat(211.0, 3.0), Some(208.5));
}

#[test]
fn changing_node_names_do_not_grow_memory() {
    let mut dispatcher = Dispatcher::new(settings(Placement::FcProp));
    for round in 0..5000 {
        let now = 10.0 * f64::from(round);
        dispatcher.on_shares(now, 1, &[share(&format!("node{round}"), 10.0)]);
        let held = placed(admit(&mut dispatcher, now, 1, 1.0));
        assert_eq!(dispatcher.address(held.place()), format!("node{round}:80"));
        dispatcher.release(held);
    }
    assert!(dispatcher.usage().count() <= 1024);
    assert_eq!(dispatcher.report().len(), 1);
}

#[test]
fn alternatives_are_other_nodes_with_room() {
    let mut dispatcher = fresh(Placement::FcHash, &[10.0, 10.0, 10.0, 10.0]);
    let held = placed(admit(&mut dispatcher, 0.0, 0, 4.0));
    let full = placed(admit(&mut dispatcher, 0.0, 1 << 24, 9.0));
    let others = dispatcher.alternatives(&held, 2);
    assert_eq!(others.len(), 2);
    assert!(!others.contains(&held.place()) && !others.contains(&full.place()));
}

#[test]
fn costs_are_learned_and_reset_at_the_route_limit() {
    let mut costs = Costs::new(3.0, 2, None);
    assert_eq!(costs.expected("/a"), 3.0);
    costs.learn(Some("/a"), 10.0);
    costs.learn(Some("/a"), 20.0);
    assert_eq!(costs.expected("/a"), 11.0);
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        costs.learn(Some("/a"), bad);
    }
    assert_eq!(costs.expected("/a"), 11.0);
    costs.learn(Some("/b"), 1.0);
    costs.learn(Some("/c"), 2.0);
    assert_eq!(costs.expected("/a"), 3.0);
    assert_eq!(costs.expected("/c"), 2.0);
}

#[test]
fn full_nodes_are_the_last_alternatives() {
    let mut dispatcher = fresh(Placement::FcProp, &[10.0, 10.0, 0.0]);
    let held = placed(admit(&mut dispatcher, 0.0, 0, 4.0));
    let full = placed(admit(&mut dispatcher, 0.0, 0, 9.0));
    assert_eq!(dispatcher.alternatives(&held, 2), [full.place()]);
}

#[test]
fn ring_of_unknown_nodes_refuses_nothing() {
    let mut dispatcher = fresh(Placement::FcHash, &[10.0, 10.0]);
    for names in [["node7", "node8"], ["", ""]] {
        let table = RingTable::from_owners(2, 2, vec![0, 1]).unwrap();
        dispatcher.on_ring(table, names.map(str::to_owned).to_vec());
        let held = placed(admit(&mut dispatcher, 0.0, 0, 4.0));
        dispatcher.release(held);
    }
}

#[test]
fn demand_of_a_refused_request_is_limited_to_the_bound() {
    let mut dispatcher = fresh(Placement::FcProp, &[10.0]);
    let held = placed(admit(&mut dispatcher, 0.0, 0, 1.0));
    assert_eq!(admit(&mut dispatcher, 0.0, 0, 1e9), Verdict::Full);
    dispatcher.end_period();
    // Half of the newest period.
    assert_eq!(dispatcher.report()[0].demand, 0.5 * (1.0 + 10.0));
    dispatcher.release(held);
}

#[test]
fn idle_nodes_get_their_part_although_one_share_is_the_largest() {
    // What two workers of a proxy do when little is asked: each sees only its own requests.
    let granted = [10.2, 10.0, 9.8];
    let mut counts = [0; 3];
    for worker in 0..2 {
        let mut dispatcher = fresh(Placement::FcProp, &granted);
        for hash in 0..3000 {
            let held = placed(admit(&mut dispatcher, 0.0, 2 * hash + worker, 1.0));
            counts[held.place()] += 1;
            dispatcher.release(held);
        }
    }
    assert!(counts.iter().all(|count| *count > 1500), "{counts:?}");
    // One that is busy gets nothing while others of its size are idle.
    let mut dispatcher = fresh(Placement::FcProp, &[10.0, 10.0]);
    let busy = placed(admit(&mut dispatcher, 0.0, 1, 1.0));
    for hash in 0..100 {
        let held = placed(admit(&mut dispatcher, 0.0, hash, 1.0));
        assert_ne!(held.place(), busy.place());
        dispatcher.release(held);
    }
    dispatcher.release(busy);
}
