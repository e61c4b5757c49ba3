//! Identification of ARX models from a trace, by least squares.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::{
    arx::Arx,
    regression::{Row, dot, least_squares, mean, variance},
    residuals::{Residuals, Run},
    trace::{Scale, Segment, scaled},
};

/// Orders of the models, as in both papers.
pub const ORDERS: std::ops::RangeInclusive<usize> = 1..=4;
/// Minimum periods for the highest order and a validation half.
pub const MIN_ROWS: usize = 80;
/// Minimum standard deviation of the load, relative to its mean.
pub const MIN_VARIATION: f64 = 0.02;
/// Ratio to the lowest validation error up to which a lower order is preferred.
pub const WORTH: f64 = 1.02;
/// Maximum probability that the load's influence in a model is chance.
const CHANCE: f64 = 0.01;

/// Reason for which a trace gives no models.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// The trace is too short, or has too many gaps.
    #[error(
        "only {0} periods have four before them without a gap: at least {MIN_ROWS} are required, and an hour is better"
    )]
    Short(usize),
    /// The load was nearly constant.
    #[error(
        "too little excitation: the load varied by {:.2} % of its mean, but at least {:.0} % is required. \
         Let the clients vary what they ask for", 100.0 * .0, 100.0 * MIN_VARIATION
    )]
    Excitation(f64),
    /// The delay was constant.
    #[error("the delay is the same in every period: there is nothing to explain")]
    ConstantDelay,
}

/// Reason for which a model must not be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The regressors do not determine the weights.
    #[error("too little excitation: past delays and loads do not tell so many weights apart")]
    Excitation,
    /// The load's influence may be chance.
    #[error("too little excitation: that the load explains anything may be chance (p = {0:.2})")]
    Chance(f64),
    /// More load would reduce the delay.
    #[error(
        "wrong sign: in the long run a unit of load changes the delay by {0:.3e}, so that a controller would push the wrong way"
    )]
    Sign(f64),
    /// The delay would grow without bound.
    #[error("unstable: at a steady load the delay would grow by {0:.3} times a period")]
    Unstable(f64),
}

/// A model of one order on one scale.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Scale of the values.
    pub scale: Scale,
    /// Order: number of past periods.
    pub order: usize,
    /// The model, if the regressors determine its weights.
    pub model: Option<Arx>,
    /// Quality of its predictions, likewise.
    pub quality: Option<Quality>,
    /// Reason for which it must not be used.
    pub refusal: Option<Refusal>,
}

/// Quality of a model's one-step predictions.
#[derive(Clone, Debug, Serialize)]
pub struct Quality {
    /// Root of the mean square error, in the fitted unit (seconds, or their square root).
    pub rmse: f64,
    /// The same in seconds.
    pub rmse_seconds: f64,
    /// Chronos: 1 - variance of the error over variance of the delay, in the fitted unit.
    pub r2_chronos: f64,
    /// Chronos-C eq. 2, as it is printed: variance of the error over variance of the delay.
    pub r2_chronos_c: f64,
    /// Akaike's criterion: `N ln(mean square error) + 2 · weights`.
    pub aic: f64,
    /// The Bayesian one: `N ln(mean square error) + ln N · weights`.
    pub bic: f64,
    /// Root mean square error in seconds in the second half of the periods, of a model fitted on the first.
    pub validation_rmse_seconds: Option<f64>,
    /// Tests of the residuals.
    pub residuals: Residuals,
}

/// Result of the identification: all models of a trace.
#[derive(Clone, Debug)]
pub struct Identified {
    /// Number of fitted periods, the same for all models.
    pub rows: usize,
    /// Standard deviation of the load, relative to its mean.
    pub load_variation: f64,
    /// Models by scale, then order.
    pub candidates: Vec<Candidate>,
    /// Index of the recommended model; `None` if all are refused.
    pub chosen: Option<usize>,
}

/// Fits all orders on both scales. Loads and delays must be finite and not negative.
pub fn identify(segments: &[Segment]) -> Result<Identified, TraceError> {
    let skipped = *ORDERS.end();
    let rows: usize = segments
        .iter()
        .map(|one| one.len().saturating_sub(skipped))
        .sum();
    if rows < MIN_ROWS {
        return Err(TraceError::Short(rows));
    }
    let all =
        |of: fn(&Segment) -> &Vec<f64>| segments.iter().flat_map(of).copied().collect::<Vec<_>>();
    let (loads, delays) = (all(|one| &one.load), all(|one| &one.delay));
    let load_variation = variance(&loads).sqrt() / mean(&loads).max(f64::MIN_POSITIVE);
    if load_variation < MIN_VARIATION {
        return Err(TraceError::Excitation(load_variation));
    }
    if variance(&delays) == 0.0 {
        return Err(TraceError::ConstantDelay);
    }
    let mut candidates = Vec::new();
    for scale in [Scale::Raw, Scale::SquareRoot] {
        let segments = scaled(segments, scale);
        candidates.extend(ORDERS.map(|order| candidate(&segments, scale, order)));
    }
    Ok(Identified {
        rows,
        load_variation,
        chosen: choose(&candidates),
        candidates,
    })
}

/// Rows of all segments, for the same periods at every order, so that orders can be compared.
fn rows(segments: &[Segment], order: usize, with_load: bool) -> Vec<Row> {
    let first = *ORDERS.end();
    let of = |segment: &Segment, k: usize| {
        let past = |values: &[f64]| {
            values[k - order..k]
                .iter()
                .rev()
                .copied()
                .collect::<Vec<_>>()
        };
        let mut regressors = past(&segment.delay);
        if with_load {
            regressors.extend(past(&segment.load));
        }
        Row {
            output: segment.delay[k],
            regressors,
        }
    };
    let periods = segments
        .iter()
        .flat_map(|segment| (first..segment.len()).map(move |k| (segment, k)));
    periods.map(|(segment, k)| of(segment, k)).collect()
}

fn errors(rows: &[Row], weights: &[f64]) -> Vec<f64> {
    rows.iter()
        .map(|row| row.output - dot(&row.regressors, weights))
        .collect()
}

fn candidate(segments: &[Segment], scale: Scale, order: usize) -> Candidate {
    let mut made = Candidate {
        scale,
        order,
        model: None,
        quality: None,
        refusal: Some(Refusal::Excitation),
    };
    let rows = rows(segments, order, true);
    let Some(weights) = least_squares(&rows) else {
        return made;
    };
    let (a, b) = weights.split_at(order);
    let Ok(model) = Arx::new(a, b) else {
        return made;
    };
    made.refusal = refusal(segments, &model);
    made.quality = Some(quality(segments, &rows, &weights, scale, order));
    made.model = Some(model);
    made
}

fn refusal(segments: &[Segment], model: &Arx) -> Option<Refusal> {
    if let Some((p, gain)) = influence(segments, model.order()) {
        if p > CHANCE {
            return Some(Refusal::Chance(p));
        }
        if let Some(gain) = gain.filter(|gain| *gain <= 0.0) {
            return Some(Refusal::Sign(gain));
        }
    }
    let slowest = model
        .poles()
        .map(|poles| poles.first().map_or(0.0, |pole| pole.norm()));
    let growth = slowest.unwrap_or(f64::INFINITY);
    if growth >= 1.0 {
        return Some(Refusal::Unstable(growth));
    }
    let gain = model.static_gain();
    (gain <= 0.0).then_some(Refusal::Sign(gain))
}

/// Probability that noise alone explains as much as the load (an F test of all its weights), and the static gain, if
/// there is one. Unlike the papers' model, this one has a constant; otherwise the mean of a load without influence
/// would take its place.
fn influence(segments: &[Segment], order: usize) -> Option<(f64, Option<f64>)> {
    let with_constant = |with_load: bool| {
        let mut rows = rows(segments, order, with_load);
        for row in &mut rows {
            row.regressors.push(1.0);
        }
        let weights = least_squares(&rows)?;
        let squares: f64 = errors(&rows, &weights)
            .iter()
            .map(|error| error * error)
            .sum();
        Some((rows.len(), weights, squares))
    };
    let (_, _, without) = with_constant(false)?;
    let (count, weights, with) = with_constant(true)?;
    let (a, b) = weights[..2 * order].split_at(order);
    let held = 1.0 - a.iter().sum::<f64>();
    let gain = (held > 0.0).then(|| b.iter().sum::<f64>() / held);
    let freedom = (order as f64, (count - weights.len()) as f64);
    let statistic = ((without - with) / freedom.0) / (with / freedom.1).max(f64::MIN_POSITIVE);
    let p = FisherSnedecor::new(freedom.0, freedom.1).map_or(0.0, |f| f.sf(statistic.max(0.0)));
    Some((p, gain))
}

fn quality(
    segments: &[Segment],
    rows: &[Row],
    weights: &[f64],
    scale: Scale,
    order: usize,
) -> Quality {
    let errors = errors(rows, weights);
    let outputs: Vec<f64> = rows.iter().map(|row| row.output).collect();
    let count = rows.len() as f64;
    let mean_square = errors.iter().map(|error| error * error).sum::<f64>() / count;
    let left = variance(&errors) / variance(&outputs);
    // A model without errors has the best possible figure.
    let logarithm = count * mean_square.max(f64::MIN_POSITIVE).ln();
    let weights_count = weights.len() as f64;
    let (first, second) = rows.split_at(rows.len() / 2);
    Quality {
        rmse: mean_square.sqrt(),
        rmse_seconds: rmse_seconds(rows, weights, scale),
        r2_chronos: 1.0 - left,
        r2_chronos_c: left,
        aic: logarithm + 2.0 * weights_count,
        bic: logarithm + count.ln() * weights_count,
        validation_rmse_seconds: least_squares(first)
            .map(|weights| rmse_seconds(second, &weights, scale)),
        residuals: Residuals::of(&runs(segments, &errors), order),
    }
}

/// Errors and loads of the fitted periods, by segment.
fn runs(segments: &[Segment], errors: &[f64]) -> Vec<Run> {
    let first = *ORDERS.end();
    let mut errors = errors.iter().copied();
    let fitted = segments.iter().filter(|segment| segment.len() > first);
    fitted
        .map(|segment| Run {
            residuals: errors.by_ref().take(segment.len() - first).collect(),
            loads: segment.load[first..].to_vec(),
        })
        .collect()
}

fn rmse_seconds(rows: &[Row], weights: &[f64], scale: Scale) -> f64 {
    let squares: f64 = rows
        .iter()
        .map(|row| {
            let predicted = scale.seconds(dot(&row.regressors, weights));
            (scale.seconds(row.output) - predicted).powi(2)
        })
        .sum();
    (squares / rows.len() as f64).sqrt()
}

/// The lowest order with nearly the lowest validation error, on the scale with the best model.
fn choose(candidates: &[Candidate]) -> Option<usize> {
    let error = |candidate: &Candidate| {
        let usable = candidate.refusal.is_none();
        let error = candidate.quality.as_ref()?.validation_rmse_seconds?;
        usable.then_some(error)
    };
    let best = candidates
        .iter()
        .filter_map(|candidate| Some((error(candidate)?, candidate.scale)))
        .min_by(|x, y| x.0.total_cmp(&y.0))?;
    candidates.iter().position(|candidate| {
        candidate.scale == best.1 && error(candidate).is_some_and(|error| error <= WORTH * best.0)
    })
}
