//! Points to be clustered.

/// Larger coordinates are refused: products of their squares would overflow.
pub const LARGEST: f64 = 1e60;

/// Why a row is no point. Rows and columns count from 0.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PointError {
    /// More or fewer numbers than columns.
    #[error("row {row} has {found} numbers: must have {wanted}")]
    Width {
        /// The row.
        row: usize,
        /// Its numbers.
        found: usize,
        /// Numbers of every row.
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
        /// What is there.
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
    /// No points yet, of so many columns.
    pub fn new(width: usize) -> Self {
        let values = Vec::new();
        Self { width, values }
    }

    /// Adds a point, or says what is wrong with it and leaves it out.
    pub fn push(&mut self, row: &[f64]) -> Result<(), PointError> {
        self.check(row)?;
        self.values.extend_from_slice(row);
        Ok(())
    }

    /// Puts a point in the place of another one; of none where there is no such place.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// One after the other.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// The one at this place.
    pub(crate) fn row(&self, at: usize) -> &[f64] {
        &self.values[at * self.width..][..self.width]
    }

    /// All coordinates, row by row.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Those at these places.
    pub(crate) fn only(&self, places: impl Iterator<Item = usize>) -> Self {
        let mut made = Self::new(self.width);
        for at in places {
            made.values.extend_from_slice(self.row(at));
        }
        made
    }

    /// How many distinct points there are, as far as `most`.
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
