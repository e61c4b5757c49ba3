//! What is to be made of the partitions' answers.

use std::cmp::Ordering;

use super::{MAX_COLUMNS, Value};
use crate::Seconds;

/// One column of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// Its name.
    pub column: String,
    /// The largest first.
    pub descending: bool,
    /// Nulls before all others, whatever the direction.
    pub nulls_first: bool,
}

impl OrderKey {
    /// How two values of this column follow each other.
    pub fn compare(&self, one: &Value, other: &Value) -> Ordering {
        let nulls = match self.nulls_first {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        match (one == &Value::Null, other == &Value::Null) {
            (true, true) => Ordering::Equal,
            (true, false) => nulls,
            (false, true) => nulls.reverse(),
            (false, false) if self.descending => other.compare(one),
            (false, false) => one.compare(other),
        }
    }
}

/// What a column is reduced by; nulls do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// How many rows; of a column, how many values.
    Count,
    /// Null where there is no value.
    Sum,
    /// Null where there is no value.
    Min,
    /// Null where there is no value.
    Max,
}

/// One figure of all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// What is done.
    pub function: Function,
    /// With which column; only [`Function::Count`] does without.
    pub column: Option<String>,
}

/// How one answer is made of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Rows as they come.
    Concatenate,
    /// By these columns, the first one first; each partition's rows must come in this order. What is equal in all of
    /// them comes in the order of the partitions.
    Merge(Vec<OrderKey>),
    /// To one row.
    Reduce(Vec<Reduction>),
}

/// What is to be made of the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How one answer is made of many.
    pub how: How,
    /// No more rows than this; not with a reduction.
    pub limit: Option<u64>,
    /// The rest will do where partitions do not answer.
    pub partial: bool,
    /// When partitions that have not ended are late; on the clock of `now`.
    pub deadline: Seconds,
}

/// Why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// An order or a reduction has none or too many columns; so many.
    Columns(usize),
    /// This reduction needs a column.
    NoColumn(Function),
    /// A reduction has one row.
    LimitOfReduction,
    /// The deadline is no time.
    Deadline,
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanError::Columns(count) => write!(
                f,
                "an order or a reduction must have 1 to {MAX_COLUMNS} columns, has {count}"
            ),
            PlanError::NoColumn(function) => {
                let name = format!("{function:?}").to_lowercase();
                write!(f, "{name} needs a column")
            }
            PlanError::LimitOfReduction => write!(f, "a reduction has one row and no limit"),
            PlanError::Deadline => write!(f, "the deadline must be a finite time"),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let count = match &self.how {
            How::Concatenate => 1,
            How::Merge(keys) => keys.len(),
            How::Reduce(reductions) => {
                if self.limit.is_some() {
                    return Err(PlanError::LimitOfReduction);
                }
                let mut without = reductions.iter().filter(|it| it.column.is_none());
                if let Some(wrong) = without.find(|it| it.function != Function::Count) {
                    return Err(PlanError::NoColumn(wrong.function));
                }
                reductions.len()
            }
        };
        if !(1..=MAX_COLUMNS).contains(&count) {
            return Err(PlanError::Columns(count));
        }
        match self.deadline.get().is_finite() {
            true => Ok(()),
            false => Err(PlanError::Deadline),
        }
    }

    /// The columns whose values are looked at, as [`super::Gathering::offer`] takes them.
    pub(super) fn columns(&self) -> Vec<&str> {
        match &self.how {
            How::Concatenate => Vec::new(),
            How::Merge(keys) => keys.iter().map(|key| key.column.as_str()).collect(),
            How::Reduce(reductions) => {
                let columns = reductions.iter().filter_map(|it| it.column.as_deref());
                columns.collect()
            }
        }
    }
}
