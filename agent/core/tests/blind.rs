//! Detection of blind sources, as distinct from noise, growth and double counting.
#![allow(clippy::unwrap_used)]

use plimsoll_core::{BlindWatch, Seconds, Sight, Waiting};
use rand::{Rng, SeedableRng, rngs::SmallRng};

const SLA: Seconds = Seconds(0.5);

/// A second in which `rate` requests ended after `delay` each.
fn period(rate: f64, delay: f64, listen_backlog: f64) -> Waiting {
    Waiting {
        period: Seconds(1.0),
        delays: Seconds(rate * delay),
        ended: rate,
        listen_backlog,
        ..Waiting::default()
    }
}

fn after(watch: &mut BlindWatch, periods: usize, seen: Waiting) -> Sight {
    (0..periods)
        .map(|_| watch.step(&seen, SLA).unwrap())
        .last()
        .unwrap()
}

#[test]
fn source_is_blind_to_the_listen_backlog() {
    let mut watch = BlindWatch::default();
    let sight = after(&mut watch, 20, period(40.0, 0.1, 0.0));
    assert_eq!((sight.ratio, sight.unseen), (1.0, None));
    // 16 wait and 40/s are accepted: 0.4 s that the source does not measure.
    let sight = after(&mut watch, 90, period(40.0, 0.1, 16.0));
    assert!((sight.ratio - 5.0).abs() < 0.01, "{sight:?}");
    assert!(
        (sight.unseen.unwrap().get() - 0.4).abs() < 0.01,
        "{sight:?}"
    );
}

#[test]
fn verdict_needs_several_periods_and_has_hysteresis() {
    let mut watch = BlindWatch::default();
    after(&mut watch, 10, period(40.0, 0.1, 0.0));
    assert_eq!(after(&mut watch, 1, period(40.0, 0.1, 16.0)).unseen, None);
    assert_eq!(after(&mut watch, 10, period(40.0, 0.1, 0.0)).unseen, None);
    assert!(
        after(&mut watch, 10, period(40.0, 0.1, 1.5))
            .unseen
            .is_none()
    );
    assert!(
        after(&mut watch, 10, period(40.0, 0.1, 16.0))
            .unseen
            .is_some()
    );
    // The queue is gone, and with it the unseen delay.
    let over = after(&mut watch, 1, period(40.0, 0.1, 0.0));
    assert_eq!(over.unseen, Some(Seconds(0.0)));
    let idle = after(&mut watch, 1, period(0.0, 0.0, 0.0));
    assert_eq!(idle.unseen, Some(Seconds(0.0)));
    assert_eq!(after(&mut watch, 2, period(0.0, 0.0, 0.0)).unseen, None);
    assert!(
        after(&mut watch, 10, period(40.0, 0.1, 16.0))
            .unseen
            .is_some()
    );
    // 1.2 times what the source sees: blind still, though it would not become so.
    let between = period(40.0, 0.2, 1.6);
    assert!(after(&mut watch, 60, between).unseen.is_some());
    assert!(
        after(&mut watch, 60, period(40.0, 0.2, 0.4))
            .unseen
            .is_none()
    );
    assert!(after(&mut watch, 60, between).unseen.is_none());
}

#[test]
fn small_unseen_delay_is_ignored() {
    let mut watch = BlindWatch::default();
    // Ten times what the source sees, and far below the SLA.
    let sight = after(&mut watch, 30, period(1000.0, 0.001, 10.0));
    assert!(sight.ratio > 10.0 && sight.unseen.is_none(), "{sight:?}");
}

#[test]
fn verdict_does_not_flap_with_few_samples() {
    let mut random = SmallRng::seed_from_u64(16);
    let mut watch = BlindWatch::default();
    for _ in 0..10_000 {
        // 20 to 40 exponential delays; the backlog of a node that keeps up; the scrape and 6 jobs on average,
        // of one moment each.
        let ended = random.random_range(20..=40);
        let delay = |_| -0.2 * random.random::<f64>().max(1e-9).ln();
        let delays = (0..ended).map(delay).sum();
        let jobs = (0..24).filter(|_| random.random_bool(0.25)).count();
        let waits = random.random_bool(0.1);
        let seen = Waiting {
            period: Seconds(1.0),
            delays: Seconds(delays),
            ended: f64::from(ended),
            listen_backlog: if waits {
                4.0 * random.random::<f64>()
            } else {
                0.0
            },
            gauge: Some(1.0 + jobs as f64),
            oldest_age: None,
        };
        assert_eq!(watch.step(&seen, SLA).unwrap().unseen, None);
    }
}

#[test]
fn gauge_above_the_histogram_is_used() {
    let mut watch = BlindWatch::default();
    let idle = Waiting {
        gauge: Some(5.0),
        ..period(40.0, 0.1, 0.0)
    };
    assert_eq!(after(&mut watch, 10, idle).unseen, None);
    let queued = Waiting {
        gauge: Some(25.0),
        ..idle
    };
    let sight = after(&mut watch, 90, queued);
    assert!(
        (sight.unseen.unwrap().get() - 0.5).abs() < 0.01,
        "{sight:?}"
    );
}

#[test]
fn gauge_that_counts_requests_twice_is_not_blind() {
    // In the gauge once as waiting and once as running, and in the histogram with its whole delay.
    let mut watch = BlindWatch::default();
    for rate in [10.0, 40.0, 40.0] {
        for delay in [0.1, 0.4, 1.0] {
            let seen = Waiting {
                gauge: Some(1.0 + 2.0 * rate * delay),
                ..period(rate, delay, 0.0)
            };
            let sight = after(&mut watch, 20, seen);
            assert!(sight.unseen.is_none() && sight.ratio < 1.01, "{sight:?}");
        }
    }
    // The listen backlog counts as unseen all the same.
    let seen = Waiting {
        gauge: Some(9.0),
        ..period(40.0, 0.1, 16.0)
    };
    let sight = after(&mut watch, 90, seen);
    assert!(
        (sight.unseen.unwrap().get() - 0.4).abs() < 0.01,
        "{sight:?}"
    );
}

#[test]
fn overload_from_the_first_period_is_not_double_counting() {
    let mut watch = BlindWatch::default();
    let seen = Waiting {
        gauge: Some(41.0),
        ..period(40.0, 0.1, 0.0)
    };
    let sight = after(&mut watch, 30, seen);
    assert!(sight.unseen.unwrap().get() > 0.35, "{sight:?}");
}

#[test]
fn gauge_is_ignored_if_the_oldest_request_is_young() {
    let mut watch = BlindWatch::default();
    after(&mut watch, 5, period(40.0, 0.1, 0.0));
    let doubled = Waiting {
        gauge: Some(41.0),
        oldest_age: Some(Seconds(0.2)),
        ..period(40.0, 0.1, 0.0)
    };
    assert_eq!(
        after(&mut watch, 30, doubled),
        Sight {
            ratio: 1.0,
            unseen: None
        }
    );
    let old = Waiting {
        oldest_age: Some(Seconds(1.0)),
        ..doubled
    };
    assert!(after(&mut watch, 30, old).unseen.is_some());
}

#[test]
fn invalid_and_empty_periods_give_no_verdict() {
    let mut watch = BlindWatch::default();
    assert_eq!(watch.step(&period(0.0, 0.0, 5.0), SLA), None);
    assert_eq!(watch.step(&period(10.0, f64::NAN, 5.0), SLA), None);
    assert_eq!(watch.step(&period(10.0, 0.1, -5.0), SLA), None);
    let mut watch = BlindWatch::default();
    let seen = Waiting {
        gauge: Some(f64::INFINITY),
        ..period(10.0, 0.1, 0.0)
    };
    assert_eq!(
        watch.step(&seen, SLA),
        Some(Sight {
            ratio: 1.0,
            unseen: None
        })
    );
}
