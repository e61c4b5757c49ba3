//! The analysis, as text and JSON.

use plimsoll_core::PiGains;
use plimsoll_science::{Arx, Complex, ControlLoop, Margins, RootError, Step};
use serde::{Serialize, Serializer, ser::SerializeSeq};

use super::picture;

/// The SLA {S_t, S_v, T_v} and the period of the control loop.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sla {
    /// S_t: promised delay.
    pub delay_seconds: f64,
    /// S_v: peak delay of a transient.
    pub overshoot_seconds: f64,
    /// T_v: settling time.
    pub settling_seconds: f64,
    /// P: sampling period.
    pub period_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Plant {
    a: Vec<f64>,
    b: Vec<f64>,
    static_gain: Option<f64>,
    #[serde(serialize_with = "pairs")]
    poles: Vec<Complex<f64>>,
}

#[derive(Debug, Serialize)]
struct Gains {
    kp: f64,
    ki: f64,
    /// The gains as Plimsoll's controller takes them; `None` unless more backlog means more delay.
    relative: Option<Relative>,
}

#[derive(Debug, Serialize)]
struct Relative {
    kp: f64,
    ki: f64,
}

/// The closed loop. An unstable one has only poles.
#[derive(Debug, Serialize)]
pub struct Loop {
    #[serde(serialize_with = "pairs")]
    poles: Vec<Complex<f64>>,
    stable: bool,
    margins: Option<Margins>,
    /// Overshoot as a fraction of the step; settling time in periods and seconds.
    overshoot: Option<f64>,
    settling_periods: Option<usize>,
    settling_seconds: Option<f64>,
    /// Whether overshoot and settling time are within the SLA.
    within_sla: bool,
    /// Delay and bound, per period, after a step of the target from 0 to 1.
    pub step: Option<Step>,
}

impl Loop {
    /// Analyses a control loop.
    pub fn new(control_loop: &ControlLoop, sla: &Sla) -> Result<Self, RootError> {
        let poles = control_loop.poles()?;
        let stable = ControlLoop::is_stable(&poles);
        let step = stable.then(|| control_loop.step(&poles));
        let settling_periods = step.as_ref().map(|step| step.settling_periods);
        let settling_seconds = settling_periods.map(|n| n as f64 * sla.period_seconds);
        let overshoot = step.as_ref().map(|step| step.overshoot);
        let within = |found: Option<f64>, allowed: f64| found.is_some_and(|n| n <= allowed + 1e-9);
        let allowed = sla.overshoot_seconds / sla.delay_seconds - 1.0;
        Ok(Self {
            stable,
            margins: stable.then(|| control_loop.margins()),
            within_sla: within(overshoot, allowed)
                && within(settling_seconds, sla.settling_seconds),
            overshoot,
            settling_periods,
            settling_seconds,
            step,
            poles,
        })
    }
}

/// The literal reading of Chronos-C eq. 5, for comparison.
#[derive(Debug, Serialize)]
struct Literal {
    #[serde(serialize_with = "pairs")]
    poles: Vec<Complex<f64>>,
    stable: bool,
}

/// The complete report.
#[derive(Debug, Serialize)]
pub struct Report {
    plant: Plant,
    gains: Gains,
    sla: Sla,
    /// The loop with Chronos eq. 7, which Plimsoll runs.
    #[serde(flatten)]
    pub velocity: Loop,
    double_integrating: Literal,
}

impl Report {
    /// Builds the report.
    pub fn new(
        plant: &Arx,
        gains: PiGains,
        sla: Sla,
        velocity: Loop,
        literal: &ControlLoop,
    ) -> Result<Self, RootError> {
        let gain = plant.static_gain();
        let literal = literal.poles()?;
        Ok(Self {
            plant: Plant {
                a: plant.a().to_vec(),
                b: plant.b().to_vec(),
                static_gain: gain.is_finite().then_some(gain),
                poles: plant.poles()?,
            },
            gains: Gains {
                kp: gains.kp,
                ki: gains.ki,
                relative: (gain > 0.0 && gain.is_finite()).then_some(Relative {
                    kp: gains.kp * gain,
                    ki: gains.ki,
                }),
            },
            sla,
            velocity,
            double_integrating: Literal {
                stable: ControlLoop::is_stable(&literal),
                poles: literal,
            },
        })
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let (plant, gains, found) = (&self.plant, &self.gains, &self.velocity);
        let mut text = format!("model         s(k) = {}\n", equation(&plant.a, &plant.b));
        let gain = plant
            .static_gain
            .map_or("none".to_owned(), |gain| format!("{gain:.4}"));
        text += &format!(
            "              static gain {gain}; poles {}\n",
            poles(&plant.poles)
        );
        text += &format!("gains         K_P {:.4}, K_I {:.4}\n", gains.kp, gains.ki);
        if let Some(relative) = &gains.relative {
            text += &format!(
                "              in agent.toml: kp = {:.4}, ki = {:.4} (relative to target and bound)\n",
                relative.kp, relative.ki
            );
        }
        text += &format!("closed loop   poles {}\n", poles(&found.poles));
        if let (Some(margins), Some(step)) = (&found.margins, &found.step) {
            let factor = |gain: f64| format!("{gain:.2}x");
            let gain = margins.gain.map_or("unlimited".to_owned(), factor);
            let degrees = |phase: f64| format!("{phase:.1}°");
            let phase = margins.phase_degrees.map_or("any".to_owned(), degrees);
            text += &format!(
                "              stable; margins: gain {gain}, phase {phase}, modulus {:.3}\n",
                margins.modulus
            );
            text += &format!(
                "              overshoot {:.1} %, settled (2 %) after {} periods: {} the SLA\n",
                100.0 * step.overshoot,
                step.settling_periods,
                if found.within_sla {
                    "within"
                } else {
                    "not within"
                }
            );
            text += "\ndelay after a step of the target from 0 to 1, by period\n";
            text += &picture::terminal(step);
        } else {
            text += "              UNSTABLE\n";
        }
        let literal = &self.double_integrating;
        text += &format!(
            "\nform = \"double-integrating\" (Chronos-C eq. 5, literally) with these gains: {}\n              poles {}\n",
            if literal.stable { "stable" } else { "UNSTABLE" },
            poles(&literal.poles)
        );
        text
    }

    /// Overshoot allowed by the SLA, as a fraction of the step.
    pub fn allowed_overshoot(&self) -> f64 {
        self.sla.overshoot_seconds / self.sla.delay_seconds - 1.0
    }

    /// Settling time allowed by the SLA, in periods.
    pub fn allowed_periods(&self) -> f64 {
        self.sla.settling_seconds / self.sla.period_seconds
    }
}

fn equation(a: &[f64], b: &[f64]) -> String {
    let named = [('s', a), ('d', b)];
    let terms = named.iter().flat_map(|(name, weights)| {
        let lags = weights.iter().enumerate();
        lags.map(move |(at, weight)| (*weight, format!("{name}(k-{})", at + 1)))
    });
    let mut text = String::new();
    for (weight, term) in terms {
        let sign = match (text.is_empty(), weight < 0.0) {
            (true, false) => "",
            (true, true) => "-",
            (false, false) => " + ",
            (false, true) => " - ",
        };
        text += &format!("{sign}{} {term}", weight.abs());
    }
    text
}

/// Formats poles, each conjugate pair as one: "0.497, 0.282 ± 0.351i".
fn poles(poles: &[Complex<f64>]) -> String {
    let told: Vec<String> = poles
        .iter()
        .filter(|pole| pole.im >= 0.0)
        .map(|pole| match pole.im > 0.0 {
            true => format!("{:.4} ± {:.4}i", pole.re, pole.im),
            false => format!("{:.4}", pole.re),
        })
        .collect();
    told.join(", ")
}

fn pairs<S: Serializer>(poles: &[Complex<f64>], to: S) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(poles.len()))?;
    for pole in poles {
        list.serialize_element(&[pole.re, pole.im])?;
    }
    list.end()
}
