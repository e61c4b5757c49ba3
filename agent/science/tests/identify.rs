//! Identification of known plants, and refusal of traces without information.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use plimsoll_science::{Candidate, Refusal, Scale, Segment, TraceError, identify};
use proptest::prelude::*;

/// A sequence without a pattern in 0..1, the same on every machine.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Trace of a plant with a random load.
fn trace(a: &[f64], b: &[f64], amount: f64, periods: usize, seed: u64) -> Segment {
    let (mut load, mut error) = (noise(seed), noise(seed + 1));
    let mut made = Segment::default();
    for k in 0..periods {
        let past = |values: &[f64], weights: &[f64]| -> f64 {
            let lags = weights.iter().enumerate();
            lags.map(|(at, weight)| {
                if k > at {
                    weight * values[k - at - 1]
                } else {
                    0.0
                }
            })
            .sum()
        };
        let delay = past(&made.delay, a) + past(&made.load, b) + amount * (error() - 0.5);
        made.push(1.0 + 9.0 * load(), delay.max(0.0));
    }
    made
}

fn of(found: &[Candidate], scale: Scale, order: usize) -> &Candidate {
    found
        .iter()
        .find(|one| (one.scale, one.order) == (scale, order))
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn plant_without_noise_is_identified_exactly(
        a1 in 0.05f64..0.6, a2 in -0.2f64..0.3, b1 in 0.01f64..1.0, b2 in 0.01f64..1.0, seed in 1u64..1000
    ) {
        let trace = trace(&[a1, a2], &[b1, b2], 0.0, 200, seed);
        // No delay is below 0, and a plant that ends there is not linear.
        prop_assume!(trace.delay[1..].iter().all(|delay| *delay > 0.0));
        let found = identify(&[trace]).unwrap();
        let second = of(&found.candidates, Scale::Raw, 2);
        let model = second.model.as_ref().unwrap();
        for (found, wanted) in model.a().iter().chain(model.b()).zip([a1, a2, b1, b2]) {
            prop_assert!((found - wanted).abs() < 1e-8, "{model:?}");
        }
        prop_assert!(second.quality.as_ref().unwrap().rmse < 1e-8);
    }

    #[test]
    fn unit_of_the_load_only_scales_b(factor in 1e-3f64..1e3, seed in 1u64..1000) {
        let plain = trace(&[0.5], &[0.1], 0.02, 300, seed);
        let load = plain.load.iter().map(|load| factor * load).collect();
        let scaled = Segment { load, ..plain.clone() };
        let (plain, scaled) = (identify(&[plain]).unwrap(), identify(&[scaled]).unwrap());
        prop_assert_eq!(plain.chosen, scaled.chosen);
        for (plain, scaled) in plain.candidates.iter().zip(&scaled.candidates) {
            let scale = if plain.scale == Scale::Raw { factor } else { factor.sqrt() };
            let (plain, scaled) = (plain.model.as_ref().unwrap(), scaled.model.as_ref().unwrap());
            for (plain, scaled) in plain.b().iter().zip(scaled.b()) {
                prop_assert!((plain - scale * scaled).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn identify_terminates_for_any_trace(
        values in prop::collection::vec((0.0f64..1e300, 0.0f64..1e300), 0..200), cut in 0usize..200
    ) {
        let mut segments = [Segment::default(), Segment::default()];
        for (at, (load, delay)) in values.into_iter().enumerate() {
            segments[usize::from(at > cut)].push(load, delay);
        }
        let _ = identify(&segments);
    }
}

#[test]
fn segments_are_not_joined_across_gaps() {
    // Two plants' steady ends would be a jump, were they taken for one trace.
    let (first, second) = (
        trace(&[0.5], &[0.1], 0.0, 100, 1),
        trace(&[0.5], &[0.1], 0.0, 100, 2),
    );
    let found = identify(&[first, second]).unwrap();
    assert_eq!(found.rows, 192);
    let quality = of(&found.candidates, Scale::Raw, 1)
        .quality
        .as_ref()
        .unwrap();
    assert!(quality.rmse < 1e-12, "{quality:?}");
}

#[test]
fn negative_static_gain_is_refused() {
    let mut backwards = trace(&[0.5], &[0.1], 0.02, 300, 3);
    for load in &mut backwards.load {
        *load = 12.0 - *load;
    }
    let found = identify(&[backwards]).unwrap();
    let refusal = of(&found.candidates, Scale::SquareRoot, 2).refusal.unwrap();
    assert!(
        matches!(refusal, Refusal::Sign(gain) if gain < 0.0),
        "{refusal}"
    );
}

#[test]
fn load_without_influence_is_refused() {
    let (mut load, mut delay) = (noise(4), noise(5));
    let mut nothing = Segment::default();
    for _ in 0..400 {
        nothing.push(1.0 + load(), 0.2 + 0.1 * delay());
    }
    let found = identify(&[nothing]).unwrap();
    for candidate in found
        .candidates
        .iter()
        .filter(|one| one.scale == Scale::Raw)
    {
        let refusal = candidate.refusal.unwrap();
        let known = matches!(refusal, Refusal::Chance(_) | Refusal::Sign(_));
        assert!(known, "order {}: {refusal}", candidate.order);
    }
}

#[test]
fn unstable_model_is_refused() {
    let mut growing = Segment::default();
    let mut load = noise(6);
    let mut delay = 0.1;
    for _ in 0..200 {
        let now = 1.0 + load();
        growing.push(now, delay);
        delay = 1.03 * delay + 0.01 * now;
    }
    let found = identify(&[growing]).unwrap();
    let refusal = of(&found.candidates, Scale::Raw, 1).refusal.unwrap();
    assert!(
        matches!(refusal, Refusal::Unstable(growth) if (growth - 1.03).abs() < 1e-6),
        "{refusal}"
    );
    assert_eq!(found.chosen.map(|at| found.candidates[at].scale), None);
}

#[test]
fn traces_without_information_are_refused_with_a_reason() {
    let short = trace(&[0.5], &[0.1], 0.0, 83, 1);
    assert_eq!(identify(&[short]).unwrap_err(), TraceError::Short(79));
    let mut still = trace(&[0.5], &[0.1], 0.1, 100, 1);
    still.load = vec![5.0; 100];
    let refused = identify(&[still]).unwrap_err();
    assert_eq!(refused, TraceError::Excitation(0.0));
    assert!(
        refused
            .to_string()
            .contains("the load varied by 0.00 % of its mean, but at least 2 %"),
        "{refused}"
    );
    let mut constant = trace(&[0.5], &[0.1], 0.1, 100, 1);
    constant.delay = vec![0.25; 100];
    assert_eq!(
        identify(&[constant]).unwrap_err(),
        TraceError::ConstantDelay
    );
}

#[test]
fn load_that_follows_the_delay_is_detected() {
    // As a controller does: the load is lowered after a late period.
    let (mut error, mut own) = (noise(7), noise(8));
    let mut closed = Segment::default();
    let (mut load, mut delay) = (5.0, 0.5);
    for _ in 0..600 {
        closed.push(load, delay);
        let before = load;
        load = (5.0f64 - 8.0 * (delay - 0.5) + own()).max(0.1);
        delay = (0.3 * delay + 0.07 * before + 0.3 * (error() - 0.5)).max(0.0);
    }
    let found = identify(&[closed, trace(&[0.3], &[0.07], 0.0, 10, 1)]).unwrap();
    let residuals = |found: &plimsoll_science::Identified| {
        of(&found.candidates, Scale::Raw, 1)
            .quality
            .clone()
            .unwrap()
            .residuals
    };
    assert!(residuals(&found).load_follows_delay());
    let open = identify(&[trace(&[0.3], &[0.07], 0.3, 600, 9)]).unwrap();
    assert!(!residuals(&open).load_follows_delay());
}
