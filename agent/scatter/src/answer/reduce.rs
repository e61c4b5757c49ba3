//! Reduction of rows, kept per partition so that only complete answers count and sums do not depend on arrival order.

use std::cmp::Ordering;

use super::{Function, Kind, Reduction, Value};

/// Reduction of one column so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    function: Function,
    count: u64,
    whole: i128,
    fraction: Option<f64>,
    best: Value,
}

/// Reason for which a value cannot be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The value of a sum is not a number.
    NoNumber(Kind),
    /// The result does not fit 64 bits, or is not finite.
    Overflow,
}

impl Reduced {
    pub fn new(reduction: &Reduction) -> Self {
        Reduced {
            function: reduction.function,
            count: 0,
            whole: 0,
            fraction: None,
            best: Value::Null,
        }
    }

    /// Adds a row; `None` for a reduction without a column.
    pub fn take(&mut self, value: Option<Value>) -> Result<(), Unfit> {
        if value == Some(Value::Null) {
            return Ok(());
        }
        self.count += 1;
        let Some(value) = value else { return Ok(()) };
        match (self.function, value) {
            (Function::Count, _) => {}
            (Function::Sum, Value::Int(int)) => self.add(i128::from(int), None)?,
            (Function::Sum, Value::Float(float)) => self.add(0, Some(float))?,
            (Function::Sum, other) => {
                return other
                    .kind()
                    .map_or(Ok(()), |kind| Err(Unfit::NoNumber(kind)));
            }
            (Function::Min | Function::Max, value) => self.compare(value),
        }
        Ok(())
    }

    /// Adds another partition's reduction.
    pub fn join(&mut self, other: Reduced) -> Result<(), Unfit> {
        self.count += other.count;
        self.add(other.whole, other.fraction)?;
        if other.best != Value::Null {
            self.compare(other.best);
        }
        Ok(())
    }

    fn add(&mut self, whole: i128, fraction: Option<f64>) -> Result<(), Unfit> {
        self.whole = self.whole.checked_add(whole).ok_or(Unfit::Overflow)?;
        if let Some(more) = fraction {
            let sum = self.fraction.unwrap_or(0.0) + more;
            if !sum.is_finite() {
                return Err(Unfit::Overflow);
            }
            self.fraction = Some(sum);
        }
        Ok(())
    }

    fn compare(&mut self, value: Value) {
        let wanted = match self.function {
            Function::Min => Ordering::Less,
            _ => Ordering::Greater,
        };
        if self.best == Value::Null || value.compare(&self.best) == wanted {
            self.best = value;
        }
    }

    /// Result of the reduction.
    pub fn value(self) -> Result<Value, Unfit> {
        match self.function {
            Function::Count => i64::try_from(self.count)
                .map(Value::Int)
                .map_err(|_| Unfit::Overflow),
            Function::Sum if self.count == 0 => Ok(Value::Null),
            Function::Sum => match self.fraction {
                None => i64::try_from(self.whole)
                    .map(Value::Int)
                    .map_err(|_| Unfit::Overflow),
                Some(fraction) => match fraction + self.whole as f64 {
                    sum if sum.is_finite() => Ok(Value::Float(sum)),
                    _ => Err(Unfit::Overflow),
                },
            },
            Function::Min | Function::Max => Ok(self.best),
        }
    }
}
