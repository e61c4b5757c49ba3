//! What was measured of a node, a period after the other.

/// Periods in a row, without a gap: the load put on the node, and the delay that it had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Backlog, or another measure of load, by period.
    pub load: Vec<f64>,
    /// Service delay, seconds.
    pub delay: Vec<f64>,
}

impl Segment {
    /// Adds a period.
    pub fn push(&mut self, load: f64, delay: f64) {
        self.load.push(load);
        self.delay.push(delay);
    }

    /// How many periods.
    pub fn len(&self) -> usize {
        self.delay.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.delay.is_empty()
    }
}

/// On which values a model is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Delay and load as they are.
    Raw,
    /// Their square roots, as in Chronos section 3.2, where the load varies widely.
    SquareRoot,
}

impl Scale {
    pub(crate) fn of(self, value: f64) -> f64 {
        match self {
            Self::Raw => value,
            Self::SquareRoot => value.sqrt(),
        }
    }

    /// Seconds that a fitted value stands for.
    pub(crate) fn seconds(self, value: f64) -> f64 {
        match self {
            Self::Raw => value,
            Self::SquareRoot => value.max(0.0).powi(2),
        }
    }
}

/// The segments on a scale; all at least 0, so that a root can be taken.
pub(crate) fn scaled(segments: &[Segment], scale: Scale) -> Vec<Segment> {
    let of = |values: &[f64]| values.iter().map(|value| scale.of(*value)).collect();
    segments
        .iter()
        .map(|segment| Segment {
            load: of(&segment.load),
            delay: of(&segment.delay),
        })
        .collect()
}
