//! `gains = "auto"` compared with the default gains, on plants with many responses to the bound.
#![allow(clippy::unwrap_used, missing_docs)]

mod plants;

use plants::*;
use plimsoll_core::*;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

const TARGET: f64 = 0.9;

/// In logarithms the delay goes `1 - memory` of the way to `base + (d / rate)^power` each period.
#[derive(Clone, Copy, Debug)]
struct Answer {
    base: f64,
    power: f64,
    memory: f64,
    /// Periods until a bound has any effect.
    dead: usize,
    /// Standard deviation of what is measured, of its logarithm.
    noise: f64,
}

struct Plant {
    answer: Answer,
    rate: f64,
    bounds: Vec<f64>,
    delay: f64,
    random: SmallRng,
}

impl Plant {
    fn new(answer: Answer, seed: u64) -> Self {
        Plant {
            answer,
            rate: 100.0,
            bounds: Vec::new(),
            delay: TARGET,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    fn period(&mut self, bound: f64) -> Observation {
        let Answer {
            base,
            power,
            memory,
            dead,
            noise,
        } = self.answer;
        self.bounds.push(bound);
        let acting = self.bounds[self.bounds.len().saturating_sub(1 + dead)];
        let steady = base + (acting / self.rate).powf(power);
        self.delay = (memory * self.delay.ln() + (1.0 - memory) * steady.ln()).exp();
        // Of twelve: nearly normal, with variance 1.
        let normal: f64 = (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0;
        let measured = self.delay * (noise * normal).exp();
        let mut seen = observation(1.0, &[measured; 20], bound);
        // The plant models delay by itself: no count from which Little's law would foretell another.
        seen.jobs = None;
        seen.peak_jobs = Some(bound);
        seen
    }
}

fn self_tuned(is: bool) -> Settings {
    let mut settings = settings(1.0, Objective::Mean, 100.0);
    settings.self_tuned = is;
    settings
}

struct Outcome {
    /// Squared logarithms of delay over target, summed.
    cost: f64,
    /// Periods in which the delay was more than a tenth off, of the last forty of each level.
    unsettled: usize,
}

/// 400 periods; the node's rate halves and doubles every fifty. Judged from the third level on.
fn controlled(answer: Answer, self_tuning: bool, seed: u64) -> Outcome {
    let mut plant = Plant::new(answer, seed);
    let mut controller = NodeController::new(self_tuned(self_tuning)).unwrap();
    let mut bound = controller.decision().bound.get();
    let mut outcome = Outcome {
        cost: 0.0,
        unsettled: 0,
    };
    for period in 0..400 {
        if period % 50 == 0 {
            plant.rate = if plant.rate > 75.0 { 50.0 } else { 100.0 };
        }
        let decision = controller.step(Some(&plant.period(bound)));
        bound = decision.bound.get();
        if period >= 100 {
            outcome.cost += (plant.delay / TARGET).ln().powi(2);
            let off = (plant.delay / TARGET - 1.0).abs() > 0.1;
            outcome.unsettled += usize::from(period % 50 >= 10 && off);
        }
    }
    outcome
}

/// Both over the same seeds: default, self-tuned.
fn both(answer: Answer) -> [Outcome; 2] {
    [false, true].map(|self_tuning| {
        (0..3)
            .map(|seed| controlled(answer, self_tuning, seed))
            .reduce(|sum, one| Outcome {
                cost: sum.cost + one.cost,
                unsettled: sum.unsettled + one.unsettled,
            })
            .unwrap()
    })
}

fn answers() -> Vec<Answer> {
    let mut all = Vec::new();
    for (base, power) in [(0.0, 1.0), (0.6, 1.0), (0.8, 1.0), (0.0, 2.0), (0.0, 3.0)] {
        for memory in [0.0, 0.5, 0.8] {
            for dead in 0..3 {
                for noise in [0.0, 0.1] {
                    all.push(Answer {
                        base,
                        power,
                        memory,
                        dead,
                        noise,
                    });
                }
            }
        }
    }
    all
}

#[test]
fn tuned_gains_beat_the_defaults_overall_and_are_never_much_worse() {
    let mut ratios: Vec<f64> = answers()
        .into_iter()
        .map(|answer| {
            let [default, found] = both(answer);
            found.cost / default.cost
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (sum / ratios.len() as f64).exp();
    assert!(mean < 0.85, "{mean}");
    assert!(ratios[ratios.len() * 9 / 10] < 1.2, "{ratios:?}");
    assert!(ratios[ratios.len() - 1] < 1.75, "{ratios:?}");
}

#[test]
fn a_steep_plant_that_the_default_gains_make_oscillate_settles() {
    for dead in 0..3 {
        let steep = Answer {
            base: 0.0,
            power: 3.0,
            memory: 0.0,
            dead,
            noise: 0.0,
        };
        let [default, found] = both(steep);
        assert!(default.unsettled > 300, "{steep:?}: {}", default.unsettled);
        assert!(found.unsettled < 60, "{steep:?}: {}", found.unsettled);
    }
}

#[test]
fn implausible_response_keeps_the_gains() {
    let default = PiGains::default();
    let mut controller = NodeController::new(self_tuned(true)).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    let mut bound: f64 = 100.0;
    for _ in 0..300 {
        let delay = TARGET * (100.0 / bound).powf(0.5) * random.random_range(0.95..1.05);
        let mut seen = observation(1.0, &[delay; 20], bound);
        seen.jobs = None;
        let decision = controller.step(Some(&seen));
        bound = decision.bound.get();
    }
    let gains = controller.decision().gains.unwrap();
    assert!((gains.kp / default.kp - 1.0).abs() < 1e-3, "{gains:?}");
    assert!((gains.ki / default.ki - 1.0).abs() < 1e-3, "{gains:?}");
}

#[test]
fn constant_bound_teaches_nothing() {
    let mut controller = NodeController::new(self_tuned(true)).unwrap();
    for _ in 0..1000 {
        let mut seen = observation(1.0, &[TARGET; 20], 100.0);
        seen.jobs = None;
        let decision = controller.step(Some(&seen));
        assert_eq!(decision.gains, Some(PiGains::default()));
    }
}

/// Gains after four hundred periods of a flat plant, which wants higher ones.
fn learned() -> (NodeController, Plant, f64) {
    let flat = Answer {
        base: 0.6,
        power: 1.0,
        memory: 0.5,
        dead: 0,
        noise: 0.02,
    };
    let mut plant = Plant::new(flat, 1);
    let mut controller = NodeController::new(self_tuned(true)).unwrap();
    let mut bound: f64 = 100.0;
    for period in 0..400 {
        if period % 50 == 0 {
            plant.rate = if plant.rate > 75.0 { 50.0 } else { 100.0 };
        }
        bound = controller.step(Some(&plant.period(bound))).bound.get();
    }
    (controller, plant, bound)
}

#[test]
fn estimate_survives_gaps_and_is_reset_when_switched_off() {
    let (mut controller, _, bound) = learned();
    let known = controller.decision().gains.unwrap();
    assert!(known.kp * (1.0 + known.ki) > 0.6, "{known:?}");
    for period in 0..200 {
        let mut seen = observation(1.0, &[0.2; 20], 1.0);
        seen.peak_jobs = Some(1.0);
        let seen = [None, Some(&seen)][period % 2];
        assert_eq!(controller.step(seen).gains, Some(known));
    }
    controller.force(Some(Cost(bound)));
    assert_eq!(
        controller
            .step(Some(&observation(1.0, &[2.0; 20], bound)))
            .gains,
        Some(known)
    );
    controller.reconfigure(self_tuned(false)).unwrap();
    let decision = controller.step(None);
    assert_eq!(decision.gains, Some(PiGains::default()));
}

#[test]
fn enabling_self_tuning_keeps_the_bound() {
    let (_, mut plant, mut bound) = learned();
    let mut controllers = [false, true].map(|_| NodeController::new(self_tuned(false)).unwrap());
    for _ in 0..30 {
        let seen = plant.period(bound);
        for controller in &mut controllers {
            bound = controller.step(Some(&seen)).bound.get();
        }
    }
    controllers[1].reconfigure(self_tuned(true)).unwrap();
    let seen = plant.period(bound);
    let [plain, tuned] = controllers.map(|mut controller| controller.step(Some(&seen)).bound);
    assert_eq!(plain, tuned);
}

#[test]
fn estimate_stays_sound_over_weeks_of_noise_and_jumps() {
    let answer = Answer {
        base: 0.3,
        power: 1.5,
        memory: 0.4,
        dead: 0,
        noise: 0.1,
    };
    let mut plant = Plant::new(answer, 3);
    let mut controller = NodeController::new(self_tuned(true)).unwrap();
    let mut bound = 100.0;
    let mut late = 0.0f64;
    for period in 0..20_000 {
        if period % 97 == 0 {
            plant.rate = if plant.rate > 75.0 { 50.0 } else { 100.0 };
            plant.bounds.clear();
        }
        let decision = controller.step(Some(&plant.period(bound)));
        bound = decision.bound.get();
        if period >= 19_000 {
            late += (plant.delay / TARGET).ln().powi(2);
        }
    }
    let gains = controller.decision().gains.unwrap();
    assert_ne!(gains, PiGains::default());
    // A tenth off, as a root mean square, noise and jumps of the load included.
    assert!(late / 1000.0 < 0.015, "{late}");
}

#[test]
fn self_tuning_requires_the_velocity_form() {
    for law in [
        Law::Fixed,
        Law::InverseDelay,
        Law::Pi {
            gains: PiGains::default(),
            form: PiForm::DoubleIntegrating,
        },
    ] {
        let settings = Settings {
            law,
            ..self_tuned(true)
        };
        let error = NodeController::new(settings).unwrap_err();
        assert_eq!(error.key, "controller.gains");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gains_stay_within_their_limits_for_any_input(
        seen in prop::collection::vec((1e-6f64..1e4, 0.0f64..1e7, 0u8..8), 1..200),
        settling in 1e-3f64..1e4,
    ) {
        let mut settings = self_tuned(true);
        settings.sla.settling = Seconds(settling);
        let default = PiGains::default();
        let integral = default.kp * default.ki;
        let mut controller = NodeController::new(settings).unwrap();
        for (delay, jobs, kind) in seen {
            let mut one = observation(1.0, &vec![delay; usize::from(kind) * 10], jobs);
            if kind == 1 {
                one.jobs = None;
            }
            let decision = controller.step((kind != 2).then_some(&one));
            let gains = decision.gains.unwrap();
            prop_assert!(decision.bound.get().is_finite());
            prop_assert!((0.25 * default.kp..=2.0 * default.kp).contains(&gains.kp));
            let found = gains.kp * gains.ki;
            prop_assert!((0.249 * integral..=2.001 * integral).contains(&found));
        }
    }
}
