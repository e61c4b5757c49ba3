//! Host load: algorithm 4.1 line by line, and its limits whatever the counters say.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use plimsoll_signal::host_load::counters::*;
use proptest::prelude::*;

fn sample(share: f64, cpus: f64, waiting: f64, average: f64) -> CpuSample {
    CpuSample {
        share,
        cpus,
        waiting,
        average,
        seconds: 5.0,
    }
}

/// The load after two looks, five seconds apart.
fn estimate(average_before: f64, now: CpuSample) -> f64 {
    let mut load = CpuLoad::default();
    load.estimate(sample(0.0, now.cpus, 0.0, average_before));
    load.estimate(now)
}

#[test]
fn algorithm_4_1_line_by_line() {
    // (load average before, what is seen now, the load)
    let cases = [
        // Lines 7 to 9: not in full use, whatever the queue is.
        (0.0, sample(0.0, 2.0, 0.0, 0.0), 0.0),
        (0.0, sample(0.42, 2.0, 90.0, 30.0), 0.42),
        (0.0, sample(0.9499, 2.0, 90.0, 30.0), 0.9499),
        // Lines 11 to 13: too low an average to tell, or one process for each CPU.
        (0.0, sample(0.95, 2.0, 9.0, 0.59), 1.0),
        (2.0, sample(1.0, 2.0, 9.0, 2.39), 1.0),
        (1.6, sample(1.0, 2.0, 9.0, 2.0), 1.0),
        // Lines 14 to 16: it grows.
        (1.59, sample(1.0, 2.0, 9.0, 2.0), 2.0),
        (0.0, sample(1.0, 2.0, 0.0, 0.6), 2.0),
        // Lines 17 to 19: the queue is far ahead of its average. (2.5 + 7) / 4.
        (2.5, sample(1.0, 2.0, 7.0, 2.5), 2.375),
        // As the thesis' own loadavg line and two CPUs have it, but for an average that is high enough.
        (2.4, sample(1.0, 2.0, 4.0, 2.4), 1.2),
        // Line 20: more than 3 for each CPU, but not twice the average; and the other way round.
        (4.0, sample(1.0, 2.0, 8.0, 4.0), 2.0),
        (2.5, sample(1.0, 2.0, 6.0, 2.5), 1.25),
        (6.8, sample(1.0, 2.0, 6.0, 6.8), 3.4),
        // Half a CPU, as a container may have.
        (1.0, sample(1.0, 0.5, 1.0, 1.0), 2.0),
    ];
    for (before, now, expected) in cases {
        let load = estimate(before, now);
        assert!(
            (load - expected).abs() < 1e-12,
            "{before} {now:?}: {load}, not {expected}"
        );
    }
}

#[test]
fn a_first_look_sees_no_growth() {
    assert_eq!(CpuLoad::default().estimate(sample(1.0, 1.0, 0.0, 1.0)), 1.0);
}

#[test]
fn looks_closer_than_the_kernels_still_see_growth_and_its_end() {
    let mut load = CpuLoad::default();
    let mut look = |average| {
        load.estimate(CpuSample {
            seconds: 1.0,
            ..sample(1.0, 4.0, 0.0, average)
        })
    };
    for _ in 0..10 {
        assert_eq!(look(2.0), 1.0);
    }
    for _ in 0..4 {
        assert_eq!(look(3.0), 2.0);
    }
    // It stays where it is for long: no growth any more.
    for _ in 0..10 {
        look(3.0);
    }
    assert_eq!(look(3.0), 1.0);
}

#[test]
fn shares_and_utilisations_of_known_readings() {
    let time = |used, offered| CpuTime { used, offered };
    // The thesis' /proc/stat line, and a second of its two CPUs later at 1024 ticks each.
    let earlier = time(244_988_441.0, 13_244_979_020.0);
    let later = time(244_988_441.0 + 512.0, 13_244_979_020.0 + 2048.0);
    assert_eq!(later.share_since(earlier), Ok(0.25));
    assert_eq!(earlier.share_since(later), Err(CounterError::WentBack));
    assert_eq!(later.share_since(later), Err(CounterError::NoTime));

    let link = |received, sent| LinkBytes { received, sent };
    // 100 Mbit/s for two seconds: 25 MB at most.
    let used = |now| link_utilisation(link(1000, 500), now, 2.0, 1e8);
    assert_eq!(used(link(1000 + 5_000_000, 500 + 12_500_000)), Ok(0.5));
    assert_eq!(used(link(1000 + 50_000_000, 500)), Ok(1.0));
    assert_eq!(used(link(999, 600)), Err(CounterError::WentBack));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let none = link_utilisation(link(0, 0), link(8, 8), seconds, 1e9);
        assert_eq!(none, Err(CounterError::NoTime), "{seconds}");
    }
    for (rho, load) in [(0.0, 0.0), (0.5, 1.0), (0.8, 4.0), (0.9, 9.0), (1.0, 99.0)] {
        assert!((network_load(rho) - load).abs() < 1e-9, "{rho}");
    }
    assert_eq!(network_load(f64::NAN), 0.0);
}

#[test]
fn an_average_of_ones_own_follows_as_the_kernels() {
    let mut average = QueueAverage::default();
    for _ in 0..60 {
        average.add(8.0, 1.0);
    }
    // 8 · (1 - (59/60)^60)
    assert!((average.add(8.0, 1.0) - 8.0 * (1.0 - (59.0f64 / 60.0).powi(61))).abs() < 1e-9);
    assert_eq!(average.add(3.0, 600.0), 3.0, "a long pause leaves nothing");
}

proptest! {
    #[test]
    fn a_load_whatever_comes(looks in prop::collection::vec([prop::num::f64::ANY; 5], 1..20)) {
        let mut load = CpuLoad::default();
        for [share, cpus, waiting, average, seconds] in looks {
            let cpu = load.estimate(CpuSample { share, cpus, waiting, average, seconds });
            prop_assert!((0.0..=f64::MAX).contains(&cpu), "{cpu}");
        }
    }

    #[test]
    fn one_or_more_where_and_only_where_the_cpus_are_in_full_use(
        looks in prop::collection::vec((0.0..=1.0f64, 0.0..500.0f64, 0.0..500.0f64, 0.01..10.0f64), 1..20), cpus in 0.1..128.0f64,
    ) {
        let mut load = CpuLoad::default();
        for (share, waiting, average, seconds) in looks {
            let cpu = load.estimate(CpuSample { share, cpus, waiting, average, seconds });
            prop_assert_eq!(cpu >= 1.0, share >= SATURATED);
        }
    }

    #[test]
    fn the_load_is_for_each_cpu(
        before in 0.0..50.0f64, waiting in 0.0..500.0f64, average in 0.0..50.0f64, cpus in 1u8..64,
    ) {
        let n = f64::from(cpus);
        let one = estimate(before, sample(1.0, 1.0, waiting, average));
        // A power of two keeps rounding out of the comparisons.
        let k = n.log2().floor().exp2();
        let many = estimate(before * k, sample(1.0, k, waiting * k, average * k));
        prop_assert_eq!(one, many);
    }

    #[test]
    fn a_longer_queue_is_never_less_load(
        average in 0.0..50.0f64, waiting in 0.0..500.0f64, more in 0.0..500.0f64, cpus in 0.1..64.0f64,
    ) {
        let at = |waiting| estimate(average, sample(1.0, cpus, waiting, average));
        prop_assert!(at(waiting + more) >= at(waiting));
    }

    #[test]
    fn a_busier_link_is_more_load(a in 0.0..=1.0f64, b in 0.0..=1.0f64) {
        let (less, more) = (a.min(b), a.max(b));
        prop_assert!(network_load(less) <= network_load(more));
        prop_assert!((0.0..=100.0).contains(&network_load(more)));
    }

    #[test]
    fn counters_give_a_share_or_a_reason(a: [u64; 2], b: [u64; 2], seconds: f64, speed: f64) {
        let link = |[received, sent]: [u64; 2]| LinkBytes { received, sent };
        if let Ok(used) = link_utilisation(link(a), link(b), seconds, speed) {
            prop_assert!((0.0..=1.0).contains(&used));
        }
        let time = |[used, offered]: [u64; 2]| CpuTime { used: used as f64, offered: offered as f64 };
        if let Ok(share) = time(b).share_since(time(a)) {
            prop_assert!((0.0..=1.0).contains(&share));
        }
    }
}
