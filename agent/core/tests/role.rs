//! Roles: which node takes writes, and whether a node's reads are fresh enough.
#![allow(clippy::unwrap_used)]

use plimsoll_core::{
    Seconds,
    role::{Look, Role, RoleJudge, RoleSettings, Standing},
};
use proptest::prelude::*;

const SETTINGS: RoleSettings = RoleSettings {
    max_lag: Seconds(10.0),
    without_primary: Seconds(30.0),
    notice: Seconds(1.0),
    hold: Seconds(3.0),
};
const NOW: Seconds = Seconds(0.0);

fn fed(level_age: Option<f64>, shown_age: Option<f64>) -> Look {
    Look::Standby {
        is_fed: true,
        level_age: level_age.map(Seconds),
        shown_age: shown_age.map(Seconds),
    }
}

fn left(shown_age: Option<f64>) -> Look {
    Look::Standby {
        is_fed: false,
        level_age: None,
        shown_age: shown_age.map(Seconds),
    }
}

fn judge() -> RoleJudge {
    RoleJudge::new(SETTINGS)
}

/// A judge whose standby was level at second 0.
fn fresh() -> RoleJudge {
    let mut judge = judge();
    assert!(judge.look(fed(Some(0.0), None), NOW).takes_reads(NOW));
    judge
}

fn serves(standing: &Standing) -> (bool, bool) {
    (standing.takes_writes(NOW), standing.takes_reads(NOW))
}

#[test]
fn role_changes_with_one_look() {
    let mut judge = fresh();
    let standing = judge.look(Look::Primary, Seconds(1.0));
    assert_eq!((standing.role, standing.lag), (Role::Primary, Some(NOW)));
    assert_eq!(serves(&standing), (true, true));
    let standing = judge.look(fed(Some(0.1), None), Seconds(2.0));
    assert_eq!(standing.role, Role::Standby);
    assert_eq!(serves(&standing), (false, true));
}

#[test]
fn primary_expires_without_response() {
    let standing = judge().look(Look::Primary, NOW);
    assert!(standing.takes_writes(Seconds(2.9)));
    assert!(!standing.takes_writes(Seconds(3.0)));
    assert!(!standing.takes_reads(Seconds(3.0)));
}

#[test]
fn lag_is_the_lower_known_age() {
    // All was shown nine seconds ago at the latest; a transaction of two seconds ago is shown.
    let standing = judge().look(fed(Some(9.0), Some(2.0)), NOW);
    assert_eq!(standing.lag, Some(Seconds(2.0)));
    // After an hour in which nothing was written, what is shown is old and not behind.
    let standing = judge().look(fed(Some(0.5), Some(3600.0)), NOW);
    assert_eq!(standing.lag, Some(Seconds(0.5)));
    // Then something is written, and not shown yet.
    let mut judge = fresh();
    let standing = judge.look(fed(None, Some(3600.0)), Seconds(1.0));
    assert_eq!(standing.lag, Some(Seconds(1.0)));
}

#[test]
fn standby_stops_reads_a_look_before_the_limit() {
    let mut judge = fresh();
    for second in 1..=20 {
        let now = Seconds(f64::from(second));
        let standing = judge.look(fed(None, Some(f64::from(second))), now);
        // It is out a look before the limit, which is when proxies hear of it.
        assert_eq!(standing.takes_reads(NOW), second < 9, "at {second} s");
        assert!(!standing.takes_reads(Seconds((9.0 - f64::from(second)).max(0.0))));
    }
}

#[test]
fn lag_grows_without_response() {
    let standing = judge().look(fed(Some(2.0), None), NOW);
    assert!(standing.takes_reads(Seconds(6.9)));
    assert!(!standing.takes_reads(Seconds(7.0)));
}

#[test]
fn lag_at_the_limit_does_not_flap() {
    let mut judge = fresh();
    let mut changes = 0;
    let mut was = true;
    for look in 0..200 {
        let lag = if look % 2 == 0 { 8.5 } else { 9.5 };
        let now = Seconds(f64::from(look));
        let is = judge.look(fed(None, Some(lag)), now).takes_reads(NOW);
        changes += u32::from(is != was);
        was = is;
    }
    assert_eq!((changes, was), (1, false));
    // It comes back once it is well within the limit, three looks in a row.
    let looks = [4.0, 4.0, 6.0, 4.0, 4.0, 4.0, 6.0];
    let fresh = looks.map(|lag| {
        let look = fed(None, Some(lag));
        judge.look(look, Seconds(300.0)).takes_reads(NOW)
    });
    assert_eq!(fresh, [false, false, false, false, false, true, true]);
}

#[test]
fn fresh_standby_serves_without_primary_and_stale_one_does_not() {
    let mut judge = fresh();
    for second in 1..29 {
        let now = Seconds(f64::from(second));
        let standing = judge.look(left(Some(3600.0)), now);
        assert!(standing.takes_reads(NOW), "at {second} s");
        assert_eq!(standing.limit, SETTINGS.without_primary);
    }
    assert!(!judge.look(left(None), Seconds(29.0)).takes_reads(NOW));
    // Another primary feeds it: what counts is the lag behind that one.
    for second in [30.0, 31.0] {
        let look = judge.look(fed(Some(0.1), None), Seconds(second));
        assert!(!look.takes_reads(NOW));
    }
    let look = judge.look(fed(Some(0.1), None), Seconds(32.0));
    assert_eq!(
        (look.takes_reads(NOW), look.limit),
        (true, SETTINGS.max_lag)
    );

    let mut judge = RoleJudge::new(SETTINGS);
    judge.look(fed(None, Some(12.0)), NOW);
    let standing = judge.look(left(Some(13.0)), Seconds(1.0));
    assert_eq!(serves(&standing), (false, false));
    assert_eq!(standing.limit, SETTINGS.max_lag);
}

#[test]
fn standby_with_unknown_lag_takes_no_reads() {
    for look in [fed(None, None), left(None), left(Some(0.1))] {
        assert!(!judge().look(look, NOW).takes_reads(NOW), "{look:?}");
    }
}

#[test]
fn former_primary_counts_lag_from_its_demotion() {
    let mut judge = judge();
    judge.look(Look::Primary, NOW);
    let standing = judge.look(left(None), Seconds(2.0));
    assert_eq!(standing.lag, Some(Seconds(2.0)));
    assert_eq!(serves(&standing), (false, true));
}

#[test]
fn invalid_clock_never_lowers_the_lag() {
    let standing = judge().look(fed(Some(-5.0), Some(f64::NAN)), NOW);
    assert_eq!(standing.lag, Some(NOW));
    let standing = judge().look(fed(Some(f64::INFINITY), Some(f64::NAN)), NOW);
    assert_eq!((standing.lag, standing.takes_reads(NOW)), (None, false));
}

fn looks() -> impl Strategy<Value = Vec<(Look, f64)>> {
    let age = || prop::option::of(-1.0..60.0_f64);
    let standby = (any::<bool>(), age(), age()).prop_map(|(is_fed, level, shown)| Look::Standby {
        is_fed,
        level_age: level.map(Seconds),
        shown_age: shown.map(Seconds),
    });
    let look = prop_oneof![1 => Just(Look::Primary), 4 => standby];
    prop::collection::vec((look, 0.0..5.0_f64), 1..60)
}

proptest! {
    #[test]
    fn reads_are_never_further_behind_than_the_limit(looks in looks(), age in 0.0..60.0_f64) {
        let (mut judge, mut now) = (judge(), 0.0);
        for (look, passed) in looks {
            now += passed;
            let standing = judge.look(look, Seconds(now));
            prop_assert!(!standing.takes_writes(NOW) || look == Look::Primary);
            if standing.role == Role::Standby && standing.takes_reads(Seconds(age)) {
                let lag = standing.lag.unwrap().get() + age + SETTINGS.notice.get();
                prop_assert!(lag < standing.limit.get() + 1e-9);
            }
        }
    }
}
