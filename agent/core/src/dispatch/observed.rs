//! Cumulative observation of one node by one dispatcher, and its text form for agents.
//!
//! `3 <count> <sum of delays, s> <failed> <cost> <delays> <left> <asked> <refused> <jobs>`, all but the last since the
//! dispatcher's start. `delays` and `left` are `<bucket>:<count>,…`, or `-` if all counts are 0: delays of answered
//! requests, and ages at which clients left without a response. `asked` and `refused` are the dispatcher's decisions
//! for all nodes: those made, and those of them for want of room. `jobs` is how many of its requests are in this node
//! now, or `-` if it does not know. `lua/plimsoll/observation.lua` writes the same line; `vectors/observations.json`
//! pins that both match this parser. A line of version 2 ends after `left`, and one of version 1 before it.

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

/// Asked, refused and jobs of a line without them.
const UNKNOWN: [&str; 3] = ["0", "0", "-"];

type Counts = [u64; BUCKETS];

/// Cumulative counters of one dispatcher for one node, and its requests there.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    sum_seconds: f64,
    failed: u64,
    cost: f64,
    delays: Counts,
    left: Counts,
    decisions: Decisions,
    jobs: Option<u64>,
}

/// Decisions of a dispatcher on where to place requests, for all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Decisions made, refusals among them.
    pub asked: u64,
    /// Requests refused since no node had room.
    pub refused: u64,
}

impl Decisions {
    /// `None` if the difference is implausible.
    fn since(self, old: Decisions) -> Option<Decisions> {
        // The earlier line did not know them: they are of more than one period.
        if old.asked == 0 {
            return Some(Decisions::default());
        }
        let new = Decisions {
            asked: self.asked.checked_sub(old.asked)?,
            refused: self.refused.checked_sub(old.refused)?,
        };
        (new.refused <= new.asked).then_some(new)
    }
}

impl Default for Observed {
    fn default() -> Self {
        Observed {
            sum_seconds: 0.0,
            failed: 0,
            cost: 0.0,
            delays: [0; BUCKETS],
            left: [0; BUCKETS],
            decisions: Decisions::default(),
            jobs: None,
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

    /// The same counters, with the dispatcher's decisions and its requests in the node.
    pub fn with(&self, decisions: Decisions, jobs: u64) -> Self {
        Observed {
            decisions,
            jobs: Some(jobs),
            ..self.clone()
        }
    }

    /// The text form.
    pub fn text(&self) -> String {
        format!(
            "3 {} {:.6} {} {:.0} {} {} {} {} {}",
            total(&self.delays),
            self.sum_seconds,
            self.failed,
            self.cost,
            text_of(&self.delays),
            text_of(&self.left),
            self.decisions.asked,
            self.decisions.refused,
            self.jobs
                .map_or_else(|| "-".to_owned(), |jobs| jobs.to_string()),
        )
    }

    /// Parses the text form; `None` if it is malformed or its figures contradict each other.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let (words, left, [asked, refused, jobs]) = match *words.as_slice() {
            ["1", ref words @ ..] => (words, "-", UNKNOWN),
            ["2", ref words @ .., left] => (words, left, UNKNOWN),
            ["3", ref words @ .., left, asked, refused, jobs] => {
                (words, left, [asked, refused, jobs])
            }
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
            decisions: Decisions {
                asked: whole(asked)?,
                refused: whole(refused)?,
            },
            jobs: match jobs {
                "-" => None,
                jobs => Some(whole(jobs)?),
            },
        };
        let fits = total(&observed.delays) == whole(count)? && observed.adds_up();
        fits.then_some(observed)
    }

    /// Whether the delays' sum fits their buckets, with a tolerance of one bucket for rounding, the cost fits the number
    /// of requests, and no more was refused than asked.
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
            && self.decisions.refused <= self.decisions.asked
    }

    /// Difference to an earlier observation; `None` if a counter is lower than before, as after a restart of the
    /// dispatcher, or the difference is implausible. The jobs are this one's.
    pub fn since(&self, old: &Observed) -> Option<Observed> {
        let mut new = self.clone();
        new.failed = self.failed.checked_sub(old.failed)?;
        new.sum_seconds -= old.sum_seconds;
        new.cost -= old.cost;
        let buckets = new.delays.iter_mut().chain(&mut new.left);
        for (count, old) in buckets.zip(old.delays.iter().chain(&old.left)) {
            *count = count.checked_sub(*old)?;
        }
        new.decisions = self.decisions.since(old.decisions)?;
        let all = total(&new.delays) + total(&new.left);
        (new.sum_seconds >= 0.0 && new.cost >= 0.0 && all <= MAX_AT_ONCE).then_some(new)
    }

    /// Adds another dispatcher's counters.
    pub fn add(&mut self, other: &Observed) {
        let decisions = &mut self.decisions;
        decisions.asked = decisions.asked.saturating_add(other.decisions.asked);
        decisions.refused = decisions.refused.saturating_add(other.decisions.refused);
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

    /// Share of the decisions that were refusals, in [0, 1]; `None` if none was made.
    pub fn refused_share(&self) -> Option<f64> {
        let Decisions { asked, refused } = self.decisions;
        (asked > 0).then(|| refused as f64 / asked as f64)
    }

    /// The dispatcher's requests in the node at the time of the line; `None` if it does not know.
    pub fn jobs(&self) -> Option<f64> {
        self.jobs.map(|jobs| jobs as f64)
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
