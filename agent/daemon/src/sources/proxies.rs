//! What the proxies saw of this node, as they told Redis: one line of counters a proxy.
//!
//! `1 <count> <sum of delays, s> <failed> <cost> <bucket:count,…|->`, all counted since the proxy
//! started; bucket i ends at 1 ms · 1.2^i. `lua/plimsoll/dispatcher.lua` writes it.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use plimsoll_core::{
    Cost, DelayHistogram, Seconds,
    dispatch::{BUCKET_RATIO, FIRST_BUCKET_SECONDS, MOST_COST},
};

use tracing::warn;

use super::{Sample, SourceError};
use crate::{metrics::SourceMetrics, ring::RingBoard};

const BUCKETS: usize = 57;
/// More than any proxy counts, and exact as a float.
const MOST: f64 = 1e15;
/// More than one thread of a proxy finishes between two looks.
const MOST_AT_ONCE: u64 = 100_000_000;
/// The longest a request may take where no bucket says so, seconds.
const LONGEST: f64 = 86_400.0;

/// One proxy's counters.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counters {
    sum: f64,
    failed: u64,
    cost: f64,
    /// One more than bounds: delays above the last.
    buckets: Vec<u64>,
}

/// The proxies of one service's node.
#[derive(Debug)]
pub struct ProxiesSource {
    service: String,
    board: Arc<RingBoard>,
    metrics: SourceMetrics,
    bounds: Arc<[f64]>,
    /// By proxy.
    base: BTreeMap<String, Counters>,
    last: Option<Instant>,
    /// Proxies whose lines could not be read last time.
    unreadable: Vec<String>,
}

impl ProxiesSource {
    /// Nothing is known yet.
    pub fn new(service: &str, board: Arc<RingBoard>, metrics: SourceMetrics) -> Self {
        let bounds = (0..BUCKETS).map(|i| FIRST_BUCKET_SECONDS * BUCKET_RATIO.powi(i as i32));
        ProxiesSource {
            service: service.to_owned(),
            board,
            metrics,
            bounds: bounds.collect(),
            base: BTreeMap::new(),
            last: None,
            unreadable: Vec::new(),
        }
    }

    /// What was counted since the last call; `None` the first time.
    pub fn observe(&mut self) -> Result<Option<Sample>, SourceError> {
        let Some((seen, at)) = self.board.observations(&self.service) else {
            return Err(SourceError::new(
                "unreachable",
                "Redis has not been reached yet",
            ));
        };
        if self.last == Some(at) {
            return Err(SourceError::new(
                "unreachable",
                "no news from Redis since the last period",
            ));
        }
        let mut now = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (proxy, line) in seen {
            match parse(&line, &self.bounds) {
                Some(counters) => drop(now.insert(proxy, counters)),
                None => unreadable.push(proxy),
            }
        }
        self.metrics
            .show_proxies(&self.service, now.len(), unreadable.len());
        if now.is_empty() && !unreadable.is_empty() {
            return Err(SourceError::new(
                "garbage",
                format!(
                    "proxy {} reports what cannot be read",
                    unreadable.join(", ")
                ),
            ));
        }
        // One that lies must not blind the node to the others.
        if !unreadable.is_empty() && unreadable != self.unreadable {
            warn!(
                service = self.service,
                "left out, its observations cannot be read: proxy {}",
                unreadable.join(", ")
            );
        }
        self.unreadable = unreadable;
        let before = self.last.replace(at);
        let base = std::mem::replace(&mut self.base, now);
        let Some(before) = before else {
            return Ok(None);
        };
        let mut added = Counters {
            buckets: vec![0; BUCKETS + 1],
            ..Counters::default()
        };
        for (proxy, counters) in &self.base {
            // All that a proxy ever counted is not this period's: the first look is only a base, as is
            // one at counters that fell.
            if let Some(old) = base.get(proxy).filter(|old| goes_on(old, counters)) {
                added.add(counters, old);
            }
        }
        let delays =
            DelayHistogram::from_counts(Arc::clone(&self.bounds), added.buckets, added.sum)
                .map_err(|error| SourceError::new("garbage", error.to_string()))?;
        Ok(Some(Sample {
            period: Seconds(at.saturating_duration_since(before).as_secs_f64()),
            delays,
            failed: added.failed,
            finished_cost: Some(Cost(added.cost)),
            oldest_age: None,
            jobs: None,
            peak_jobs: None,
        }))
    }
}

fn goes_on(old: &Counters, new: &Counters) -> bool {
    let mut pairs = old.buckets.iter().zip(&new.buckets);
    let mut finished = 0;
    pairs.all(|(old, new)| {
        finished += new.saturating_sub(*old);
        new >= old
    }) && finished <= MOST_AT_ONCE
        && new.failed >= old.failed
        && new.cost >= old.cost
        && new.sum >= old.sum
}

impl Counters {
    fn add(&mut self, now: &Counters, old: &Counters) {
        self.sum += now.sum - old.sum;
        self.cost += now.cost - old.cost;
        self.failed = self.failed.saturating_add(now.failed - old.failed);
        for (bucket, (now, old)) in self
            .buckets
            .iter_mut()
            .zip(now.buckets.iter().zip(&old.buckets))
        {
            *bucket = bucket.saturating_add(now - old);
        }
    }

    /// Whether so many delays in these buckets can have this sum, and so many requests this cost; a
    /// ratio of one bucket is left for rounding.
    fn adds_up(&self, bounds: &[f64]) -> bool {
        let (mut least, mut most, mut finished) = (0.0, 0.0, 0.0);
        for (index, count) in self.buckets.iter().enumerate() {
            let count = *count as f64;
            finished += count;
            least += count * if index == 0 { 0.0 } else { bounds[index - 1] };
            most += count * bounds.get(index).copied().unwrap_or(LONGEST);
        }
        let sums = least / BUCKET_RATIO..=most * BUCKET_RATIO;
        sums.contains(&self.sum) && self.cost <= MOST_COST * (finished + self.failed as f64)
    }
}

fn parse(line: &str, bounds: &[f64]) -> Option<Counters> {
    let words: Vec<&str> = line.split(' ').collect();
    let [version, count, sum, failed, cost, buckets] = words.try_into().ok()?;
    if version != "1" {
        return None;
    }
    let number = |text: &str| text.parse().ok().filter(|n: &f64| (0.0..=MOST).contains(n));
    let whole = |text: &str| text.parse().ok().filter(|n: &u64| *n as f64 <= MOST);
    let mut counters = Counters {
        sum: number(sum)?,
        failed: whole(failed)?,
        cost: number(cost)?,
        buckets: vec![0; BUCKETS + 1],
    };
    for entry in buckets.split(',').filter(|_| buckets != "-") {
        let (bucket, count) = entry.split_once(':')?;
        *counters.buckets.get_mut(bucket.parse::<usize>().ok()?)? = whole(count)?;
    }
    let fits = counters.buckets.iter().sum::<u64>() == whole(count)? && counters.adds_up(bounds);
    fits.then_some(counters)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::metrics::Catalogue;

    fn source() -> (ProxiesSource, Arc<RingBoard>) {
        let board = Arc::new(RingBoard::default());
        let registry = Registry::new();
        let metrics = SourceMetrics::new(&mut Catalogue::new(&registry)).unwrap();
        let source = ProxiesSource::new("s", Arc::clone(&board), metrics);
        (source, board)
    }

    fn put(board: &RingBoard, seen: &[(&str, &str)]) {
        let seen = seen
            .iter()
            .map(|(proxy, line)| ((*proxy).to_owned(), (*line).to_owned()));
        board.put_observations("s", seen.collect());
    }

    #[test]
    fn what_proxies_added_is_summed() {
        let (mut source, board) = source();
        assert!(source.observe().is_err());
        put(&board, &[("a", "1 2 0.5 1 160 31:2"), ("b", "1 0 0 0 0 -")]);
        assert!(source.observe().unwrap().is_none());
        assert!(source.observe().is_err(), "the same news twice is none");
        put(
            &board,
            &[("a", "1 5 1.25 1 400 31:5"), ("b", "1 1 0.001 3 80 0:1")],
        );
        let sample = source.observe().unwrap().unwrap();
        assert_eq!(sample.delays.count(), 4);
        assert!((sample.delays.mean().unwrap().get() - 0.751 / 4.0).abs() < 1e-9);
        assert_eq!(
            (sample.failed, sample.finished_cost),
            (3, Some(Cost(320.0)))
        );
    }

    #[test]
    fn a_proxy_that_restarted_or_left_takes_nothing_away() {
        let (mut source, board) = source();
        put(
            &board,
            &[("a", "1 9 2.3 0 720 31:9"), ("b", "1 4 1 0 320 31:4")],
        );
        source.observe().unwrap();
        put(&board, &[("a", "1 2 0.5 0 160 31:2")]);
        assert_eq!(source.observe().unwrap().unwrap().delays.count(), 0);
        put(&board, &[("a", "1 3 0.75 0 240 31:3")]);
        assert_eq!(source.observe().unwrap().unwrap().delays.count(), 1);
    }

    #[test]
    fn what_a_proxy_ever_counted_is_not_one_periods_work() {
        let (mut source, board) = source();
        // Redis came back empty: the first report finds no proxies, the second finds them all.
        for seen in [
            &[("a", "1 1000 250 0 80000 31:1000")][..],
            &[],
            &[("a", "1 1003 250.75 0 80240 31:1003")],
        ] {
            put(&board, seen);
            let sample = source.observe().unwrap();
            assert_eq!(sample.map_or(0, |sample| sample.delays.count()), 0);
        }
        put(&board, &[("a", "1 1005 251.25 0 80400 31:1005")]);
        assert_eq!(source.observe().unwrap().unwrap().delays.count(), 2);
        put(
            &board,
            &[("a", "1 900000000000000 2.25e14 0 80400 31:900000000000000")],
        );
        assert_eq!(source.observe().unwrap().unwrap().delays.count(), 0);
    }

    #[test]
    fn one_proxy_that_lies_does_not_hide_the_others() {
        let (mut source, board) = source();
        for n in 1..4 {
            let fine = format!("1 {n} {} 0 80 31:{n}", 0.25 * f64::from(n));
            put(&board, &[("a", "garbage"), ("b", &fine)]);
            let sample = source.observe().unwrap();
            assert_eq!(sample.map_or(1, |sample| sample.delays.count()), 1);
        }
        put(&board, &[("a", "garbage")]);
        assert!(source.observe().is_err(), "nothing is known");
    }

    #[test]
    fn hostile_lines_are_refused() {
        let parse = |line| parse(line, &source().0.bounds);
        for line in [
            "",
            "x",
            "2 0 0 0 0 -",
            "1 1 0 0 0 -",
            "1 1 nan 0 0 0:1",
            "1 1 -1 0 0 0:1",
            "1 1 1e300 0 0 0:1",
            "1 1 1e14 0 0 0:1",
            "1 1 1e14 0 0 57:1",
            "1 100 0.001 0 0 31:100",
            "1 1 0.001 0 1e14 0:1",
            "1 1 0 -1 0 0:1",
            "1 1 0 0 inf 0:1",
            "1 1 0 0 0 58:1",
            "1 1 0 0 0 0:x",
            "1 1 0 0 0 0:1 more",
            "1 18446744073709551615 0 0 0 0:18446744073709551615",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert!(parse("1 0 0.000000 0 0 -").is_some());
        assert!(
            parse("1 1 30.5 0 80 57:1").is_some(),
            "above the last bound"
        );
    }
}
