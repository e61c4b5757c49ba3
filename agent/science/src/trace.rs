//! Measured traces of a node, period by period.

/// Consecutive periods without a gap: load and delay of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Backlog, or another measure of load, per period.
    pub load: Vec<f64>,
    /// Service delay per period, in seconds.
    pub delay: Vec<f64>,
}

impl Segment {
    /// Adds a period.
    pub fn push(&mut self, load: f64, delay: f64) {
        self.load.push(load);
        self.delay.push(delay);
    }

    /// Number of periods.
    pub fn len(&self) -> usize {
        self.delay.len()
    }

    /// Whether there are no periods.
    pub fn is_empty(&self) -> bool {
        self.delay.is_empty()
    }
}

/// Scale on which a model is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Delay and load unchanged.
    Raw,
    /// Square roots of both, as in Chronos section 3.2, for widely varying loads.
    SquareRoot,
}

impl Scale {
    pub(crate) fn of(self, value: f64) -> f64 {
        match self {
            Self::Raw => value,
            Self::SquareRoot => value.sqrt(),
        }
    }

    /// Converts a fitted value to seconds.
    pub(crate) fn seconds(self, value: f64) -> f64 {
        match self {
            Self::Raw => value,
            Self::SquareRoot => value.max(0.0).powi(2),
        }
    }
}

/// Converts segments, whose values must be at least 0, to a scale.
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
