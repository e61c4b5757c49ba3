//! What the proxies saw of this node, as they told Redis: one line of counters a proxy.
//!
//! `1 <count> <sum of delays, s> <failed> <cost> <bucket:count,…|->`, all counted since the proxy
//! started; bucket i ends at 1 ms · 1.2^i. `lua/plimsoll/dispatcher.lua` writes it.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use plimsoll_core::{Cost, DelayHistogram, Seconds};

use super::{Sample, SourceError};
use crate::ring::RingBoard;

const BUCKETS: usize = 57;
const FIRST_BUCKET: f64 = 0.001;
const BUCKET_RATIO: f64 = 1.2;
/// More than any proxy counts, and exact as a float.
const MOST: f64 = 1e15;

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
    bounds: Arc<[f64]>,
    /// By proxy.
    base: BTreeMap<String, Counters>,
    last: Option<Instant>,
}

impl ProxiesSource {
    /// Nothing is known yet.
    pub fn new(service: &str, board: Arc<RingBoard>) -> Self {
        let bounds = (0..BUCKETS).map(|i| FIRST_BUCKET * BUCKET_RATIO.powi(i as i32));
        ProxiesSource {
            service: service.to_owned(),
            board,
            bounds: bounds.collect(),
            base: BTreeMap::new(),
            last: None,
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
        for (proxy, line) in &seen {
            let counters = parse(line).ok_or_else(|| {
                SourceError::new(
                    "garbage",
                    format!("proxy {proxy} reports what cannot be read"),
                )
            })?;
            now.insert(proxy.clone(), counters);
        }
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
            // A proxy that is new here began at zero, as did one whose counters fell.
            let old = base.get(proxy).filter(|old| !fell(old, counters));
            added.add(counters, old);
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
        }))
    }
}

fn fell(old: &Counters, new: &Counters) -> bool {
    let fewer = old
        .buckets
        .iter()
        .zip(&new.buckets)
        .any(|(old, new)| new < old);
    fewer || new.failed < old.failed || new.cost < old.cost || new.sum < old.sum
}

impl Counters {
    fn add(&mut self, now: &Counters, old: Option<&Counters>) {
        self.sum += now.sum - old.map_or(0.0, |old| old.sum);
        self.cost += now.cost - old.map_or(0.0, |old| old.cost);
        let failed = now.failed - old.map_or(0, |old| old.failed);
        self.failed = self.failed.saturating_add(failed);
        for (index, bucket) in self.buckets.iter_mut().enumerate() {
            let held = old.map_or(0, |old| old.buckets[index]);
            *bucket = bucket.saturating_add(now.buckets[index] - held);
        }
    }
}

fn parse(line: &str) -> Option<Counters> {
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
    (counters.buckets.iter().sum::<u64>() == whole(count)?).then_some(counters)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn source() -> (ProxiesSource, Arc<RingBoard>) {
        let board = Arc::new(RingBoard::default());
        (ProxiesSource::new("s", Arc::clone(&board)), board)
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
        put(&board, &[("a", "1 2 0.5 1 160 31:2")]);
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
            &[("a", "1 9 1 0 720 31:9"), ("b", "1 4 1 0 320 31:4")],
        );
        source.observe().unwrap();
        put(&board, &[("a", "1 2 0.5 0 160 31:2")]);
        assert_eq!(source.observe().unwrap().unwrap().delays.count(), 2);
    }

    #[test]
    fn hostile_lines_are_refused() {
        for line in [
            "",
            "x",
            "2 0 0 0 0 -",
            "1 1 0 0 0 -",
            "1 1 nan 0 0 0:1",
            "1 1 -1 0 0 0:1",
            "1 1 1e300 0 0 0:1",
            "1 1 0 -1 0 0:1",
            "1 1 0 0 inf 0:1",
            "1 1 0 0 0 58:1",
            "1 1 0 0 0 0:x",
            "1 1 0 0 0 0:1 more",
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
