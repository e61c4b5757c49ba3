//! Tests of a model's residuals.

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::regression::mean;

/// Number of lags.
const LAGS: usize = 20;
/// Two-sided 95 % quantile of the normal distribution, in standard deviations.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// Consecutive residuals and the loads of the same periods.
pub(crate) struct Run {
    pub(crate) residuals: Vec<f64>,
    pub(crate) loads: Vec<f64>,
}

/// Tests of the residuals of one-step predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residuals {
    /// Mean in the fitted unit; if far from 0, the model lacks a constant.
    pub mean: f64,
    /// Number of lags.
    pub lags: usize,
    /// Bound within which 95 % of the autocorrelations of white noise lie.
    pub bound: f64,
    /// Autocorrelations by lag, from 1.
    pub autocorrelations: Vec<f64>,
    /// Ljung-Box statistic.
    pub ljung_box: f64,
    /// Its p-value under white noise.
    pub ljung_box_p: f64,
    /// Correlations with the load 1, 2, … periods before; outside the bound, the load explains more than the model
    /// uses.
    pub with_earlier_load: Vec<f64>,
    /// Correlations with the load 1, 2, … periods later; outside the bound, the load followed the delay, as with an
    /// active controller.
    pub with_later_load: Vec<f64>,
}

impl Residuals {
    /// Tests the residuals of a model with `order` weights of past delays.
    pub(crate) fn of(runs: &[Run], order: usize) -> Self {
        let all = |of: fn(&Run) -> &Vec<f64>| runs.iter().flat_map(of).copied().collect::<Vec<_>>();
        let (residuals, loads) = (all(|run| &run.residuals), all(|run| &run.loads));
        let count = residuals.len();
        let lags = LAGS.min(count / 4);
        let (mean, mean_load) = (mean(&residuals), mean(&loads));
        let centred: Vec<Run> = runs
            .iter()
            .map(|run| Run {
                residuals: run.residuals.iter().map(|value| value - mean).collect(),
                loads: run.loads.iter().map(|value| value - mean_load).collect(),
            })
            .collect();
        let spread = |values: &[f64], mean: f64| {
            values
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>()
                .sqrt()
        };
        let (size, size_load) = (spread(&residuals, mean), spread(&loads, mean_load));
        let over = |products: f64, sizes: f64| if sizes > 0.0 { products / sizes } else { 0.0 };
        // Pairs do not span a gap.
        let lagged = |lag: usize, of: fn(&Run) -> (&[f64], &[f64])| -> f64 {
            let pairs = centred.iter().map(of);
            pairs
                .map(|(early, late)| {
                    let late = late.get(lag..).unwrap_or_default();
                    early.iter().zip(late).map(|(x, y)| x * y).sum::<f64>()
                })
                .sum()
        };
        let by_lag = |of: fn(&Run) -> (&[f64], &[f64]), sizes: f64| -> Vec<f64> {
            (1..=lags).map(|lag| over(lagged(lag, of), sizes)).collect()
        };
        let autocorrelations = by_lag(|run| (&run.residuals, &run.residuals), size * size);
        let (ljung_box, ljung_box_p) = ljung_box(&autocorrelations, count, order);
        Self {
            mean,
            lags,
            bound: NORMAL_95 / (count as f64).sqrt(),
            ljung_box,
            ljung_box_p,
            with_earlier_load: by_lag(|run| (&run.loads, &run.residuals), size * size_load),
            with_later_load: by_lag(|run| (&run.residuals, &run.loads), size * size_load),
            autocorrelations,
        }
    }

    /// Whether the Ljung-Box test does not reject white noise at 5 %.
    pub fn are_white(&self) -> bool {
        self.ljung_box_p >= 0.05
    }

    /// Whether the load of the next few periods depends on the delay's residual. The threshold is 3.3 standard
    /// deviations, a probability of 0.1 % each, since slowly changing loads put several lags outside the bound at once.
    pub fn load_follows_delay(&self) -> bool {
        let mut soon = self.with_later_load.iter().take(3);
        soon.any(|value| value.abs() > 3.3 / NORMAL_95 * self.bound)
    }

    /// Number of correlations outside the bound; about one of 20 for white noise.
    pub fn outside(&self, correlations: &[f64]) -> usize {
        correlations
            .iter()
            .filter(|value| value.abs() > self.bound)
            .count()
    }
}

/// Ljung-Box statistic and its p-value.
fn ljung_box(autocorrelations: &[f64], count: usize, order: usize) -> (f64, f64) {
    let count = count as f64;
    let terms = autocorrelations.iter().enumerate();
    let sum: f64 = terms.map(|(at, r)| r * r / (count - (at + 1) as f64)).sum();
    let statistic = count * (count + 2.0) * sum;
    let freedom = autocorrelations.len().saturating_sub(order).max(1) as f64;
    let p = ChiSquared::new(freedom).map_or(f64::NAN, |distribution| distribution.sf(statistic));
    (statistic, p)
}
