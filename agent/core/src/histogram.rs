//! Delay distribution of one sampling period.

use std::sync::Arc;

use crate::Seconds;

/// Histogram of the delays of requests that finished in one period.
///
/// Bucket `i` holds delays in `(upper_bounds[i-1], upper_bounds[i]]` (the first from 0); one more
/// bucket after the last bound holds everything above it.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayHistogram {
    upper_bounds: Arc<[f64]>,
    counts: Vec<u64>,
    sum_seconds: f64,
}

/// Reason for which bucket bounds or counts are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistogramError {
    /// A bound is not finite, not positive, or not above the one before it.
    Bounds,
    /// The number of counts is not the number of bounds plus one.
    Shape,
    /// The sum is negative or not finite.
    Sum,
}

impl std::fmt::Display for HistogramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HistogramError::Bounds => "bucket bounds must be finite, positive and increasing",
            HistogramError::Shape => "there must be one count more than bounds",
            HistogramError::Sum => "the sum of delays must be finite and not negative",
        })
    }
}

impl std::error::Error for HistogramError {}

impl DelayHistogram {
    /// Creates an empty histogram over these finite upper bounds, in seconds.
    pub fn empty(upper_bounds: Arc<[f64]>) -> Result<Self, HistogramError> {
        let counts = vec![0; upper_bounds.len() + 1];
        Self::from_counts(upper_bounds, counts, 0.0)
    }

    /// Creates a histogram from per-bucket (not cumulative) counts; the last count is of delays above every bound.
    pub fn from_counts(
        upper_bounds: Arc<[f64]>,
        counts: Vec<u64>,
        sum_seconds: f64,
    ) -> Result<Self, HistogramError> {
        let increasing = upper_bounds.windows(2).all(|w| w[0] < w[1]);
        if !increasing || !upper_bounds.iter().all(|b| b.is_finite() && *b > 0.0) {
            return Err(HistogramError::Bounds);
        }
        if counts.len() != upper_bounds.len() + 1 {
            return Err(HistogramError::Shape);
        }
        if !sum_seconds.is_finite() || sum_seconds < 0.0 {
            return Err(HistogramError::Sum);
        }
        Ok(DelayHistogram {
            upper_bounds,
            counts,
            sum_seconds,
        })
    }

    /// Bounds from 100 µs to 1,000 s, each 10 % above the previous one, for sources that measure single requests.
    pub fn fine_bounds() -> Arc<[f64]> {
        let mut bounds = Vec::with_capacity(170);
        let mut bound = 1e-4;
        while bound < 1e3 {
            bounds.push(bound);
            bound *= 1.1;
        }
        bounds.into()
    }

    /// Adds one delay. Returns false, and adds nothing, if it is negative or not finite.
    pub fn record(&mut self, delay: Seconds) -> bool {
        let seconds = delay.get();
        if !seconds.is_finite() || seconds < 0.0 {
            return false;
        }
        let bucket = self.upper_bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket] += 1;
        self.sum_seconds += seconds;
        true
    }

    /// Adds the counts of a histogram over the same bounds; false and unchanged if they differ.
    pub fn merge(&mut self, other: &DelayHistogram) -> bool {
        if self.upper_bounds != other.upper_bounds {
            return false;
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.sum_seconds += other.sum_seconds;
        true
    }

    /// The finite upper bounds, in seconds.
    pub fn upper_bounds(&self) -> &Arc<[f64]> {
        &self.upper_bounds
    }

    /// Per-bucket counts, one more than there are bounds.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Number of delays.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0u64, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all delays.
    pub fn sum(&self) -> Seconds {
        Seconds(self.sum_seconds)
    }

    /// Number of delays up to this one, interpolated linearly within its bucket. Delays above the last bound never
    /// count.
    pub fn within(&self, delay: Seconds) -> f64 {
        let delay = delay.get();
        let (mut within, mut lower) = (0.0, 0.0);
        for (&upper, &count) in self.upper_bounds.iter().zip(&self.counts) {
            if delay <= lower {
                break;
            }
            within += count as f64 * ((delay - lower) / (upper - lower)).min(1.0);
            lower = upper;
        }
        within
    }

    /// Only the buckets wholly above this delay, with each delay taken as its bucket's lower bound: the delays that
    /// are certainly longer, and their minimum sum.
    pub fn above(&self, delay: Seconds) -> DelayHistogram {
        let begins = std::iter::once(0.0).chain(self.upper_bounds.iter().copied());
        let mut above = self.clone();
        above.sum_seconds = 0.0;
        for (begin, count) in begins.zip(&mut above.counts) {
            if begin < delay.get() {
                *count = 0;
            }
            above.sum_seconds += begin * *count as f64;
        }
        above
    }

    /// Mean delay; `None` if the histogram is empty.
    pub fn mean(&self) -> Option<Seconds> {
        match self.count() {
            0 => None,
            count => Some(Seconds(self.sum_seconds / count as f64)),
        }
    }

    /// Delay within which the fraction `quantile` (0..=1) of requests finished, interpolated linearly within its
    /// bucket. Above the last bound it is the minimum mean of the delays there, as derived from the sum;
    /// Prometheus' `histogram_quantile` returns the last bound instead.
    pub fn quantile(&self, quantile: f64) -> Option<Seconds> {
        self.quantile_with(quantile, 0, Seconds(0.0))
    }

    /// The [`quantile`](Self::quantile) with `extra` additional requests of `extra_delay` each.
    pub fn quantile_with(
        &self,
        quantile: f64,
        extra: u64,
        extra_delay: Seconds,
    ) -> Option<Seconds> {
        let total = self.count() + extra;
        if total == 0 {
            return None;
        }
        let rank = quantile.clamp(0.0, 1.0) * total as f64;
        let extra_delay = extra_delay.get();
        let mut extra_left = extra as f64;
        let mut below = 0.0;
        let mut lower = 0.0;
        for (i, &count) in self.counts.iter().enumerate() {
            let upper = self.upper_bounds.get(i).copied();
            let mut here = count as f64;
            if extra_left > 0.0 && upper.is_none_or(|upper| extra_delay <= upper) {
                if below + here + extra_left >= rank && below + here < rank {
                    return Some(Seconds(extra_delay.max(lower)));
                }
                here += extra_left;
                extra_left = 0.0;
            }
            if here > 0.0 && below + here >= rank {
                let Some(upper) = upper else {
                    return Some(self.overflow_mean());
                };
                let inside = ((rank - below) / here).clamp(0.0, 1.0);
                return Some(Seconds(lower + (upper - lower) * inside));
            }
            below += here;
            lower = upper.unwrap_or(lower);
        }
        Some(Seconds(lower))
    }

    /// Minimum mean of the delays above the last bound: the rest of the sum if all others took as long as their
    /// buckets allow.
    fn overflow_mean(&self) -> Seconds {
        let last = self.upper_bounds.last().copied().unwrap_or(0.0);
        let (upto, over) = self.counts.split_at(self.upper_bounds.len());
        let others = upto.iter().zip(self.upper_bounds.iter());
        let most: f64 = others.map(|(count, upper)| *count as f64 * upper).sum();
        let over = over.first().map_or(0.0, |count| *count as f64);
        let least = (self.sum_seconds - most) / over;
        Seconds(if least > last { least } else { last })
    }
}
