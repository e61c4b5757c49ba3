//! Workers behind two FIFO queues: price updates, where they cost time, come before requests. What a request costs in
//! time is computed, not measured: a worker's requests finish on a planned clock and the worker sleeps only what real
//! work left over, so that capacity follows from the flags though nodes share CPUs.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::oneshot;

use crate::cli::ServiceArgs;
use crate::inflight::Presence;
use crate::reader::{Items, Reader};

/// Maximum lag of a worker's clock: late wake-ups are compensated, a stopped process is not.
const MAX_LAG: Duration = Duration::from_millis(250);

/// Work of a request on a worker; returns its items and a result.
pub type Work<T> = Box<dyn FnOnce(&mut Reader) -> Result<(Items, T)> + Send>;

pub struct Job<T> {
    pub arrived: Instant,
    pub work: Work<T>,
    pub reply: oneshot::Sender<Result<(Items, T)>>,
    /// Kept to the end of the work, also when the client has gone.
    pub presence: Arc<Presence>,
}

/// Some price updates, and the time that they take beside the real work.
pub type Update = Box<dyn FnOnce() -> Duration + Send>;

pub struct Pool<T> {
    queues: Mutex<Queues<T>>,
    arrived: Condvar,
    limit: usize,
}

struct Queues<T> {
    updates: VecDeque<(Instant, Update)>,
    requests: VecDeque<Job<T>>,
}

enum Next<T> {
    Update(Instant, Update),
    Request(Job<T>),
}

impl<T: Send + 'static> Pool<T> {
    /// Starts one thread a reader.
    pub fn start(readers: Vec<Reader>, service: &ServiceArgs, limit: usize) -> Result<Arc<Self>> {
        let pool = Arc::new(Self {
            queues: Mutex::new(Queues {
                updates: VecDeque::new(),
                requests: VecDeque::new(),
            }),
            arrived: Condvar::new(),
            limit,
        });
        for (n, reader) in readers.into_iter().enumerate() {
            let (pool, service) = (Arc::clone(&pool), service.clone());
            std::thread::Builder::new()
                .name(format!("worker{n}"))
                .spawn(move || pool.run_worker(reader, &service))
                .context("cannot start a worker thread")?;
        }
        Ok(pool)
    }

    /// Queues a job, or hands it back when the queue is full.
    pub fn submit(&self, job: Job<T>) -> Result<(), Job<T>> {
        let mut queues = self.lock();
        if queues.requests.len() >= self.limit {
            return Err(job);
        }
        queues.requests.push_back(job);
        drop(queues);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues updates, whose number the caller bounds.
    pub fn update(&self, update: Update) {
        self.lock().updates.push_back((Instant::now(), update));
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queues<T>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Next<T> {
        let mut queues = self.lock();
        loop {
            if let Some((arrived, update)) = queues.updates.pop_front() {
                return Next::Update(arrived, update);
            }
            if let Some(job) = queues.requests.pop_front() {
                return Next::Request(job);
            }
            queues = self
                .arrived
                .wait(queues)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_worker(&self, mut reader: Reader, service: &ServiceArgs) {
        let mut clock = Instant::now();
        let mut spend = |begun: Instant, arrived: Instant, cost: Duration| {
            let earliest = begun.checked_sub(MAX_LAG).unwrap_or(begun);
            clock = clock.max(arrived).max(earliest) + cost;
            std::thread::sleep(clock.saturating_duration_since(Instant::now()));
        };
        loop {
            let job = match self.next() {
                Next::Request(job) => job,
                Next::Update(arrived, update) => {
                    let begun = Instant::now();
                    spend(begun, arrived, update().mul_f64(service.slowdown));
                    continue;
                }
            };
            let Job {
                arrived,
                work,
                reply,
                presence,
            } = job;
            // The client or proxy gave up while the request was queued.
            if reply.is_closed() {
                continue;
            }
            let begun = Instant::now();
            let outcome = work(&mut reader);
            if let Ok((items, _)) = &outcome {
                spend(begun, arrived, cost(service, items));
            }
            drop(presence);
            // The client may have gone during the sleep; the time was spent all the same.
            let _ = reply.send(outcome);
        }
    }
}

/// Service time of a request.
fn cost(service: &ServiceArgs, items: &Items) -> Duration {
    let touched = (items.hits + items.misses) as f64;
    let seconds = touched * service.process_latency.as_secs_f64()
        + items.misses as f64 * service.read_latency.as_secs_f64();
    Duration::from_secs_f64(seconds * service.slowdown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_cost_more() {
        let service = ServiceArgs {
            workers: 1,
            process_latency: Duration::from_micros(800),
            read_latency: Duration::from_micros(250),
            update_latency: Duration::ZERO,
            slowdown: 5.0,
        };
        let items = Items {
            hits: 60,
            misses: 20,
            ..Items::default()
        };
        assert_eq!(cost(&service, &items), Duration::from_millis(345));
    }
}
