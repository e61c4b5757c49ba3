//! How a node's delay follows its backlog.

use nalgebra::Complex;

use crate::polynomial::{Polynomial, RootError};

/// The most periods that a model may look back.
pub const MAX_ORDER: usize = 8;

/// Why coefficients are no model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Too few or too many.
    #[error("{name} has {count} coefficients: 1 to {MAX_ORDER} are wanted")]
    Count {
        /// `a` or `b`.
        name: char,
        /// How many there are.
        count: usize,
    },
    /// NaN or infinite.
    #[error("{name}{index} is {value}: a finite number is wanted")]
    NotFinite {
        /// `a` or `b`.
        name: char,
        /// Counted from 1.
        index: usize,
        /// What it is.
        value: f64,
    },
    /// The delay does not follow the backlog at all.
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
    /// From `a_1, a_2, …` and `b_1, b_2, …`; they may differ in number.
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

    /// Periods it looks back.
    pub fn order(&self) -> usize {
        self.a.len().max(self.b.len())
    }

    /// Delay a unit of backlog in the long run; infinite where the model is an integrator.
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

    /// Multiplied so that a unit of backlog makes a unit of delay in the long run. This is the plant that
    /// Plimsoll's relative gains see where the delay goes through the origin.
    pub fn relative(&self) -> Self {
        let gain = self.static_gain();
        Self {
            a: self.a.clone(),
            b: self.b.iter().map(|b| b / gain).collect(),
        }
    }
}
