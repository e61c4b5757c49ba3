//! The closed loop against NumPy and SciPy (`golden/tune.py`), and the figures of Chronos.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use plimsoll_core::{PiForm, PiGains};
use plimsoll_science::{Arx, Complex, ControlLoop};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    a: Vec<f64>,
    b: Vec<f64>,
    kp: f64,
    ki: f64,
    poles: Vec<[f64; 2]>,
    stable: bool,
    literal_poles: Vec<[f64; 2]>,
    margins: Option<Margins>,
    step: Option<Step>,
}

#[derive(Deserialize)]
struct Margins {
    gain: Option<f64>,
    phase_degrees: Option<f64>,
    modulus: f64,
}

#[derive(Deserialize)]
struct Step {
    delay: Vec<f64>,
    bound: Vec<f64>,
}

fn cases() -> BTreeMap<String, Case> {
    serde_json::from_str(include_str!("../golden/tune.json")).unwrap()
}

fn control_loop(case: &Case, form: PiForm) -> ControlLoop {
    let gains = PiGains {
        kp: case.kp,
        ki: case.ki,
    };
    ControlLoop::new(&Arx::new(&case.a, &case.b).unwrap(), gains, form)
}

fn close(name: &str, found: f64, golden: f64, tolerance: f64) {
    let allowed = tolerance * golden.abs().max(1.0);
    assert!(
        (found - golden).abs() <= allowed,
        "{name}: {found} is not {golden}"
    );
}

fn same_poles(name: &str, found: &[Complex<f64>], golden: &[[f64; 2]]) {
    assert_eq!(found.len(), golden.len(), "{name}: {found:?}");
    for (found, golden) in found.iter().zip(golden) {
        close(name, found.re, golden[0], 1e-6);
        close(name, found.im, golden[1], 1e-6);
    }
}

#[test]
fn poles_of_both_forms_match_numpy() {
    for (name, case) in cases() {
        let poles = control_loop(&case, PiForm::Velocity).poles().unwrap();
        same_poles(&name, &poles, &case.poles);
        assert_eq!(ControlLoop::is_stable(&poles), case.stable, "{name}");
        let literal = control_loop(&case, PiForm::DoubleIntegrating);
        same_poles(&name, &literal.poles().unwrap(), &case.literal_poles);
    }
}

#[test]
fn margins_match_scipy() {
    for (name, case) in cases() {
        let Some(golden) = &case.margins else {
            continue;
        };
        let found = control_loop(&case, PiForm::Velocity).margins();
        assert_eq!(found.gain.is_some(), golden.gain.is_some(), "{name}");
        if let (Some(found), Some(golden)) = (found.gain, golden.gain) {
            close(&name, found, golden, 1e-6);
        }
        let phases = (found.phase_degrees, golden.phase_degrees);
        assert_eq!(phases.0.is_some(), phases.1.is_some(), "{name}");
        if let (Some(found), Some(golden)) = phases {
            close(&name, found, golden, 1e-6);
        }
        close(&name, found.modulus, golden.modulus, 1e-6);
    }
}

#[test]
fn step_response_matches_the_difference_equations() {
    for (name, case) in cases() {
        let Some(golden) = &case.step else {
            continue;
        };
        let control_loop = control_loop(&case, PiForm::Velocity);
        let step = control_loop.step(&control_loop.poles().unwrap());
        for (found, golden) in [(&step.delay, &golden.delay), (&step.bound, &golden.bound)] {
            for (found, golden) in found.iter().zip(golden) {
                close(&name, *found, *golden, 1e-7);
            }
        }
        close(&name, *step.delay.last().unwrap(), 1.0, 1e-3);
    }
}

#[test]
fn chronos_poles_match_the_paper() {
    let chronos = &cases()["chronos"];
    let poles = control_loop(chronos, PiForm::Velocity).poles().unwrap();
    // The paper's plant and gains are rounded to three digits.
    for (pole, paper) in poles
        .iter()
        .zip([(0.496, 0.0), (0.282, 0.354), (0.282, -0.354)])
    {
        assert!(
            (pole - Complex::new(paper.0, paper.1)).norm() < 0.005,
            "{pole}"
        );
    }
}
