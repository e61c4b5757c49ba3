//! The increase of cumulative counters in a period, also when counters are reset or disappear.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::DelayHistogram;

use crate::{ExpositionError, HistogramSeries};

/// Up to this many series, those missing from a scrape are still remembered.
const MAX_REMEMBERED: usize = 2000;
/// Generous bound on the relative error of a sum of floating point numbers.
const WAVER: f64 = 1e-9;

/// Last values of a counter's series.
#[derive(Debug, Default)]
pub struct CounterDelta(BTreeMap<String, f64>);

impl CounterDelta {
    /// The increase since the last call. A series that dropped was restarted at zero; a new one
    /// started at zero.
    pub fn add(&mut self, now: BTreeMap<String, f64>) -> f64 {
        forget_gone(&mut self.0, &now);
        let mut added = 0.0;
        for (labels, value) in now {
            let old = self.0.insert(labels, value).unwrap_or(0.0);
            added += if value < old { value } else { value - old };
        }
        added
    }

    /// Replaces the base with these values.
    pub fn rebase(&mut self, now: BTreeMap<String, f64>) {
        self.0 = now;
    }
}

/// Last values of a histogram's series.
#[derive(Debug, Default)]
pub struct HistogramDelta {
    bounds: Option<Arc<[f64]>>,
    base: BTreeMap<String, HistogramSeries>,
}

/// A scrape compared with the last one.
#[derive(Debug)]
pub enum Delta {
    /// The first scrape: only a base.
    First,
    /// The buckets have changed: only a new base.
    OtherBuckets,
    /// The increase.
    Added(DelayHistogram),
}

impl HistogramDelta {
    /// The finite upper bounds of the last call.
    pub fn bounds(&self) -> &[f64] {
        self.bounds.as_deref().unwrap_or_default()
    }

    /// Compares with the last call. On an error the old base is kept.
    pub fn add(
        &mut self,
        now: BTreeMap<String, HistogramSeries>,
    ) -> Result<Delta, ExpositionError> {
        let bounds = common_bounds(&now)?;
        let known = match &self.bounds {
            Some(known) if **known == *bounds => Arc::clone(known),
            other => {
                let first = other.is_none();
                self.bounds = Some(bounds.into());
                self.base = now;
                return Ok(if first {
                    Delta::First
                } else {
                    Delta::OtherBuckets
                });
            }
        };
        let mut counts = vec![0.0; known.len() + 1];
        let mut sum = 0.0;
        let zero = HistogramSeries {
            buckets: known.iter().map(|bound| (*bound, 0.0)).collect(),
            ..HistogramSeries::default()
        };
        for (labels, new) in &now {
            let old = self.base.get(labels).unwrap_or(&zero);
            // The last digits of a sum may vary if the service recomputes it for each scrape.
            let dropped = new.all < old.all
                || new.buckets.iter().zip(&old.buckets).any(|(n, o)| n.1 < o.1)
                || new.sum < old.sum * (1.0 - WAVER);
            let old = if dropped { &zero } else { old };
            sum += (new.sum - old.sum).max(0.0);
            let mut below = 0.0;
            let cumulative = new.buckets.iter().zip(&old.buckets).map(|(n, o)| n.1 - o.1);
            for (count, upto) in counts.iter_mut().zip(cumulative.chain([new.all - old.all])) {
                // Buckets are read one by one, so one may lag behind the one below it.
                *count += (upto - below).max(0.0);
                below = upto.max(below);
            }
        }
        let counts = counts
            .into_iter()
            .map(|count: f64| count.round() as u64)
            .collect();
        let added = DelayHistogram::from_counts(known, counts, sum)
            .map_err(|error| ExpositionError::malformed(error.to_string()))?;
        forget_gone(&mut self.base, &now);
        self.base.extend(now);
        Ok(Delta::Added(added))
    }
}

/// A missing series may come back with its old counts, so it is remembered while there are few.
fn forget_gone<T>(base: &mut BTreeMap<String, T>, now: &BTreeMap<String, T>) {
    if base.len() > MAX_REMEMBERED {
        base.retain(|labels, _| now.contains_key(labels));
    }
}

fn common_bounds(now: &BTreeMap<String, HistogramSeries>) -> Result<Vec<f64>, ExpositionError> {
    let bounds =
        |series: &HistogramSeries| -> Vec<f64> { series.buckets.iter().map(|b| b.0).collect() };
    let mut all = now.values().map(bounds);
    let first = all.next().unwrap_or_default();
    if all.any(|other| other != first) {
        return Err(ExpositionError::malformed(
            "buckets are missing: the histogram's series have different bounds",
        ));
    }
    Ok(first)
}
