//! Poles of the loop with self-tuned gains, computed by independent code.
#![allow(clippy::unwrap_used, missing_docs)]

use plimsoll_core::{
    BoundLimits, Cost, DelayHistogram, Law, NodeController, Objective, Observation, PiForm,
    PiGains, Rules, Seconds, ServiceMode, Settings, Sla,
};
use plimsoll_science::{Arx, ControlLoop};

/// Gains found on `ln s(k) = a ln s(k-1) + b ln d(k)` and a level that jumps now and then.
fn found(a: f64, b: f64, settling: f64) -> PiGains {
    let mut controller = NodeController::new(Settings {
        sla: Sla {
            delay: Seconds(1.0),
            settling: Seconds(settling),
            objective: Objective::Mean,
            set_point: 1.0,
        },
        limits: BoundLimits {
            min: Cost(1.0),
            max: Cost(1e9),
            nominal: Some(Cost(1000.0)),
        },
        law: Law::Pi {
            gains: PiGains::default(),
            form: PiForm::Velocity,
        },
        mpl: false,
        mode: ServiceMode::Enforce,
        self_tuned: true,
        rules: Rules::default(),
    })
    .unwrap();
    let (mut delay, mut level) = (1.0f64, 0.0);
    let mut bound = 1000.0f64;
    for period in 0..600 {
        if period % 30 == 0 {
            level = 0.3 * f64::from(period).sin();
        }
        delay = (a * delay.ln() + b * (bound / 1000.0).ln() + (1.0 - a) * level).exp();
        let mut delays = DelayHistogram::empty(DelayHistogram::fine_bounds()).unwrap();
        for _ in 0..20 {
            assert!(delays.record(Seconds(delay)));
        }
        let seen = Observation {
            peak_jobs: Some(bound),
            ..Observation::new(Seconds(1.0), delays)
        };
        bound = controller.step(Some(&seen)).bound.get();
    }
    controller.decision().gains.unwrap()
}

#[test]
fn slowest_pole_meets_the_slas_settling_time() {
    // exp(-4 / (T_v / 2)): within 2 % in half the time that the SLA gives.
    for (a, b, settling) in [(0.5, 1.0, 10.0), (0.3, 1.0, 10.0), (0.5, 1.2, 16.0)] {
        let gains = found(a, b, settling);
        let plant = Arx::new(&[a], &[b]).unwrap();
        let poles = ControlLoop::new(&plant, gains, PiForm::Velocity)
            .poles()
            .unwrap();
        let wanted = (-8.0f64 / settling).exp();
        let slowest = poles[0].norm();
        assert!(
            (slowest - wanted).abs() < 0.06,
            "a {a}, b {b}, T_v {settling}: {gains:?}, poles {poles:?}, wanted {wanted}"
        );
    }
}
