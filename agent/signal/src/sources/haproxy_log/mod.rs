//! Delays from HAProxy's log lines.

mod connections;
mod jobs;
pub mod line;
mod listener;
mod reference;
pub(super) mod settings;
mod stamp;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use plimsoll_core::{Cost, DelayHistogram, Observation, Seconds};
use prometheus::{IntCounter, IntCounterVec};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::{source_error::SourceError, sources::SourceMetrics};

use jobs::JobsOfProxies;
use line::{Asked, End, LINE_RESULTS, Line, Node, parse};
use listener::Listener;
pub use reference::log_lines;
pub use settings::{HaproxyLogConfig, LogListen};
use stamp::{Arrival, MAX_LATE_MILLIS, Stamps};

/// Checks that a listener can be opened, and closes it.
pub fn check_listen(listen: &LogListen) -> Result<(), SourceError> {
    Listener::bind(listen).map(drop)
}

/// Number of unsuccessful requests since the start, without any success, after which a warning is logged.
const UNWELL_LINES: u64 = 200;

/// Sums over the lines since the last observation.
#[derive(Debug)]
struct Period {
    began: Instant,
    delays: DelayHistogram,
    failed: u64,
    left: DelayHistogram,
    cost: f64,
    costed: u64,
    /// Time in the node, summed over the requests that ended, in seconds.
    in_node: f64,
    asked: u64,
    refused: u64,
    /// Maximum number of jobs in the node when a request ended.
    peak_jobs: Option<f64>,
}

/// Warnings that were logged already; each is logged once.
#[derive(Debug, Default)]
struct Said {
    early: bool,
    late: bool,
    unwell: bool,
}

#[derive(Debug)]
struct Gathered {
    period: Option<Period>,
    stamps: Stamps,
    jobs: JobsOfProxies,
    /// Number of unsuccessful requests since the start; `None` after the first success.
    unwell: Option<u64>,
    said: Said,
}

/// Collects the lines of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lines {
    service: Arc<str>,
    node: Arc<Node>,
    /// Monotonic and Unix time in ms at the start; later jumps of the system clock have no effect.
    opened: (Instant, i64),
    gathered: Arc<Mutex<Gathered>>,
    /// Counters in the order of [`LINE_RESULTS`].
    counted: Arc<[IntCounter]>,
    closed: IntCounterVec,
}

impl Lines {
    fn new(service: &str, node: &str, metrics: &SourceMetrics) -> Self {
        let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
        let counter = |result: &&str| metrics.lines.with_label_values(&[service, result]);
        Lines {
            service: service.into(),
            node: Arc::new(Node::new(node)),
            opened: (Instant::now(), unix.as_millis() as i64),
            gathered: Arc::new(Mutex::new(Gathered {
                period: fresh(),
                stamps: Stamps::default(),
                jobs: JobsOfProxies::default(),
                unwell: Some(0),
                said: Said::default(),
            })),
            counted: LINE_RESULTS.iter().map(counter).collect(),
            closed: metrics.connections_closed.clone(),
        }
    }

    /// Takes one line; `false` if it is malformed.
    pub fn take(&self, line: &[u8]) -> bool {
        let line = parse(line, &self.node);
        let mut gathered = self.lock();
        self.count(gathered.take(&line, self.now_millis(), &self.service));
        line.end != End::Malformed
    }

    /// Counts a line or datagram that exceeds the maximum length.
    pub fn oversized(&self) {
        self.count("oversized");
    }

    /// Counts a connection closed to make room.
    pub fn closed_one(&self) {
        self.closed.with_label_values(&[&*self.service]).inc();
    }

    fn now_millis(&self) -> i64 {
        let (at, unix_millis) = self.opened;
        unix_millis + at.elapsed().as_millis() as i64
    }

    fn count(&self, result: &str) {
        let index = LINE_RESULTS.iter().position(|known| *known == result);
        if let Some(counter) = index.and_then(|index| self.counted.get(index)) {
            counter.inc();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathered {
    /// Adds a line; returns its `result` label.
    fn take(&mut self, line: &Line, now_millis: i64, service: &str) -> &'static str {
        if let Some(stamp) = line.stamp {
            if let Arrival::Late(millis) = self.stamps.lateness(stamp, now_millis) {
                if !std::mem::replace(&mut self.said.late, true) {
                    warn!(
                        service,
                        "log lines come {} s later than they should, and over {} s none counts: they were held up on \
                         their way, or the clocks of the proxies and of this node differ",
                        millis / 1000,
                        MAX_LATE_MILLIS / 1000
                    );
                }
                return "late";
            }
            let is_own = line.end != End::OtherNode;
            if is_own && self.stamps.repetition(stamp, now_millis) == Arrival::Repeated {
                return "repeated";
            }
            if is_own && stamp.left.is_some() {
                self.jobs.take(stamp, now_millis);
                let jobs = self.jobs.sum(now_millis);
                if let Some(period) = &mut self.period {
                    period.peak_jobs = [jobs, period.peak_jobs]
                        .into_iter()
                        .flatten()
                        .reduce(f64::max);
                }
            }
        }
        if line.early && !std::mem::replace(&mut self.said.early, true) {
            warn!(
                service,
                "HAProxy writes log lines before the answers are through, so delays lack the data's time: \
                 take `option logasap` out of its frontend"
            );
        }
        self.note_unwell(&line.end, service);
        if let Some(period) = &mut self.period {
            period.take(line);
        }
        line.end.as_str()
    }

    fn note_unwell(&mut self, end: &End, service: &str) {
        match (end, &mut self.unwell) {
            (End::Finished { .. }, unwell) => *unwell = None,
            (End::Failed { .. } | End::Left { .. }, Some(count)) => *count += 1,
            _ => {}
        }
        if self.unwell.is_some_and(|count| count >= UNWELL_LINES)
            && !std::mem::replace(&mut self.said.unwell, true)
        {
            warn!(
                service,
                "of {UNWELL_LINES} requests in HAProxy's log none finished well: if they do, take \
                 `option dontlog-normal` out of its frontend"
            );
        }
    }
}

impl Period {
    fn take(&mut self, line: &Line) {
        match line.end {
            End::Finished {
                delay,
                in_node,
                cost,
            } => {
                self.delays.record(delay);
                self.in_node += in_node.get();
                if let Some(cost) = cost {
                    self.cost += cost.get();
                    self.costed += 1;
                }
            }
            End::Failed { in_node } => {
                self.failed += 1;
                self.in_node += in_node.get();
            }
            End::Left { age, in_node } => {
                self.left.record(age);
                self.in_node += in_node.get();
            }
            End::Refused | End::Excluded | End::OtherNode | End::Malformed => {}
        }
        self.asked += u64::from(line.asked != Asked::No);
        self.refused += u64::from(line.asked == Asked::Refused);
    }

    fn observation(self, jobs: Option<f64>) -> Observation {
        let period = Seconds::from(self.began.elapsed());
        let finished = self.delays.count();
        // Requests without a cost count with the mean of those that have one.
        let cost = (self.costed > 0).then(|| self.cost / self.costed as f64 * finished as f64);
        // A hanging node and an idle one are equally silent.
        let is_silent = finished + self.failed + self.left.count() == 0;
        let mean_jobs = (!is_silent).then(|| self.in_node / period.get().max(1e-3));
        Observation {
            failed: self.failed,
            left: Some(self.left),
            finished_cost: cost.map(Cost),
            mean_jobs,
            refused_share: (self.asked > 0).then(|| self.refused as f64 / self.asked as f64),
            // If nothing ended in the period, the last report may be outdated: lines get lost.
            jobs: jobs.filter(|_| !is_silent),
            peak_jobs: self.peak_jobs,
            ..Observation::new(period, self.delays)
        }
    }
}

fn fresh() -> Option<Period> {
    let delays = DelayHistogram::empty(DelayHistogram::fine_bounds()).ok()?;
    Some(Period {
        began: Instant::now(),
        left: delays.clone(),
        delays,
        failed: 0,
        cost: 0.0,
        costed: 0,
        in_node: 0.0,
        asked: 0,
        refused: 0,
        peak_jobs: None,
    })
}

/// A log listener and the sums of the current period.
#[derive(Debug)]
pub struct HaproxyLogSource {
    lines: Lines,
    listener: AbortOnDropHandle<()>,
}

impl HaproxyLogSource {
    /// Opens the listener. Requires a Tokio runtime. Errors: kind `bind`.
    pub fn open(
        service: &str,
        config: &HaproxyLogConfig,
        metrics: &SourceMetrics,
    ) -> Result<Self, SourceError> {
        let listener = Listener::bind(&config.listen)?;
        let lines = Lines::new(service, &config.node, metrics);
        let listener = AbortOnDropHandle::new(tokio::spawn(listener.run(lines.clone())));
        Ok(HaproxyLogSource { lines, listener })
    }

    /// Observation since the last call. Without any line it is an empty period, not an error: HAProxy logs nothing
    /// while there are no requests.
    pub async fn observe(&mut self) -> Result<Observation, SourceError> {
        if self.listener.is_finished() {
            // Propagate the panic to the control loop, which is restarted and counted.
            if let Err(error) = (&mut self.listener).await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
            return Err(SourceError::new("unreachable", "the log listener ended"));
        }
        let mut gathered = self.lines.lock();
        let jobs = gathered.jobs.sum(self.lines.now_millis());
        let ended = std::mem::replace(&mut gathered.period, fresh());
        drop(gathered);
        let ended =
            ended.ok_or_else(|| SourceError::new("unreachable", "no histogram to record in"))?;
        Ok(ended.observation(jobs))
    }

    /// Number of jobs in the node by the lines of the current period; `None` if none of them has it.
    pub fn jobs_now(&self) -> Option<f64> {
        let mut gathered = self.lines.lock();
        gathered.period.as_ref()?.peak_jobs?;
        gathered.jobs.sum(self.lines.now_millis())
    }
}
