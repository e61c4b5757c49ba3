//! Least squares.

use nalgebra::{DMatrix, DVector};

/// Below this part of the largest singular value a direction of the regressors is taken for none.
const MIN_SINGULAR: f64 = 1e-7;

/// A row: what is to be explained, and by what.
pub(crate) struct Row {
    pub(crate) output: f64,
    pub(crate) regressors: Vec<f64>,
}

/// The weights that leave the least sum of squares; none where the regressors do not tell them apart.
pub(crate) fn least_squares(rows: &[Row]) -> Option<Vec<f64>> {
    let columns = rows.first()?.regressors.len();
    if rows.len() < columns {
        return None;
    }
    // Columns of one size, or backlogs would drown delays.
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
    // The triangular factor has the singular values of the whole, and is small.
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

/// The sum of the products, as far as both go.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Around the mean, over all values.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / values.len() as f64
}
