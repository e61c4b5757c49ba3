//! Queries in a service's partitions, for its control loop and its admission.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use plimsoll_core::{Cost, DelayHistogram, Observation, Seconds};

use tokio::time::Instant;

use crate::answer::Admission;

/// Running queries and measurements of one service.
#[derive(Debug)]
pub struct Board(Mutex<Known>);

#[derive(Debug)]
struct Known {
    admission: Admission,
    /// Running queries by number.
    running: BTreeMap<u64, Job>,
    next: u64,
    since: Instant,
    empty: DelayHistogram,
    delays: DelayHistogram,
    failed: u64,
    left: DelayHistogram,
    finished_cost: f64,
    peak: usize,
}

/// Running query. While its rows wait for the caller, it does not count as a job.
#[derive(Debug)]
struct Job {
    /// Start, shifted by the time it has waited for the caller.
    since: Instant,
    waits_since: Option<Instant>,
}

impl Known {
    fn jobs(&self) -> impl Iterator<Item = &Job> {
        let jobs = self.running.values();
        jobs.filter(|job| job.waits_since.is_none())
    }

    fn note_peak(&mut self) {
        self.peak = self.peak.max(self.jobs().count());
    }
}

/// Reason for which a query is not admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Full {
    /// Backlog of the admitted queries.
    pub backlog: Cost,
    /// Bound of the service.
    pub bound: Cost,
}

impl Board {
    /// Creates a board without queries.
    pub fn new(empty: DelayHistogram) -> Self {
        Board(Mutex::new(Known {
            admission: Admission::default(),
            running: BTreeMap::new(),
            next: 0,
            since: Instant::now(),
            delays: empty.clone(),
            left: empty.clone(),
            empty,
            failed: 0,
            finished_cost: 0.0,
            peak: 0,
        }))
    }

    /// Admits a query, which counts until its place is dropped.
    pub fn take(
        self: &Arc<Self>,
        query: &str,
        limit: Option<u64>,
        bound: Cost,
    ) -> Result<Place, Full> {
        let mut known = self.locked();
        let Some(cost) = known.admission.take(query, limit, bound) else {
            let backlog = known.admission.backlog();
            return Err(Full { backlog, bound });
        };
        let number = known.next;
        known.next += 1;
        let job = Job {
            since: Instant::now(),
            waits_since: None,
        };
        known.running.insert(number, job);
        known.note_peak();
        Ok(Place {
            board: Arc::clone(self),
            query: query.to_owned(),
            cost,
            number,
        })
    }

    /// Number of queries that the node works on now.
    pub fn jobs(&self) -> f64 {
        self.locked().jobs().count() as f64
    }

    /// Observation of the queries that ended since the last call.
    pub fn observe(&self) -> Observation {
        let now = Instant::now();
        let mut known = self.locked();
        let since = std::mem::replace(&mut known.since, now);
        let jobs = known.jobs().count();
        let oldest = known.jobs().map(|job| job.since).min();
        let oldest_age = oldest.map(|at| Seconds(now.duration_since(at).as_secs_f64()));
        let empty = known.empty.clone();
        let period = Seconds(now.duration_since(since).as_secs_f64());
        let delays = std::mem::replace(&mut known.delays, empty.clone());
        Observation {
            left: Some(std::mem::replace(&mut known.left, empty)),
            failed: std::mem::take(&mut known.failed),
            finished_cost: Some(Cost(std::mem::take(&mut known.finished_cost))),
            oldest_age,
            jobs: Some(jobs as f64),
            peak_jobs: Some(std::mem::replace(&mut known.peak, jobs) as f64),
            ..Observation::new(period, delays)
        }
    }

    fn locked(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Place of a query in its service's backlog.
#[derive(Debug)]
pub struct Place {
    board: Arc<Board>,
    query: String,
    cost: Cost,
    number: u64,
}

impl Place {
    /// Records a complete answer.
    pub fn answered(&self, delay: Duration, rows: u64) {
        let mut known = self.board.locked();
        let cost = known.admission.learn(&self.query, rows);
        known.finished_cost += cost.get();
        known.delays.record(Seconds(delay.as_secs_f64()));
    }

    /// Records that the query waits for the caller to take rows.
    pub fn waits(&self) {
        if let Some(job) = self.board.locked().running.get_mut(&self.number) {
            job.waits_since = Some(Instant::now());
        }
    }

    /// Records that the caller took them.
    pub fn goes_on(&self) {
        let mut known = self.board.locked();
        if let Some(job) = known.running.get_mut(&self.number)
            && let Some(since) = job.waits_since.take()
        {
            job.since += since.elapsed();
            known.note_peak();
        }
    }

    /// Records that the query ended at this age because the caller left or the deadline was exceeded.
    pub fn left(&self, age: Duration) {
        let age = Seconds(age.as_secs_f64());
        self.board.locked().left.record(age);
    }

    /// Records a failure of the database.
    pub fn failed(&self) {
        self.board.locked().failed += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut known = self.board.locked();
        known.admission.release(self.cost);
        known.running.remove(&self.number);
    }
}
