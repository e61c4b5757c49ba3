//! Guarantees of the ring: exact shares, minimum movement, the same node for the same key.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use plimsoll_core::ring::{
    DEFAULT_SLOTS, MAX_NODES, MAX_SLOTS, NOBODY, RingDelta, RingError, RingTable, SizesError,
    key_hash, ring_sizes, ring_weights, slot_of_hash, worth_moving,
};
use proptest::prelude::*;

fn table(bounds: &[f64], slots: u32) -> RingTable {
    let mut table = RingTable::empty(slots).unwrap();
    let delta = table
        .change_to(&ring_sizes(bounds, slots).unwrap())
        .unwrap();
    table.apply(&delta, bounds.len()).unwrap();
    table
}

fn bounds() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![9 => 0.01..1e4_f64, 1 => Just(0.0)], 1..=40)
}

#[test]
fn key_hash_matches_xxh32() {
    // Checked with Python's xxhash.
    assert_eq!(key_hash(b""), 0x02cc_5d05);
    assert_eq!(key_hash(b"a"), 0x550d_7456);
    assert_eq!(key_hash(b"abc"), 0x32d1_53ff);
}

#[test]
fn slots_cover_the_circle_evenly() {
    for slots in [1, 2, 3, 1000, DEFAULT_SLOTS] {
        assert_eq!(slot_of_hash(0, slots), 0);
        assert_eq!(slot_of_hash(u32::MAX, slots), slots - 1);
    }
    assert_eq!(slot_of_hash(0x8000_0000, DEFAULT_SLOTS), DEFAULT_SLOTS / 2);
}

#[test]
fn drained_nodes_get_no_slot_and_live_ones_at_least_one() {
    let sizes = ring_sizes(&[1.0, 0.0, f64::NAN, -3.0, f64::INFINITY, 1e-9], 100).unwrap();
    assert_eq!(sizes, [99, 0, 0, 0, 0, 1]);
    assert_eq!(ring_sizes(&[0.0, 0.0], 100).unwrap(), [0, 0]);
    assert_eq!(ring_sizes(&[f64::MAX, f64::MAX], 10).unwrap(), [5, 5]);
}

#[test]
fn invalid_rings_are_refused() {
    assert_eq!(
        ring_sizes(&[1.0; 256], 1000),
        Err(SizesError::TooManyNodes(256))
    );
    assert_eq!(ring_sizes(&[1.0; 3], 2), Err(SizesError::Slots(2)));
    assert_eq!(ring_sizes(&[1.0], 0), Err(SizesError::Slots(0)));
    assert_eq!(
        RingTable::from_owners(1, 2, vec![0, 1, 2]),
        Err(RingError::Owner { slot: 2, owner: 2 })
    );
    assert_eq!(
        RingTable::from_owners(1, 2, Vec::new()),
        Err(RingError::Slots(0))
    );
}

#[test]
fn rings_reach_up_to_their_limits_and_not_beyond() {
    let slots = MAX_SLOTS as usize;
    assert_eq!(RingTable::empty(MAX_SLOTS).unwrap().slots(), MAX_SLOTS);
    assert_eq!(
        RingTable::empty(MAX_SLOTS + 1),
        Err(RingError::Slots(slots + 1))
    );
    assert_eq!(RingTable::empty(0), Err(RingError::Slots(0)));
    assert!(RingTable::from_owners(1, 1, vec![0; slots]).is_ok());
    assert_eq!(
        RingTable::from_owners(1, 1, vec![0; slots + 1]),
        Err(RingError::Slots(slots + 1))
    );
    assert!(ring_sizes(&[1.0], MAX_SLOTS).is_ok());
    assert_eq!(
        ring_sizes(&[1.0], MAX_SLOTS + 1),
        Err(SizesError::Slots(MAX_SLOTS + 1))
    );
    assert_eq!(ring_sizes(&[1.0; 3], 3), Ok(vec![1; 3]));

    let table = RingTable::from_owners(7, MAX_NODES, vec![0, 1]).unwrap();
    assert_eq!((table.version(), table.nodes()), (7, MAX_NODES));
    assert_eq!(
        RingTable::from_owners(7, MAX_NODES + 1, vec![0, 1]),
        Err(RingError::Sizes)
    );
    let mut sizes = vec![0; MAX_NODES];
    sizes[MAX_NODES - 1] = 2;
    let delta = table.change_to(&sizes).unwrap();
    assert_eq!((delta.from, delta.to), (7, 8));
    let changed = |nodes| table.clone().apply(&delta, nodes);
    assert_eq!(changed(MAX_NODES), Ok(()));
    assert_eq!(changed(MAX_NODES + 1), Err(RingError::Sizes));
    sizes.push(0);
    for wrong in [&sizes[..], &[1, 0], &[2, 1]] {
        assert_eq!(table.change_to(wrong), Err(RingError::Sizes));
    }
    let larger = RingTable::empty(3).unwrap();
    assert_eq!(table.difference(&larger), Err(RingError::Slots(3)));
}

#[test]
fn what_is_wrong_with_a_ring_is_said() {
    let wrong: [(&dyn std::error::Error, &str); 7] = [
        (&SizesError::TooManyNodes(300), "300 nodes, maximum 255"),
        (&SizesError::Slots(2), "2 slots: must be within"),
        (&RingError::Slots(0), "0 slots: must be within 1..=1048576"),
        (
            &RingError::Owner { slot: 3, owner: 9 },
            "slot 3: owner 9 is no node",
        ),
        (&RingError::Slot(8), "slot 8 is beyond the table"),
        (
            &RingError::Gap { have: 1, from: 7 },
            "from version 7 does not fit version 1",
        ),
        (&RingError::Sizes, "sizes do not sum"),
    ];
    for (error, text) in wrong {
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_capacity_that_cannot_be_counts_as_unknown() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let weights = ring_weights(&[Some(2.0), Some(bad), Some(4.0)]);
        assert_eq!(weights, [2.0, 3.0, 4.0], "{bad}");
    }
}

#[test]
fn ring_of_255_nodes_has_all_as_owners() {
    let table = table(&[1.0; MAX_NODES], DEFAULT_SLOTS);
    assert!(table.sizes().iter().all(|size| (64..=65).contains(size)));
}

#[test]
fn invalid_change_leaves_the_ring_unchanged() {
    let mut table = table(&[1.0, 1.0], 8);
    let before = table.clone();
    let delta = |from, moves| RingDelta { from, to: 9, moves };
    assert_eq!(
        table.apply(&delta(7, vec![]), 2),
        Err(RingError::Gap { have: 1, from: 7 })
    );
    assert_eq!(
        table.apply(&delta(1, vec![(0, 1), (8, 0)]), 2),
        Err(RingError::Slot(8))
    );
    assert_eq!(
        table.apply(&delta(1, vec![(0, 1), (1, 2)]), 2),
        Err(RingError::Owner { slot: 1, owner: 2 })
    );
    assert_eq!(table, before);
}

#[test]
fn a_ring_without_live_nodes_has_no_owner() {
    let mut table = table(&[1.0, 2.0], 16);
    let delta = table.change_to(&[0, 0]).unwrap();
    table.apply(&delta, 2).unwrap();
    assert!(table.owners().iter().all(|owner| *owner == NOBODY));
    assert_eq!(table.owner(b"key"), None);
    assert_eq!(table.candidates(7).count(), 0);
}

#[test]
fn noise_moves_no_keys_but_membership_does() {
    assert!(!worth_moving(&[100, 100], &[104, 96], 0.05));
    assert!(!worth_moving(&[100, 100], &[105, 95], 0.05));
    assert!(worth_moving(&[100, 100], &[106, 94], 0.05));
    assert!(worth_moving(&[100, 0], &[99, 1], 0.05));
    assert!(worth_moving(&[199, 1], &[200], 0.05));
}

#[test]
fn a_full_owner_spills_over_all_others() {
    let table = table(&[1.0; 10], DEFAULT_SLOTS);
    let mut second = [0_u32; 10];
    for n in 0..20_000_u32 {
        let mut candidates = table.candidates(key_hash(&n.to_le_bytes()));
        if candidates.next() == Some(3) {
            second[usize::from(candidates.next().unwrap())] += 1;
        }
    }
    assert_eq!(second[3], 0);
    let spilt: u32 = second.iter().sum();
    for (node, share) in second.iter().enumerate().filter(|(node, _)| *node != 3) {
        let fair = spilt / 9;
        assert!(share.abs_diff(fair) < fair / 3, "node {node}: {second:?}");
    }
}

proptest! {
    #[test]
    fn shares_are_exact_to_one_slot(bounds in bounds(), slots in 1000..20_000_u32) {
        let sizes = ring_sizes(&bounds, slots).unwrap();
        let total: f64 = bounds.iter().sum();
        if total == 0.0 {
            prop_assert!(sizes.iter().all(|size| *size == 0));
            return Ok(());
        }
        prop_assert_eq!(sizes.iter().sum::<u32>(), slots);
        // A live node's floor of one slot is paid for by the largest.
        let floors = bounds
            .iter()
            .filter(|b| **b > 0.0 && **b / total * f64::from(slots) < 1.0)
            .count() as f64;
        for (bound, size) in bounds.iter().zip(&sizes) {
            let exact = bound / total * f64::from(slots);
            prop_assert!((f64::from(*size) - exact).abs() <= 1.0 + floors, "{exact} {size}");
            prop_assert_eq!(*bound > 0.0, *size > 0);
        }
    }

    #[test]
    fn a_change_moves_only_the_surplus(old in bounds(), new in bounds(), slots in 1000..20_000_u32) {
        let mut table = table(&old, slots);
        let before = table.clone();
        let (held, wanted) = (table.sizes(), ring_sizes(&new, slots).unwrap());
        let delta = table.change_to(&wanted).unwrap();
        table.apply(&delta, old.len().max(new.len())).unwrap();
        let mut sizes = table.sizes();
        sizes.truncate(wanted.len());
        prop_assert_eq!(&sizes, &wanted);
        let at = |index: usize| wanted.get(index).copied().unwrap_or(0);
        let surplus: u32 = held.iter().enumerate().map(|(i, h)| h.saturating_sub(at(i))).sum();
        let unowned = before.owners().iter().filter(|o| **o == NOBODY).count() as u32;
        let least = if wanted.iter().sum::<u32>() == 0 { surplus } else { surplus + unowned };
        prop_assert_eq!(delta.moves.len() as u32, least);
        prop_assert_eq!(before.difference(&table).unwrap(), delta);
    }

    #[test]
    fn slots_return_to_their_former_owners(bounds in prop::collection::vec(1.0..100.0_f64, 2..20)) {
        let mut table = table(&bounds, DEFAULT_SLOTS);
        let owners = table.owners().to_vec();
        let mut less = bounds.clone();
        less[0] *= 0.5;
        for bounds in [&less, &bounds] {
            let delta = table.change_to(&ring_sizes(bounds, DEFAULT_SLOTS).unwrap()).unwrap();
            table.apply(&delta, bounds.len()).unwrap();
        }
        let moved = owners.iter().zip(table.owners()).filter(|(a, b)| a != b).count();
        prop_assert!(moved <= DEFAULT_SLOTS as usize / 20, "{moved}");
    }

    #[test]
    fn candidates_are_distinct_and_start_with_the_owner(bounds in bounds(), key in any::<[u8; 8]>()) {
        let table = table(&bounds, 4096);
        let hash = key_hash(&key);
        let found: Vec<u8> = table.candidates(hash).collect();
        prop_assert_eq!(found.first().copied(), table.owner(&key));
        let mut distinct = found.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), found.len());
    }
}
