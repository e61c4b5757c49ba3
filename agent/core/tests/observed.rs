//! Counters of dispatchers: what came about between two lines, and what all of them counted.
#![allow(clippy::unwrap_used, missing_docs)]

use plimsoll_core::dispatch::{Decisions, Observed};

/// After so many answers of 10 ms and 2 items, failures and clients that left.
fn counted(answered: u32, failed: u32, left: u32) -> Observed {
    let mut observed = Observed::default();
    for _ in 0..answered {
        observed.answered(0.01, 2.0);
    }
    for _ in 0..failed {
        observed.failed();
    }
    for _ in 0..left {
        observed.left(0.5);
    }
    observed
}

fn decided(observed: Observed, asked: u64, refused: u64) -> Observed {
    observed.with(Decisions { asked, refused }, 3)
}

#[test]
fn what_came_about_between_two_lines_is_their_difference() {
    let before = decided(counted(3, 1, 0), 10, 2);
    let new = decided(counted(7, 4, 1), 30, 12).since(&before).unwrap();
    assert_eq!(new.failures(), 3);
    assert_eq!(new.cost(), 8.0);
    assert_eq!(new.refused_share(), Some(0.5));
    assert_eq!(new.jobs(), Some(3.0));
    assert_eq!(new.delays().unwrap().count(), 4);
}

#[test]
fn a_counter_that_fell_is_a_restart() {
    let before = decided(counted(3, 1, 1), 10, 2);
    for after in [
        decided(counted(2, 1, 1), 10, 2),
        decided(counted(3, 0, 1), 10, 2),
        decided(counted(3, 1, 0), 10, 2),
        decided(counted(3, 1, 1), 9, 2),
        decided(counted(3, 1, 1), 10, 1),
        // More of them were refused than were made.
        decided(counted(3, 1, 1), 11, 4),
    ] {
        assert_eq!(after.since(&before), None, "{after:?}");
    }
    let same = before.since(&before).unwrap();
    assert_eq!((same.failures(), same.cost()), (0, 0.0));
    assert_eq!(same.refused_share(), None);
}

#[test]
fn decisions_that_the_line_before_did_not_know_are_of_no_period() {
    let before = counted(3, 1, 0);
    let new = decided(counted(4, 1, 0), 30, 12).since(&before).unwrap();
    assert_eq!(new.refused_share(), None);
}

#[test]
fn all_dispatchers_counted_what_each_did() {
    let mut all = decided(counted(3, 1, 2), 10, 2);
    all.add(&decided(counted(4, 2, 1), 30, 18));
    assert_eq!((all.failures(), all.cost()), (3, 14.0));
    assert_eq!(all.refused_share(), Some(0.5));
    assert_eq!(all.delays().unwrap().count(), 7);
    let mut most = decided(Observed::default(), u64::MAX, u64::MAX);
    most.add(&decided(Observed::default(), u64::MAX, 1));
    assert_eq!(most.refused_share(), Some(1.0));
}
