//! Cumulative observation of one node by one dispatcher, and its text form for agents.
//!
//! `2 <count> <sum of delays, s> <failed> <cost> <delays> <left>`, all since the dispatcher's start. The last two
//! are `<bucket>:<count>,…`, or `-` if all counts are 0: delays of answered requests, and ages at which clients
//! left without a response. `lua/plimsoll/observation.lua` writes the same line; `vectors/observations.json` pins
//! that both match this parser. A line of version 1 has no `left`.

use std::sync::Arc;

use super::MAX_COST;
use crate::{DelayHistogram, HistogramError, MAX_NUMBER};

/// Number of buckets; the last has no upper bound.
const BUCKETS: usize = 57;
/// Upper bound of the first bucket.
const FIRST_END_SECONDS: f64 = 0.001;
/// Ratio of the upper bounds of neighbouring buckets.
const RATIO: f64 = 1.2;
/// Maximum plausible number of requests that one dispatcher finishes between two readings.
const MAX_AT_ONCE: u64 = 100_000_000;
/// Maximum plausible delay in the last bucket, in seconds.
const MAX_SECONDS: f64 = 86_400.0;

type Counts = [u64; BUCKETS];

/// Cumulative counters of one dispatcher for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    sum_seconds: f64,
    failed: u64,
    cost: f64,
    delays: Counts,
    left: Counts,
}

impl Default for Observed {
    fn default() -> Self {
        Observed {
            sum_seconds: 0.0,
            failed: 0,
            cost: 0.0,
            delays: [0; BUCKETS],
            left: [0; BUCKETS],
        }
    }
}

/// Upper bounds of all buckets but the last, in seconds.
fn ends() -> impl Iterator<Item = f64> {
    (0..BUCKETS as i32 - 1).map(|bucket| FIRST_END_SECONDS * RATIO.powi(bucket))
}

fn bucket_of(seconds: f64) -> usize {
    if seconds > FIRST_END_SECONDS {
        let bucket = (seconds / FIRST_END_SECONDS).log(RATIO).ceil() as usize;
        bucket.min(BUCKETS - 1)
    } else {
        0
    }
}

impl Observed {
    /// Counts a response after `delay` seconds whose request touched `cost` items.
    pub fn answered(&mut self, delay: f64, cost: f64) {
        let delay = delay.max(0.0);
        self.sum_seconds += delay;
        self.cost += cost;
        self.delays[bucket_of(delay)] += 1;
    }

    /// Counts a failed request, which has no delay.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    /// Counts a request whose client left after `age` seconds without a response.
    pub fn left(&mut self, age: f64) {
        self.left[bucket_of(age)] += 1;
    }

    /// The text form.
    pub fn text(&self) -> String {
        format!(
            "2 {} {:.6} {} {:.0} {} {}",
            total(&self.delays),
            self.sum_seconds,
            self.failed,
            self.cost,
            text_of(&self.delays),
            text_of(&self.left),
        )
    }

    /// Parses the text form; `None` if it is malformed or its figures contradict each other.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let (words, left) = match *words.as_slice() {
            ["1", ref words @ ..] => (words, "-"),
            ["2", ref words @ .., left] => (words, left),
            _ => return None,
        };
        let &[count, sum, failed, cost, delays] = words else {
            return None;
        };
        let number = |text: &str| {
            let number = text.parse().ok();
            number.filter(|n: &f64| (0.0..=MAX_NUMBER).contains(n))
        };
        let observed = Observed {
            sum_seconds: number(sum)?,
            failed: whole(failed)?,
            cost: number(cost)?,
            delays: counts_of(delays)?,
            left: counts_of(left)?,
        };
        let fits = total(&observed.delays) == whole(count)? && observed.adds_up();
        fits.then_some(observed)
    }

    /// Whether the delays' sum fits their buckets, with a tolerance of one bucket for rounding, and the cost fits the
    /// number of requests.
    fn adds_up(&self) -> bool {
        let (mut least, mut most, mut begin) = (0.0, 0.0, 0.0);
        let ends = ends().chain([MAX_SECONDS]);
        for (end, count) in ends.zip(self.delays) {
            least += count as f64 * begin;
            most += count as f64 * end;
            begin = end;
        }
        let requests = total(&self.delays) + self.failed;
        (least / RATIO..=most * RATIO).contains(&self.sum_seconds)
            && self.cost <= MAX_COST * requests as f64
    }

    /// Difference to an earlier observation; `None` if a counter is lower than before, as after a restart of the
    /// dispatcher, or the difference is implausible.
    pub fn since(&self, old: &Observed) -> Option<Observed> {
        let mut new = self.clone();
        new.failed = self.failed.checked_sub(old.failed)?;
        new.sum_seconds -= old.sum_seconds;
        new.cost -= old.cost;
        let buckets = new.delays.iter_mut().chain(&mut new.left);
        for (count, old) in buckets.zip(old.delays.iter().chain(&old.left)) {
            *count = count.checked_sub(*old)?;
        }
        let all = total(&new.delays) + total(&new.left);
        (new.sum_seconds >= 0.0 && new.cost >= 0.0 && all <= MAX_AT_ONCE).then_some(new)
    }

    /// Adds another dispatcher's counters.
    pub fn add(&mut self, other: &Observed) {
        self.sum_seconds += other.sum_seconds;
        self.cost += other.cost;
        self.failed = self.failed.saturating_add(other.failed);
        let buckets = self.delays.iter_mut().chain(&mut self.left);
        for (count, more) in buckets.zip(other.delays.iter().chain(&other.left)) {
            *count = count.saturating_add(*more);
        }
    }

    /// Number of failed requests.
    pub fn failures(&self) -> u64 {
        self.failed
    }

    /// Total cost of the answered requests, in items.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// Delays of the answered requests.
    pub fn delays(&self) -> Result<DelayHistogram, HistogramError> {
        let ends: Arc<[f64]> = ends().collect();
        DelayHistogram::from_counts(ends, self.delays.to_vec(), self.sum_seconds)
    }

    /// Ages at which clients left. The text form has no sum of them, so each counts with its bucket's lower bound.
    pub fn left_ages(&self) -> Result<DelayHistogram, HistogramError> {
        let ends: Arc<[f64]> = ends().collect();
        let begins = std::iter::once(0.0).chain(ends.iter().copied());
        let sum = begins.zip(self.left).map(|(at, n)| at * n as f64).sum();
        DelayHistogram::from_counts(ends, self.left.to_vec(), sum)
    }
}

fn total(counts: &Counts) -> u64 {
    counts
        .iter()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

fn text_of(counts: &Counts) -> String {
    let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let pairs: Vec<String> = counted
        .map(|(bucket, count)| format!("{bucket}:{count}"))
        .collect();
    if pairs.is_empty() {
        "-".to_owned()
    } else {
        pairs.join(",")
    }
}

fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| *n as f64 <= MAX_NUMBER)
}

fn counts_of(text: &str) -> Option<Counts> {
    let mut counts = [0; BUCKETS];
    for entry in text.split(',').filter(|_| text != "-") {
        let (bucket, count) = entry.split_once(':')?;
        *counts.get_mut(bucket.parse::<usize>().ok()?)? = whole(count)?;
    }
    Some(counts)
}
