//! What one dispatcher's requests showed of one node.

/// Delays are counted in buckets that end at 1 ms · 1.2^i: this many reach 27 s.
const BUCKETS: usize = 57;
/// Where the first bucket of delays ends.
pub const FIRST_BUCKET_SECONDS: f64 = 0.001;
/// By how much each bucket ends later than the one before.
pub const BUCKET_RATIO: f64 = 1.2;

/// Counters since the dispatcher's start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observed {
    count: u64,
    sum_seconds: f64,
    failed: u64,
    cost: f64,
    buckets: [u64; BUCKETS],
}

impl Default for Observed {
    fn default() -> Self {
        Observed {
            count: 0,
            sum_seconds: 0.0,
            failed: 0,
            cost: 0.0,
            buckets: [0; BUCKETS],
        }
    }
}

impl Observed {
    /// An answer came after `delay` seconds; `cost` is what it really touched.
    pub(super) fn answered(&mut self, delay: f64, cost: f64) {
        let delay = delay.max(0.0);
        self.count += 1;
        self.sum_seconds += delay;
        self.cost += cost;
        let bucket = if delay > FIRST_BUCKET_SECONDS {
            (delay / FIRST_BUCKET_SECONDS).log(BUCKET_RATIO).ceil() as usize
        } else {
            0
        };
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
    }

    /// A request ended without a good answer, which says nothing of delay.
    pub(super) fn failed(&mut self) {
        self.failed += 1;
    }

    /// `1 <count> <sum s> <failed> <cost> <bucket:count,…|->`, as agents read it.
    pub(super) fn text(&self) -> String {
        let counted = self.buckets.iter().enumerate();
        let pairs: Vec<String> = counted
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| format!("{bucket}:{count}"))
            .collect();
        let pairs = if pairs.is_empty() {
            "-".to_owned()
        } else {
            pairs.join(",")
        };
        format!(
            "1 {} {:.6} {} {:.0} {pairs}",
            self.count, self.sum_seconds, self.failed, self.cost
        )
    }
}
