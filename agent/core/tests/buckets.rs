//! Histograms against the SLA.
#![allow(clippy::unwrap_used)]

use plimsoll_core::{DelayHistogram, Objective, Seconds, Sla, advise};

fn sla(delay: f64) -> Sla {
    Sla {
        delay: Seconds(delay),
        settling: Seconds(10.0 * delay),
        objective: Objective::Quantile(0.95),
        set_point: 0.9,
    }
}

#[test]
fn buckets_that_end_below_the_target_are_refused() {
    let advice = advise(&[0.05, 0.1, 0.25], &sla(0.5)).unwrap();
    assert!(advice.is_refused);
    assert_eq!(
        advice.to_string(),
        "the last bucket ends at 0.25 s, below the SLA of 0.5 s; \
         use buckets 0.025, 0.05, 0.125, 0.25, 0.375, 0.45, 0.5, 0.625, 1, 2"
    );
    assert!(advise(&[], &sla(0.5)).unwrap().is_refused);
    let between = advise(&[0.1, 0.46], &sla(0.5)).unwrap();
    assert!(!between.is_refused && between.problem.contains("0.46"));
}

#[test]
fn buckets_far_from_the_sla_are_reported() {
    // Prometheus' defaults have none between 0.1 and 0.25.
    let defaults = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ];
    let advice = advise(&defaults, &sla(0.16)).unwrap();
    assert!(!advice.is_refused);
    assert!(advice.problem.contains("0.1 s and 0.25 s"), "{advice}");
    assert_eq!(advise(&defaults, &sla(0.5)), None);
    assert_eq!(advise(&defaults, &sla(0.4)), None);
}

#[test]
fn advised_buckets_need_no_advice() {
    for delay in [0.003, 0.0471, 0.5, 1.0, 7.0, 45.0, 3600.0] {
        let advice = advise(&[1e-6], &sla(delay)).unwrap();
        assert_eq!(advise(&advice.buckets, &sla(delay)), None, "{delay}");
        let spelt = advice.to_string();
        assert!(spelt.len() < 200, "{spelt}");
    }
}

#[test]
fn quantile_above_the_last_bound_is_derived_from_the_sum() {
    let histogram = |counts: &[u64], sum| {
        DelayHistogram::from_counts([0.1, 0.25].into(), counts.to_vec(), sum).unwrap()
    };
    let p95 = |it: DelayHistogram| it.quantile(0.95).unwrap().get();
    // All took 3 s.
    assert_eq!(p95(histogram(&[0, 0, 600], 1800.0)), 3.0);
    // 90 up to 0.25 s; the other ten share what is left.
    assert_eq!(p95(histogram(&[0, 90, 10], 90.0 * 0.25 + 20.0)), 2.0);
    // A sum that leaves less than the bound, or nothing.
    assert_eq!(p95(histogram(&[0, 90, 10], 20.0)), 0.25);
    assert_eq!(p95(histogram(&[0, 0, 10], 0.0)), 0.25);
}
