//! Tuning of gains for an SLA, by a search over both root loci.

use nalgebra::Complex;
use plimsoll_core::{PiForm, PiGains};

use crate::{
    arx::Arx,
    control_loop::{ControlLoop, Margins, Step},
    polynomial::RootError,
};

/// Minimum modulus margin of a tuning. With 0.6, a loop tolerates 2.5 times the gain and 34 degrees of phase, and
/// amplifies noise by at most 1.7.
pub const MODULUS_MARGIN: f64 = 0.6;
/// Maximum change of the bound, as a share of it, by an error as large as the target: with more, the noise of one
/// period could empty the node.
pub const REACTION: f64 = 1.0;
/// Range of the proportional and integral gains tried, for a plant of static gain 1.
const GAINS: [f64; 2] = [1e-2, REACTION];
const TRIED: usize = 40;
/// Settling time in periods beyond which loops are not considered, unless the SLA allows it.
const SLOWEST_PERIODS: usize = 300;
/// Number of finer grids, each around the best point of the one before.
const REFINEMENTS: usize = 3;

/// Limits of the SLA on a transient.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum overshoot, as a share of the step.
    pub overshoot: f64,
    /// Maximum settling time, in periods.
    pub settling_periods: f64,
}

/// Reason for which tuning fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TuneError {
    /// The static gain is not positive.
    #[error(
        "the static gain is {0}: more backlog must make more delay, or the loop pushes the wrong way"
    )]
    Sign(f64),
    /// No gains meet the limits.
    #[error(
        "no gains settle within {wanted:.1} periods and overshoot by at most {overshoot:.1} %, with a modulus \
         margin of {MODULUS_MARGIN} and a bound that an error of the whole target moves by no more than \
         itself{}", best.map_or(String::new(), |best| format!(
            "; but for the periods, the fastest settle in {best}"
        ))
    )]
    OutOfReach {
        /// Wanted settling time, in periods.
        wanted: f64,
        /// Maximum overshoot, in percent.
        overshoot: f64,
        /// Shortest settling time of any gains, in periods.
        best: Option<usize>,
    },
    /// The roots of the model's polynomials could not be found.
    #[error(transparent)]
    Roots(#[from] RootError),
}

/// Tuned gains with the properties of their loop.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// Gains on the absolute error and bound.
    pub gains: PiGains,
    /// Poles of their loop, the slowest first.
    pub poles: Vec<Complex<f64>>,
    /// Its margins.
    pub margins: Margins,
    /// Its step response.
    pub step: Step,
}

/// Gains with the shortest settling time within the limits, [`MODULUS_MARGIN`] and [`REACTION`]; ties go to the larger
/// margin.
///
/// Each pair of gains is a point on two root loci. The plane of stable pairs is searched on a grid that is refined
/// around the best point, since placing one pair of poles does not determine the others, and is not possible for
/// every plant.
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

/// The loop of these gains, if it is better than the best so far.
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
    // Nearly all candidates end here, after few periods.
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

/// Geometric sequence from one end of the range to the other.
fn spread([low, high]: [f64; 2]) -> impl Iterator<Item = f64> {
    let factor = (high / low).powf(1.0 / (TRIED - 1) as f64);
    (0..TRIED).map(move |at| low * factor.powi(at as i32))
}

/// Range of two steps of the last sequence to either side.
fn around(value: f64, [low, high]: [f64; 2]) -> [f64; 2] {
    let factor = (high / low).powf(2.0 / (TRIED - 1) as f64);
    [value / factor, value * factor]
}
