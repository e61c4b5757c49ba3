//! Observations of this node that proxies report to Redis: one line of counters per proxy, parsed by [`Observed`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::{Cost, HistogramError, Observation, Seconds, dispatch::Observed};

use tracing::warn;

use crate::{source_error::SourceError, sources::SourceMetrics};

/// Time without news after which the source fails. Proxies report about once a second, and neither they nor the
/// agent keep exact time: until then an observation is only delayed.
const QUIET: Duration = Duration::from_millis(2500);

/// Proxy and its line of counters, unparsed.
pub type Observations = Vec<(String, String)>;

/// Latest observations by service, with the time at which they were read from Redis.
#[derive(Debug, Default)]
pub struct ObservationBoard(Mutex<BTreeMap<String, (Observations, Instant)>>);

impl ObservationBoard {
    fn locked<T>(
        &self,
        look: impl FnOnce(&mut BTreeMap<String, (Observations, Instant)>) -> T,
    ) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores observations read just now, in place of the service's earlier ones.
    pub fn put(&self, service: &str, seen: Observations) {
        self.locked(|all| all.insert(service.to_owned(), (seen, Instant::now())));
    }

    fn of(&self, service: &str) -> Option<(Observations, Instant)> {
        self.locked(|all| all.get(service).cloned())
    }

    fn read_at(&self, service: &str) -> Option<Instant> {
        self.locked(|all| Some(all.get(service)?.1))
    }

    /// Removes the observations of a service.
    pub fn forget(&self, service: &str) {
        self.locked(|all| all.remove(service));
    }
}

/// Source of one service: the differences between successive reports of its proxies.
#[derive(Debug)]
pub struct ProxiesSource {
    service: String,
    board: Arc<ObservationBoard>,
    metrics: SourceMetrics,
    /// Counters of the last observation, by proxy.
    base: BTreeMap<String, Observed>,
    last: Option<Instant>,
    /// Proxies whose lines were malformed last time.
    unreadable: Vec<String>,
}

impl ProxiesSource {
    /// A source without any observation yet.
    pub fn new(service: &str, board: Arc<ObservationBoard>, metrics: SourceMetrics) -> Self {
        ProxiesSource {
            service: service.to_owned(),
            board,
            metrics,
            base: BTreeMap::new(),
            last: None,
            unreadable: Vec::new(),
        }
    }

    /// True if Redis was read since the last observation. False before the first one.
    pub fn has_news(&self) -> bool {
        let read = self.board.read_at(&self.service);
        self.last
            .is_some_and(|last| read.is_some_and(|at| at > last))
    }

    /// Observation since the last one; `None` for the first and while there is no news. Errors: kind `unreachable` if
    /// Redis was never read or not for 2.5 s, kind `garbage` if all lines are malformed.
    pub fn observe(&mut self) -> Result<Option<Observation>, SourceError> {
        let Some((seen, at)) = self.board.of(&self.service) else {
            return Err(SourceError::new(
                "unreachable",
                "Redis has not been reached yet",
            ));
        };
        if self.last == Some(at) {
            if at.elapsed() < QUIET {
                return Ok(None);
            }
            return Err(SourceError::new(
                "unreachable",
                "no news from Redis for over 2.5 s",
            ));
        }
        let mut now = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (proxy, line) in seen {
            match Observed::parse(&line) {
                Some(observed) => drop(now.insert(proxy, observed)),
                None => unreadable.push(proxy),
            }
        }
        self.metrics
            .show_proxies(&self.service, now.len(), unreadable.len());
        if now.is_empty() && !unreadable.is_empty() {
            return Err(SourceError::new(
                "garbage",
                format!(
                    "malformed observations from proxy {}",
                    unreadable.join(", ")
                ),
            ));
        }
        // A malformed line must not hide the reports of other proxies.
        if !unreadable.is_empty() && unreadable != self.unreadable {
            warn!(
                service = self.service,
                "malformed observations ignored, from proxy {}",
                unreadable.join(", ")
            );
        }
        self.unreadable = unreadable;
        if let Some(before) = self.last
            && now == self.base
            && at.saturating_duration_since(before) < QUIET
        {
            // Read twice between two reports: the next observation covers the whole time.
            return Ok(None);
        }
        let before = self.last.replace(at);
        let base = std::mem::replace(&mut self.base, now);
        let Some(before) = before else {
            return Ok(None);
        };
        let mut added = Observed::default();
        for (proxy, observed) in &self.base {
            // A new proxy's counters cover more than this period, and counters that fell were reset: both only set
            // the baseline.
            if let Some(new) = base.get(proxy).and_then(|old| observed.since(old)) {
                added.add(&new);
            }
        }
        let garbage = |error: HistogramError| Err(SourceError::new("garbage", error.to_string()));
        let delays = added.delays().or_else(garbage)?;
        let left = added.left_ages().or_else(garbage)?;
        let period = at.saturating_duration_since(before).as_secs_f64();
        let ended = delays.count() + left.count();
        let in_node = delays.sum().get() + left.sum().get();
        // Of a proxy that is new or was restarted, too.
        let jobs: Option<f64> = self.base.values().map(Observed::jobs).sum();
        Ok(Some(Observation {
            // A hanging node and an idle one are equally silent.
            mean_jobs: (ended > 0 && period > 0.0).then(|| in_node / period),
            refused_share: added.refused_share(),
            jobs: jobs.filter(|_| !self.base.is_empty()),
            failed: added.failures(),
            left: Some(left),
            finished_cost: Some(Cost(added.cost())),
            ..Observation::new(Seconds(period), delays)
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use plimsoll_exposition::Catalogue;

    fn source() -> (ProxiesSource, Arc<ObservationBoard>) {
        let board = Arc::new(ObservationBoard::default());
        let registry = Registry::new();
        let metrics = SourceMetrics::new(&mut Catalogue::new(&registry)).unwrap();
        let source = ProxiesSource::new("s", Arc::clone(&board), metrics);
        (source, board)
    }

    fn put(board: &ObservationBoard, seen: &[(&str, &str)]) {
        let seen = seen
            .iter()
            .map(|(proxy, line)| ((*proxy).to_owned(), (*line).to_owned()));
        board.put("s", seen.collect());
    }

    #[test]
    fn what_proxies_added_is_summed() {
        let (mut source, board) = source();
        assert!(source.observe().is_err());
        put(&board, &[("a", "1 2 0.5 1 160 31:2"), ("b", "1 0 0 0 0 -")]);
        assert!(source.observe().unwrap().is_none());
        assert!(
            source.observe().unwrap().is_none(),
            "the same news twice is none"
        );
        put(
            &board,
            &[("a", "1 5 1.25 1 400 31:5"), ("b", "1 1 0.001 3 80 0:1")],
        );
        let seen = source.observe().unwrap().unwrap();
        assert_eq!(seen.delays.count(), 4);
        assert!((seen.delays.mean().unwrap().get() - 0.751 / 4.0).abs() < 1e-9);
        assert_eq!((seen.failed, seen.finished_cost), (3, Some(Cost(320.0))));
    }

    #[test]
    fn refusals_and_jobs_of_all_proxies_count() {
        let (mut source, board) = source();
        put(
            &board,
            &[
                ("a", "3 5 1 0 5 30:5 - 9 4 2"),
                ("b", "3 0 0 0 0 - - 70 0 0"),
            ],
        );
        source.observe().unwrap();
        put(
            &board,
            &[
                ("a", "3 5 1 0 5 30:5 - 15 7 3"),
                ("b", "3 0 0 0 0 - - 76 0 4"),
                ("new", "3 0 0 0 0 - - 500 400 5"),
            ],
        );
        let seen = source.observe().unwrap().unwrap();
        // Nothing ended, and yet it is known what is there.
        assert_eq!(seen.delays.count(), 0);
        assert_eq!((seen.refused_share, seen.jobs), (Some(0.25), Some(12.0)));
        // A proxy of an earlier version does not know its jobs, so the sum is unknown.
        put(
            &board,
            &[("a", "3 5 1 0 5 30:5 - 16 7 3"), ("b", "2 0 0 0 0 - -")],
        );
        let seen = source.observe().unwrap().unwrap();
        assert_eq!((seen.refused_share, seen.jobs), (Some(0.0), None));
    }

    #[test]
    fn news_is_what_was_read_since_the_last_look() {
        let (mut source, board) = source();
        assert!(source.observe().is_err());
        put(&board, &[("a", "1 2 0.5 1 160 31:2")]);
        assert!(!source.has_news(), "the first look is a base, at any time");
        source.observe().unwrap();
        assert!(!source.has_news());
        put(&board, &[("a", "1 3 0.75 1 240 31:3")]);
        assert!(source.has_news());
        source.observe().unwrap();
        assert!(!source.has_news());
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
            let seen = source.observe().unwrap();
            assert_eq!(seen.map_or(0, |seen| seen.delays.count()), 0);
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
            let seen = source.observe().unwrap();
            assert_eq!(seen.map_or(1, |seen| seen.delays.count()), 1);
        }
        put(&board, &[("a", "garbage")]);
        assert!(source.observe().is_err(), "nothing is known");
    }

    #[test]
    fn a_proxy_with_one_very_slow_answer_is_not_left_out() {
        let (mut source, board) = source();
        put(&board, &[("a", "2 0 0.000000 0 0 - -")]);
        source.observe().unwrap();
        // 100 answers of 0.5 s and one of 60 s, and a client that left after half a minute.
        put(&board, &[("a", "2 101 110.000000 0 101 35:100,56:1 56:1")]);
        let seen = source.observe().unwrap().unwrap();
        assert_eq!(seen.delays.count(), 101);
        assert!(seen.delays.within(Seconds(20.0)) > 99.9);
        assert!(seen.delays.within(Seconds(1.0)) < 100.1);
        assert_eq!(seen.left.unwrap().above(Seconds(20.0)).count(), 1);
    }
}
