//! Gains for an SLA, along the root loci of both.

use nalgebra::Complex;
use plimsoll_core::{PiForm, PiGains};

use crate::{
    arx::Arx,
    control_loop::{ControlLoop, Margins, Step},
    polynomial::RootError,
};

/// What a tuning must keep of the way to -1. A loop that keeps 0.6 bears 2.5 times the gain and 34 degrees
/// of phase, and makes noise no more than 1.7 times as large.
pub const MODULUS_MARGIN: f64 = 0.6;
/// The most that an error as large as the target may move the bound at once, as a share of it: were it more,
/// the noise of one period could empty the node.
pub const REACTION: f64 = 1.0;
/// Proportional and integral gains tried, on the plant of static gain 1.
const GAINS: [f64; 2] = [1e-2, REACTION];
const TRIED: usize = 40;
/// Loops that take longer to settle are not looked at, unless the SLA allows it.
const SLOWEST_PERIODS: usize = 300;
/// Finer grids around the best of the one before.
const REFINEMENTS: usize = 3;

/// What the SLA leaves to a transient.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most it may go over the target, as a share of the step.
    pub overshoot: f64,
    /// Periods in which it must have settled.
    pub settling_periods: f64,
}

/// Why there are no gains.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TuneError {
    /// More backlog must make more delay.
    #[error(
        "the static gain is {0}: more backlog must make more delay, or the loop pushes the wrong way"
    )]
    Sign(f64),
    /// None of the gains tried are good enough.
    #[error(
        "no gains settle within {wanted:.1} periods and overshoot by at most {overshoot:.1} %, with a modulus \
         margin of {MODULUS_MARGIN} and a bound that an error of the whole target moves by no more than \
         itself{}", best.map_or(String::new(), |best| format!(
            "; but for the periods, the fastest settle in {best}"
        ))
    )]
    OutOfReach {
        /// Periods wanted.
        wanted: f64,
        /// Overshoot allowed, in percent.
        overshoot: f64,
        /// The fewest periods that any gains take.
        best: Option<usize>,
    },
    /// The model's polynomials are out of hand.
    #[error(transparent)]
    Roots(#[from] RootError),
}

/// Gains, and what they make of the loop.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The gains, on the error and the bound as such.
    pub gains: PiGains,
    /// Poles of their loop, the slowest first.
    pub poles: Vec<Complex<f64>>,
    /// Its margins.
    pub margins: Margins,
    /// Its answer to a step.
    pub step: Step,
}

/// The gains that settle soonest within the limits and keep [`MODULUS_MARGIN`] and
/// [`REACTION`]; of equals, those with the larger margin.
///
/// Each pair of gains is a point on two root loci. The whole plane of stable ones is walked, on a grid that
/// gets finer around the best: a pair of poles put where one wants it says nothing of where the others go,
/// and not every plant lets a pair be put anywhere.
pub fn tune(plant: &Arx, limits: Limits) -> Result<Tuned, TuneError> {
    let static_gain = plant.static_gain();
    if !(static_gain > 0.0 && static_gain.is_finite()) {
        return Err(TuneError::Sign(static_gain));
    }
    let mut best: Option<Tuned> = None;
    let (mut proportional, mut integral) = (GAINS, GAINS);
    for _ in 0..=REFINEMENTS {
        for kp in spread(proportional) {
            for integral in spread(integral).filter(|integral| kp + integral <= REACTION) {
                let gains = PiGains {
                    kp: kp / static_gain,
                    ki: integral / kp,
                };
                if let Some(better) = better(plant, gains, limits, best.as_ref())? {
                    best = Some(better);
                }
            }
        }
        let Some(best) = &best else {
            break;
        };
        let kp = best.gains.kp * static_gain;
        proportional = around(kp, proportional);
        integral = around(kp * best.gains.ki, integral);
    }
    match best {
        Some(best) if best.step.settling_periods as f64 <= limits.settling_periods => Ok(best),
        best => Err(TuneError::OutOfReach {
            wanted: limits.settling_periods,
            overshoot: 100.0 * limits.overshoot,
            best: best.map(|best| best.step.settling_periods),
        }),
    }
}

/// What the gains make of the loop, where that is better than the best so far.
fn better(
    plant: &Arx,
    gains: PiGains,
    limits: Limits,
    best: Option<&Tuned>,
) -> Result<Option<Tuned>, RootError> {
    let tried = ControlLoop::new(plant, gains, PiForm::Velocity);
    let soonest = best.map_or_else(
        || SLOWEST_PERIODS.max(limits.settling_periods as usize),
        |best| best.step.settling_periods,
    );
    // Nearly all end here, after few periods.
    if !tried.may_settle(soonest, limits.overshoot) {
        return Ok(None);
    }
    let poles = tried.poles()?;
    if !ControlLoop::is_stable(&poles) {
        return Ok(None);
    }
    let step = tried.step(&poles);
    let later = best.is_some_and(|best| step.settling_periods > best.step.settling_periods);
    if later || step.overshoot > limits.overshoot {
        return Ok(None);
    }
    let margins = tried.margins();
    let better = best.is_none_or(|best| {
        step.settling_periods < best.step.settling_periods || margins.modulus > best.margins.modulus
    });
    let kept = margins.modulus >= MODULUS_MARGIN && better;
    Ok(kept.then_some(Tuned {
        gains,
        poles,
        margins,
        step,
    }))
}

/// Values from one end to the other, each the same factor over the last.
fn spread([low, high]: [f64; 2]) -> impl Iterator<Item = f64> {
    let factor = (high / low).powf(1.0 / (TRIED - 1) as f64);
    (0..TRIED).map(move |at| low * factor.powi(at as i32))
}

/// Two steps of the last spread to either side.
fn around(value: f64, [low, high]: [f64; 2]) -> [f64; 2] {
    let factor = (high / low).powf(2.0 / (TRIED - 1) as f64);
    [value / factor, value * factor]
}
