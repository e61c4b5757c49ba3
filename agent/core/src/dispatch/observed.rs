//! What one dispatcher's requests showed of one node, and the line that tells agents of it.
//!
//! `2 <count> <sum of delays, s> <failed> <cost> <delays> <left>`, all counted since the dispatcher's start.
//! The last two are `<bucket>:<count>,…`, or `-` where all are 0: delays of what was answered, and ages at
//! which clients left who had no answer. `lua/plimsoll/observation.lua` writes it too, and
//! `vectors/observations.json` pins that both write what is read here. A line of version 1 has no `left`.

use std::sync::Arc;

use super::MAX_COST;
use crate::{DelayHistogram, HistogramError, MAX_NUMBER};

/// Buckets of delays; the last has all that are above the ends of the others.
const BUCKETS: usize = 57;
/// Where the first bucket ends.
const FIRST_END_SECONDS: f64 = 0.001;
/// By how much each bucket ends later than the one before.
const RATIO: f64 = 1.2;
/// More than one dispatcher finishes between two looks.
const MAX_AT_ONCE: u64 = 100_000_000;
/// The longest a request may take where no bucket says so.
const MAX_SECONDS: f64 = 86_400.0;

type Counts = [u64; BUCKETS];

/// Counters since the dispatcher's start.
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

/// Where the buckets end, in seconds; the last one has no end.
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
    /// An answer came after `delay` seconds; `cost` is what it really touched, in items.
    pub fn answered(&mut self, delay: f64, cost: f64) {
        let delay = delay.max(0.0);
        self.sum_seconds += delay;
        self.cost += cost;
        self.delays[bucket_of(delay)] += 1;
    }

    /// The node failed a request, which says nothing of delay.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    /// A request's client left after `age` seconds and had no answer.
    pub fn left(&mut self, age: f64) {
        self.left[bucket_of(age)] += 1;
    }

    /// The line.
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

    /// Reads a line; `None` where it is none, or where its figures cannot be of the same requests.
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

    /// Whether so many delays in these buckets can have this sum, and so many requests this cost; a
    /// ratio of one bucket is left for rounding.
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

    /// What was counted since `old`; `None` where this one does not go on from there, so that a dispatcher
    /// that started again takes nothing away.
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

    /// Adds what another dispatcher counted.
    pub fn add(&mut self, other: &Observed) {
        self.sum_seconds += other.sum_seconds;
        self.cost += other.cost;
        self.failed = self.failed.saturating_add(other.failed);
        let buckets = self.delays.iter_mut().chain(&mut self.left);
        for (count, more) in buckets.zip(other.delays.iter().chain(&other.left)) {
            *count = count.saturating_add(*more);
        }
    }

    /// Requests that the node failed.
    pub fn failures(&self) -> u64 {
        self.failed
    }

    /// What the answered requests touched, in items.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// Delays of what was answered.
    pub fn delays(&self) -> Result<DelayHistogram, HistogramError> {
        let ends: Arc<[f64]> = ends().collect();
        DelayHistogram::from_counts(ends, self.delays.to_vec(), self.sum_seconds)
    }

    /// Ages at which clients left. Their sum is not told: each counts as where its bucket begins.
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
