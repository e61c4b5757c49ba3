//! Least squares.

use nalgebra::{DMatrix, DVector};

/// Ratio to the largest singular value below which a singular value counts as 0.
const MIN_SINGULAR: f64 = 1e-7;

/// Output with its regressors.
pub(crate) struct Row {
    pub(crate) output: f64,
    pub(crate) regressors: Vec<f64>,
}

/// Weights with the least sum of squares; `None` if the regressors do not determine them.
pub(crate) fn least_squares(rows: &[Row]) -> Option<Vec<f64>> {
    let columns = rows.first()?.regressors.len();
    if rows.len() < columns {
        return None;
    }
    // Scale columns to one size, as backlogs would outweigh delays.
    let size = |column: usize| {
        let squares: f64 = rows.iter().map(|row| row.regressors[column].powi(2)).sum();
        squares.sqrt()
    };
    let sizes: Vec<f64> = (0..columns).map(size).collect();
    if sizes.iter().any(|size| !(*size > 0.0 && size.is_finite())) {
        return None;
    }
    let matrix = DMatrix::from_fn(rows.len(), columns, |row, column| {
        rows[row].regressors[column] / sizes[column]
    });
    let outputs = DVector::from_iterator(rows.len(), rows.iter().map(|row| row.output));
    // The triangular factor is small, and has the singular values of the whole.
    let factors = matrix.qr();
    let singular = factors.r().singular_values();
    if singular.min() <= MIN_SINGULAR * singular.max() {
        return None;
    }
    let projected = factors.q().tr_mul(&outputs);
    let weights = factors.r().solve_upper_triangular(&projected)?;
    let unscaled = weights
        .iter()
        .zip(&sizes)
        .map(|(weight, size)| weight / size);
    Some(unscaled.collect())
}

/// Scalar product, up to the shorter length.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Population variance.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / values.len() as f64
}
