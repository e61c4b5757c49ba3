//! From counters that only grow to what a period added, whatever happens to the counters.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::DelayHistogram;

use super::{SourceError, exposition::HistogramSeries};

/// Last values of a counter's series.
#[derive(Debug, Default)]
pub struct CounterDelta(Option<BTreeMap<String, f64>>);

impl CounterDelta {
    /// What was added since the last call. A series that dropped was restarted at zero; one that is
    /// new began at zero. `None` on the first call that sees any series.
    pub fn add(&mut self, now: BTreeMap<String, f64>) -> Option<f64> {
        let base = self.0.get_or_insert_default();
        let mut added = 0.0;
        for (labels, value) in now {
            let old = base.insert(labels, value).unwrap_or(0.0);
            added += if value < old { value } else { value - old };
        }
        Some(added)
    }

    /// Takes these values as the base.
    pub fn rebase(&mut self, now: BTreeMap<String, f64>) {
        self.0 = Some(now);
    }
}

/// Last values of a histogram's series.
#[derive(Debug, Default)]
pub struct HistogramDelta {
    bounds: Option<Arc<[f64]>>,
    base: BTreeMap<String, HistogramSeries>,
}

impl HistogramDelta {
    /// What was added since the last call; `None` where this call only laid a new base, since it is
    /// the first or the buckets changed. On an error the old base stays.
    pub fn add(
        &mut self,
        now: BTreeMap<String, HistogramSeries>,
    ) -> Result<Option<DelayHistogram>, SourceError> {
        let bounds = common_bounds(&now)?;
        let known = self.bounds.clone().filter(|known| **known == *bounds);
        let Some(known) = known else {
            self.bounds = Some(bounds.into());
            self.base = now;
            return Ok(None);
        };
        let mut counts = vec![0.0; known.len() + 1];
        let mut sum = 0.0;
        let zero = HistogramSeries {
            buckets: known.iter().map(|bound| (*bound, 0.0)).collect(),
            ..HistogramSeries::default()
        };
        for (labels, new) in &now {
            let old = self.base.get(labels).unwrap_or(&zero);
            let dropped =
                new.all < old.all || new.buckets.iter().zip(&old.buckets).any(|(n, o)| n.1 < o.1);
            let old = if dropped { &zero } else { old };
            sum += (new.sum - old.sum).max(0.0);
            let mut below = 0.0;
            let cumulative = new.buckets.iter().zip(&old.buckets).map(|(n, o)| n.1 - o.1);
            for (count, upto) in counts.iter_mut().zip(cumulative.chain([new.all - old.all])) {
                // Buckets are read one after the other in the service, so one may lag by a request.
                *count += (upto - below).max(0.0);
                below = upto.max(below);
            }
        }
        self.base.extend(now);
        let counts = counts
            .into_iter()
            .map(|count: f64| count.round() as u64)
            .collect();
        DelayHistogram::from_counts(known, counts, sum)
            .map(Some)
            .map_err(|error| SourceError::new("garbage", error.to_string()))
    }
}

fn common_bounds(now: &BTreeMap<String, HistogramSeries>) -> Result<Vec<f64>, SourceError> {
    let bounds =
        |series: &HistogramSeries| -> Vec<f64> { series.buckets.iter().map(|b| b.0).collect() };
    let mut all = now.values().map(bounds);
    let first = all.next().unwrap_or_default();
    if all.any(|other| other != first) {
        return Err(SourceError::new(
            "garbage",
            "buckets are missing: the histogram's series have different bounds",
        ));
    }
    Ok(first)
}
