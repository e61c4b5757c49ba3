//! ARX models of a node's delay as a function of its backlog.

use nalgebra::Complex;

use crate::polynomial::{Polynomial, RootError};

/// Maximum order of a model, in periods.
pub const MAX_ORDER: usize = 8;

/// Reason for which coefficients are no valid model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The number of coefficients is not 1 to [`MAX_ORDER`].
    #[error("{name} has {count} coefficients: must have 1 to {MAX_ORDER}")]
    Count {
        /// `a` or `b`.
        name: char,
        /// Number of coefficients.
        count: usize,
    },
    /// A coefficient is NaN or infinite.
    #[error("{name}{index} is {value}: must be a finite number")]
    NotFinite {
        /// `a` or `b`.
        name: char,
        /// Index of the coefficient, from 1.
        index: usize,
        /// Value of the coefficient.
        value: f64,
    },
    /// The delay does not depend on the backlog.
    #[error("every b is 0: the delay does not depend on the backlog")]
    NoInput,
}

/// An ARX model, Chronos eq. 3: `s(k) = Σ a_i s(k-i) + Σ b_i d(k-i)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Arx {
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Arx {
    /// Creates a model from `a_1, a_2, …` and `b_1, b_2, …`, which may differ in number.
    pub fn new(a: &[f64], b: &[f64]) -> Result<Self, ModelError> {
        for (name, given) in [('a', a), ('b', b)] {
            let count = given.len();
            if !(1..=MAX_ORDER).contains(&count) {
                return Err(ModelError::Count { name, count });
            }
            if let Some(at) = given.iter().position(|c| !c.is_finite()) {
                return Err(ModelError::NotFinite {
                    name,
                    index: at + 1,
                    value: given[at],
                });
            }
        }
        if b.iter().all(|b| *b == 0.0) {
            return Err(ModelError::NoInput);
        }
        Ok(Self {
            a: a.to_vec(),
            b: b.to_vec(),
        })
    }

    /// Weights of the last delays, the latest first.
    pub fn a(&self) -> &[f64] {
        &self.a
    }

    /// Weights of the last backlogs, the latest first.
    pub fn b(&self) -> &[f64] {
        &self.b
    }

    /// Order of the model: the number of past periods that it uses.
    pub fn order(&self) -> usize {
        self.a.len().max(self.b.len())
    }

    /// Static gain: steady-state delay per unit of backlog; infinite for an integrator.
    pub fn static_gain(&self) -> f64 {
        self.b.iter().sum::<f64>() / (1.0 - self.a.iter().sum::<f64>())
    }

    /// `B(z)` of `G(z) = B(z) / A(z)`.
    pub fn numerator(&self) -> Polynomial {
        let mut b = self.b.clone();
        b.resize(self.order(), 0.0);
        Polynomial::new(&b)
    }

    /// `A(z)` of `G(z) = B(z) / A(z)`.
    pub fn denominator(&self) -> Polynomial {
        let mut a: Vec<f64> = self.a.iter().map(|a| -a).collect();
        a.resize(self.order(), 0.0);
        a.insert(0, 1.0);
        Polynomial::new(&a)
    }

    /// Roots of `A(z)`, the slowest first.
    pub fn poles(&self) -> Result<Vec<Complex<f64>>, RootError> {
        self.denominator().roots()
    }

    /// The model scaled to a static gain of 1. This is the plant of Plimsoll's relative gains if the delay is
    /// proportional to the backlog.
    pub fn relative(&self) -> Self {
        let gain = self.static_gain();
        Self {
            a: self.a.clone(),
            b: self.b.iter().map(|b| b / gain).collect(),
        }
    }
}
