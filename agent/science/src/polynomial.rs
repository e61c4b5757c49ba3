//! Real polynomials.

use nalgebra::{Complex, DMatrix, Schur};

/// Maximum steps: more than any polynomial of a sensible order takes.
const MAX_STEPS: usize = 10_000;

/// Error: the roots of a polynomial could not be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the roots could not be found: coefficients are not finite, or too unlike in size")]
pub struct RootError;

/// A polynomial by its coefficients, that of the highest power first.
#[derive(Clone, Debug, PartialEq)]
pub struct Polynomial(Vec<f64>);

impl Polynomial {
    /// From coefficients, that of the highest power first; leading zeros are dropped.
    pub fn new(coefficients: &[f64]) -> Self {
        let first = coefficients.iter().position(|c| *c != 0.0);
        Self(first.map_or(vec![0.0], |first| coefficients[first..].to_vec()))
    }

    /// The coefficients, that of the highest power first; at least one.
    pub fn coefficients(&self) -> &[f64] {
        &self.0
    }

    /// The highest power.
    pub fn degree(&self) -> usize {
        self.0.len() - 1
    }

    /// The value at `z`.
    pub fn at(&self, z: Complex<f64>) -> Complex<f64> {
        let zero = Complex::new(0.0, 0.0);
        self.0.iter().fold(zero, |sum, c| sum * z + c)
    }

    /// The product.
    pub fn times(&self, other: &Self) -> Self {
        let mut product = vec![0.0; self.0.len() + other.0.len() - 1];
        for (i, a) in self.0.iter().enumerate() {
            for (j, b) in other.0.iter().enumerate() {
                product[i + j] += a * b;
            }
        }
        Self::new(&product)
    }

    /// The sum.
    pub fn plus(&self, other: &Self) -> Self {
        let (long, short) = match self.0.len() >= other.0.len() {
            true => (self, other),
            false => (other, self),
        };
        let mut sum = long.0.clone();
        let offset = long.0.len() - short.0.len();
        for (term, c) in sum[offset..].iter_mut().zip(&short.0) {
            *term += c;
        }
        Self::new(&sum)
    }

    /// All roots, the largest first; of a pair, the one above the real axis first.
    pub fn roots(&self) -> Result<Vec<Complex<f64>>, RootError> {
        let degree = self.degree();
        if degree == 0 {
            return Ok(Vec::new());
        }
        let monic: Vec<f64> = self.0[1..].iter().map(|c| -c / self.0[0]).collect();
        if monic.iter().any(|c| !c.is_finite()) {
            return Err(RootError);
        }
        // The roots are the eigenvalues of the companion matrix.
        let companion = DMatrix::from_fn(degree, degree, |row, column| match row {
            0 => monic[column],
            _ => f64::from(u8::from(row == column + 1)),
        });
        let schur = Schur::try_new(companion, f64::EPSILON, MAX_STEPS).ok_or(RootError)?;
        let mut roots: Vec<_> = schur.complex_eigenvalues().iter().copied().collect();
        roots.sort_by(|x, y| {
            // Rounding must not separate a pair.
            let (by_size, size) = (y.norm() - x.norm(), x.norm().max(y.norm()));
            match by_size.abs() > 1e-9 * size {
                true => by_size.total_cmp(&0.0),
                false => y.im.total_cmp(&x.im),
            }
        });
        Ok(roots)
    }
}
