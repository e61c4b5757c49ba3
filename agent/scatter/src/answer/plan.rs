//! Plan of a gathering: how the partitions' answers are combined.

use std::cmp::Ordering;

use super::{MAX_COLUMNS, Value};
use plimsoll_core::Seconds;

/// Column of a sort order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// Name of the column.
    pub column: String,
    /// Whether the largest value is first.
    pub descending: bool,
    /// Whether nulls are before all other values, in either direction.
    pub nulls_first: bool,
}

impl OrderKey {
    /// Order of two values of this column.
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

/// Function that reduces a column; nulls do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Number of rows or, with a column, of its values.
    Count,
    /// Sum; null without values.
    Sum,
    /// Minimum; null without values.
    Min,
    /// Maximum; null without values.
    Max,
}

/// Reduction of all rows to one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The function.
    pub function: Function,
    /// Its column; `None` only for [`Function::Count`].
    pub column: Option<String>,
}

/// Way of combining the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Rows in order of arrival.
    Concatenate,
    /// Rows merged by these columns; each partition's rows must be in this order. Rows that are equal in all of them
    /// are in the order of the partitions.
    Merge(Vec<OrderKey>),
    /// All rows reduced to one.
    Reduce(Vec<Reduction>),
}

/// Plan of a gathering.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Way of combining the answers.
    pub how: How,
    /// Maximum rows of the answer; not allowed with a reduction.
    pub limit: Option<u64>,
    /// Whether the answer may lack partitions that do not respond.
    pub partial: bool,
    /// Time at which partitions that have not ended become late, on the clock of
    /// [`Gathering::tick`](super::Gathering::tick).
    pub deadline: Seconds,
}

/// Reason for which a plan is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The number of columns of an order or a reduction is not 1 to [`MAX_COLUMNS`].
    Columns(usize),
    /// This reduction needs a column.
    NoColumn(Function),
    /// A reduction, which has one row, has a limit.
    LimitOfReduction,
    /// The deadline is not finite.
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

    /// Columns whose values [`super::Gathering::offer`] takes, in its order.
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
