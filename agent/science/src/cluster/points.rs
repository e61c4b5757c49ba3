//! Points for clustering.

/// Maximum absolute coordinate: products of larger squares would overflow.
pub const LARGEST: f64 = 1e60;

/// Reason for which a row is no valid point. Rows and columns count from 0.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PointError {
    /// The row has more or fewer numbers than columns.
    #[error("row {row} has {found} numbers: must have {wanted}")]
    Width {
        /// The row.
        row: usize,
        /// Numbers in the row.
        found: usize,
        /// Columns.
        wanted: usize,
    },
    /// A missing value, NaN, an infinite one, or one beyond [`LARGEST`].
    #[error(
        "row {row}, column {column}: {value} must be a number from -{LARGEST:e} to {LARGEST:e}"
    )]
    Value {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The value.
        value: f64,
    },
}

/// Points of one width, each of finite coordinates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    width: usize,
    values: Vec<f64>,
}

impl Points {
    /// Creates an empty set of points with this many columns.
    pub fn new(width: usize) -> Self {
        let values = Vec::new();
        Self { width, values }
    }

    /// Adds a point; an invalid one is an error and is not added.
    pub fn push(&mut self, row: &[f64]) -> Result<(), PointError> {
        self.check(row)?;
        self.values.extend_from_slice(row);
        Ok(())
    }

    /// Replaces the point at an index; without effect if there is none.
    pub fn replace(&mut self, at: usize, row: &[f64]) -> Result<(), PointError> {
        self.check(row)?;
        let place = self.values.chunks_exact_mut(self.width.max(1)).nth(at);
        if let Some(place) = place {
            place.copy_from_slice(row);
        }
        Ok(())
    }

    fn check(&self, row: &[f64]) -> Result<(), PointError> {
        let at = self.len();
        if row.len() != self.width {
            return Err(PointError::Width {
                row: at,
                found: row.len(),
                wanted: self.width,
            });
        }
        let bad = |value: &f64| value.is_nan() || value.abs() > LARGEST;
        match row.iter().position(bad) {
            Some(column) => Err(PointError::Value {
                row: at,
                column,
                value: row[column],
            }),
            None => Ok(()),
        }
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Points in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// The point at an index.
    pub(crate) fn row(&self, at: usize) -> &[f64] {
        &self.values[at * self.width..][..self.width]
    }

    /// All coordinates, row by row.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// The points at these indexes.
    pub(crate) fn only(&self, places: impl Iterator<Item = usize>) -> Self {
        let mut made = Self::new(self.width);
        for at in places {
            made.values.extend_from_slice(self.row(at));
        }
        made
    }

    /// Number of distinct points, counted up to `most`.
    pub(crate) fn distinct(&self, most: usize) -> usize {
        let mut seen: Vec<&[f64]> = Vec::new();
        for row in self.rows() {
            if seen.len() >= most {
                break;
            }
            if !seen.contains(&row) {
                seen.push(row);
            }
        }
        seen.len()
    }
}
