//! Tuned gains meet the SLA's limits on plants of any shape.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use plimsoll_core::{PiForm, PiGains};
use plimsoll_science::{
    Arx, ControlLoop, Limits, MODULUS_MARGIN, ModelError, Polynomial, REACTION, TuneError, tune,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    overshoot: 0.1,
    settling_periods: 60.0,
};

/// Coefficients of `Π (z - pole)`, as an ARX model's `a`.
fn with_poles(poles: &[f64]) -> Vec<f64> {
    let mut product = Polynomial::new(&[1.0]);
    for pole in poles {
        product = product.times(&Polynomial::new(&[1.0, -pole]));
    }
    product.coefficients()[1..].iter().map(|c| -c).collect()
}

fn plants() -> impl Strategy<Value = Arx> {
    let poles = prop::collection::vec(-0.4f64..0.75, 1..4);
    let b = prop::collection::vec(0.0f64..1.0, 1..4);
    (poles, b, -3.0f64..3.0).prop_map(|(poles, mut b, scale)| {
        // The first is felt at once, so that the plant is no pure delay.
        b[0] += 0.5;
        let b: Vec<f64> = b.iter().map(|b| b * 10f64.powf(scale)).collect();
        Arx::new(&with_poles(&poles), &b).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5))]

    #[test]
    fn tuned_loops_meet_sla_and_margin(plant in plants()) {
        let tuned = tune(&plant, LIMITS).unwrap();
        let control_loop = ControlLoop::new(&plant, tuned.gains, PiForm::Velocity);
        let poles = control_loop.poles().unwrap();
        prop_assert!(ControlLoop::is_stable(&poles));
        let step = control_loop.step(&poles);
        prop_assert!(step.overshoot <= LIMITS.overshoot);
        prop_assert!(step.settling_periods as f64 <= LIMITS.settling_periods);
        prop_assert!(control_loop.margins().modulus >= MODULUS_MARGIN);
        let reaction = tuned.gains.kp * plant.static_gain() * (1.0 + tuned.gains.ki);
        prop_assert!(reaction <= REACTION + 1e-9);
    }

    #[test]
    fn gains_scale_with_the_plants_unit(plant in plants()) {
        // On the relative plant K_P is that of the plant as such, times its static gain.
        let (found, relative) = (tune(&plant, LIMITS).unwrap(), tune(&plant.relative(), LIMITS).unwrap());
        let wanted = found.gains.kp * plant.static_gain();
        prop_assert!((relative.gains.kp / wanted - 1.0).abs() < 1e-6);
        prop_assert!((relative.gains.ki / found.gains.ki - 1.0).abs() < 1e-6);
    }
}

proptest! {
    #[test]
    fn polynomial_is_zero_at_its_roots(poles in prop::collection::vec(-2.0f64..2.0, 1..6)) {
        let mut product = Polynomial::new(&[3.0]);
        for pole in &poles {
            product = product.times(&Polynomial::new(&[1.0, -pole]));
        }
        let roots = product.roots().unwrap();
        prop_assert_eq!(roots.len(), poles.len());
        for root in roots {
            // Of a root found well the value is small against the terms that it is the sum of.
            let terms: f64 = product.coefficients().iter().rev().enumerate()
                .map(|(power, c)| c.abs() * root.norm().powi(power as i32)).sum();
            prop_assert!(product.at(root).norm() <= 1e-9 * terms);
        }
    }

    #[test]
    fn tune_terminates_for_any_coefficients(
        a in prop::collection::vec(any::<f64>(), 0..10),
        b in prop::collection::vec(any::<f64>(), 0..10),
        kp in any::<f64>(),
        ki in any::<f64>(),
    ) {
        if let Ok(plant) = Arx::new(&a, &b) {
            let control_loop = ControlLoop::new(&plant, PiGains { kp, ki }, PiForm::Velocity);
            if let Ok(poles) = control_loop.poles() && ControlLoop::is_stable(&poles) {
                control_loop.step(&poles);
                control_loop.margins();
            }
        }
    }
}

#[test]
fn plant_with_negative_gain_is_refused() {
    let backwards = Arx::new(&[0.5], &[-0.1]).unwrap();
    assert_eq!(tune(&backwards, LIMITS).unwrap_err(), TuneError::Sign(-0.2));
    let integrator = Arx::new(&[1.0], &[0.1]).unwrap();
    assert_eq!(
        tune(&integrator, LIMITS).unwrap_err(),
        TuneError::Sign(f64::INFINITY)
    );
}

#[test]
fn unreachable_settling_time_is_refused_with_the_best() {
    let plant = Arx::new(&[0.9], &[0.0, 0.0, 0.1]).unwrap();
    let limits = Limits {
        settling_periods: 1.0,
        ..LIMITS
    };
    let refused = tune(&plant, limits).unwrap_err();
    let TuneError::OutOfReach {
        best: Some(best), ..
    } = refused
    else {
        panic!("{refused}")
    };
    assert!((4..200).contains(&best), "{refused}");
    assert!(
        refused
            .to_string()
            .contains(&format!("the fastest settle in {best}")),
        "{refused}"
    );
    let wider = Limits {
        settling_periods: best as f64,
        ..LIMITS
    };
    assert_eq!(tune(&plant, wider).unwrap().step.settling_periods, best);
}

#[test]
fn invalid_model_is_refused_with_the_coefficient() {
    let refused = |a: &[f64], b: &[f64]| Arx::new(a, b).unwrap_err().to_string();
    assert_eq!(
        refused(&[], &[1.0]),
        "a has 0 coefficients: must have 1 to 8"
    );
    assert_eq!(
        refused(&[0.1; 9], &[1.0]),
        "a has 9 coefficients: must have 1 to 8"
    );
    assert_eq!(
        refused(&[0.1], &[1.0, f64::NAN]),
        "b2 is NaN: must be a finite number"
    );
    assert_eq!(Arx::new(&[0.1], &[0.0, 0.0]), Err(ModelError::NoInput));
}
