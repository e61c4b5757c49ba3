//! The table of primaries: its limits, and what is said of what is wrong.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use plimsoll_core::placement::*;

fn rests() -> impl Iterator<Item = (ObjectSet, State)> {
    (0..RESTS).map(|rest| (ObjectSet::Rest(rest), State::Settled(u32::from(rest))))
}

fn named(count: usize) -> impl Iterator<Item = (ObjectSet, State)> {
    (0..count).map(|i| {
        (
            ObjectSet::Named(format!("set{i}").into()),
            State::Leaving(7),
        )
    })
}

fn with(set: ObjectSet) -> Result<Table, Gap> {
    Table::from_entries(1, rests().chain([(set, State::Settled(1))]))
}

#[test]
fn a_table_has_its_entries() {
    let table = Table::from_entries(3, rests().chain(named(2))).unwrap();
    assert_eq!((table.version(), table.named()), (3, 2));
    assert!(table.is_named("set1") && !table.is_named("set2"));
    assert_eq!(table.rest(9), Some(State::Settled(9)));
    assert_eq!(table.rest(RESTS), None);
    let set = |name: &str| table.set_of(name);
    assert_eq!(set("set1"), ObjectSet::Named("set1".into()));
    assert_eq!(set("set2"), ObjectSet::Rest(rest_of("set2")));
    assert_eq!(table.state(&set("set1")), Some(State::Leaving(7)));
    assert_eq!(table.state(&set("set1")).unwrap().primary(), 7);
    let rest = State::Settled(u32::from(rest_of("set2")));
    assert_eq!(table.state(&set("set2")), Some(rest));
    let all: Vec<_> = rests().chain(named(2)).collect();
    assert_eq!(table.entries().collect::<Vec<_>>(), all);
    let created = Table::new(u32::from);
    assert_eq!(created.version(), 1);
    assert!(created.entries().eq(rests()));
}

#[test]
fn a_table_that_cannot_be_is_refused() {
    let wrong = Err(Gap::Wrong);
    assert!(with(ObjectSet::Named("x".repeat(128).into())).is_ok());
    assert_eq!(with(ObjectSet::Named("x".repeat(129).into())), wrong);
    assert_eq!(with(ObjectSet::Rest(RESTS)), wrong);
    assert_eq!(Table::from_entries(1, rests().skip(1)), wrong);
    assert!(Table::from_entries(MAX_VERSION, rests()).is_ok());
    assert_eq!(Table::from_entries(MAX_VERSION + 1, rests()), wrong);
    let full = Table::from_entries(1, rests().chain(named(2 * MAX_NAMED)));
    assert_eq!(full.unwrap().named(), 2 * MAX_NAMED);
    let over = Table::from_entries(1, rests().chain(named(2 * MAX_NAMED + 1)));
    assert_eq!(over, wrong);
}

#[test]
fn changes_keep_to_the_limits() {
    let entry = |(set, state)| (set, Some(state));
    let change = |from, to, entries: Vec<_>| Delta { from, to, entries };
    let last = MAX_VERSION - 1;
    let mut table = Table::from_entries(last, rests()).unwrap();
    let past = change(last, MAX_VERSION + 1, vec![]);
    assert_eq!(table.apply(&past), Err(Gap::Wrong));
    assert_eq!(table.apply(&change(last, MAX_VERSION, vec![])), Ok(()));
    assert_eq!(table.version(), MAX_VERSION);

    let mut table = Table::from_entries(1, rests().chain(named(2 * MAX_NAMED - 2))).unwrap();
    let three = [10, 11, 12].map(|i| {
        let set = ObjectSet::Named(format!("new{i}").into());
        entry((set, State::Settled(1)))
    });
    assert_eq!(table.apply(&change(1, 2, three.to_vec())), Err(Gap::Wrong));
    assert_eq!(table.apply(&change(1, 2, three[..2].to_vec())), Ok(()));
    assert_eq!(table.named(), 2 * MAX_NAMED);

    let mut table = Table::from_entries(1, rests().chain(named(2))).unwrap();
    let changes = vec![
        (ObjectSet::Rest(3), Some(State::Leaving(3))),
        (ObjectSet::Named("set0".into()), None),
        (ObjectSet::Named("set1".into()), Some(State::Settled(4))),
    ];
    assert_eq!(table.apply(&change(1, 5, changes)), Ok(()));
    assert_eq!((table.version(), table.named()), (5, 1));
    assert_eq!(table.rest(3), Some(State::Leaving(3)));
    assert_eq!(
        table.state(&ObjectSet::Named("set1".into())),
        Some(State::Settled(4))
    );
    assert_eq!(table.apply(&change(1, 5, vec![])), Err(Gap::Late));
    assert_eq!(table.apply(&change(4, 6, vec![])), Err(Gap::Missed));
}

#[test]
fn versions_end_where_numbers_are_no_longer_exact() {
    assert_eq!(first_of_term(0, 0), Some(TERM_VERSIONS));
    assert_eq!(first_of_term(TERM_VERSIONS - 1, 0), Some(TERM_VERSIONS));
    assert_eq!(first_of_term(TERM_VERSIONS, 0), Some(2 * TERM_VERSIONS));
    assert_eq!(first_of_term(5, 2), Some(3 * TERM_VERSIONS));
    let lots = 1 << 20;
    assert_eq!(first_of_term(5, lots), first_of_term(5, 0));
    assert_eq!(first_of_term(5, lots + 2), first_of_term(5, 2));
    let last = MAX_VERSION + 1 - TERM_VERSIONS;
    assert_eq!(first_of_term(last - 1, 0), Some(last));
    assert_eq!(first_of_term(last, 0), None);
}

#[test]
fn what_is_wrong_is_said() {
    let lease = Duration::from_millis(2500);
    let replicas = NoHold::Replicas {
        have: 1,
        need: 2,
        replicas: 3,
    };
    let wrong: [(&dyn std::error::Error, &str); 6] = [
        (&NameError::Empty, "must not be empty"),
        (&NameError::Long(200), "has 200 bytes: must be at most 128"),
        (&NameError::Character(4), "byte 4 in the name"),
        (&NoSet, "=NAME or *0 to *63, NAME 1 to 128 visible"),
        (
            &replicas,
            "min-replicas-to-write is 1, must be at least 2 (3 replicas are connected)",
        ),
        (
            &NoHold::Lag { have: 9, lease },
            "min-replicas-max-lag is 9 s, must be at least 1 s and below placement.lease, 2.5 s",
        ),
    ];
    for (error, text) in wrong {
        assert!(error.to_string().contains(text), "{error}");
    }
}
