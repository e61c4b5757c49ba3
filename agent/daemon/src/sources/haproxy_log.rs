//! Reads delays from HAProxy's log lines.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use plimsoll_core::{Cost, DelayHistogram, Seconds};
use prometheus::IntCounterVec;
use tokio::task::JoinHandle;

use super::{
    Sample, SourceError,
    log_line::{Line, parse},
    log_listener::Listener,
};
use crate::{config::LogListen, metrics::Metrics};

/// What arrived since the last observation.
#[derive(Debug)]
struct Period {
    began: Instant,
    delays: DelayHistogram,
    failed: u64,
    left: DelayHistogram,
    cost: f64,
    costed: u64,
}

/// Where lines are added up.
#[derive(Clone, Debug)]
pub struct Lines {
    service: String,
    node: String,
    period: Arc<Mutex<Option<Period>>>,
    counted: IntCounterVec,
    closed: IntCounterVec,
}

impl Lines {
    /// Takes one line; `false` where it is not in the format.
    pub fn take(&self, line: &[u8]) -> bool {
        let line = parse(line, &self.node);
        self.count(line.as_str());
        let mut period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(period) = period.as_mut() else {
            return line != Line::Malformed;
        };
        match line {
            Line::Finished { delay, cost } => {
                period.delays.record(delay);
                if let Some(cost) = cost {
                    period.cost += cost.get();
                    period.costed += 1;
                }
            }
            Line::Failed => period.failed += 1,
            Line::Left { age } => {
                period.left.record(age);
            }
            Line::Refused | Line::OtherNode | Line::Malformed => {}
        }
        line != Line::Malformed
    }

    /// Notes a line or datagram too long to be read.
    pub fn oversized(&self) {
        self.count("oversized");
    }

    /// Notes a connection closed to make room.
    pub fn closed_one(&self) {
        self.closed
            .with_label_values(&[self.service.as_str()])
            .inc();
    }

    fn count(&self, result: &str) {
        self.counted
            .with_label_values(&[self.service.as_str(), result])
            .inc();
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
    })
}

/// A listener and the period it fills.
#[derive(Debug)]
pub struct HaproxyLogSource {
    lines: Lines,
    listener: JoinHandle<()>,
}

impl HaproxyLogSource {
    /// Listens; needs a runtime.
    pub fn open(
        service: &str,
        listen: &LogListen,
        node: &str,
        metrics: &Metrics,
    ) -> Result<Self, SourceError> {
        let listener = Listener::bind(listen)?;
        let lines = Lines {
            service: service.to_owned(),
            node: node.to_owned(),
            period: Arc::new(Mutex::new(fresh())),
            counted: metrics.source.lines.clone(),
            closed: metrics.source.connections_closed.clone(),
        };
        let listener = tokio::spawn(listener.run(lines.clone()));
        Ok(HaproxyLogSource { lines, listener })
    }

    /// What arrived since the last call. Silence is an empty period, not an error: HAProxy says
    /// nothing while there is nothing to say.
    pub async fn observe(&mut self) -> Result<Sample, SourceError> {
        if self.listener.is_finished() {
            // Its panic becomes the loop's, which is restarted and counted.
            if let Err(error) = (&mut self.listener).await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
            return Err(SourceError::new("unreachable", "the log listener ended"));
        }
        let ended = {
            let mut period = self
                .lines
                .period
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *period, fresh())
        };
        let ended =
            ended.ok_or_else(|| SourceError::new("unreachable", "no histogram to record in"))?;
        let finished = ended.delays.count();
        // A mean over the lines that have a cost stands for those that have none.
        let cost = (ended.costed > 0).then(|| ended.cost / ended.costed as f64 * finished as f64);
        Ok(Sample {
            period: Seconds::from(ended.began.elapsed()),
            delays: ended.delays,
            failed: ended.failed,
            left: Some(ended.left),
            finished_cost: cost.map(Cost),
            oldest_age: None,
            jobs: None,
            peak_jobs: None,
        })
    }
}

impl Drop for HaproxyLogSource {
    fn drop(&mut self) {
        self.listener.abort();
    }
}
