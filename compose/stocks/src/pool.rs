//! Workers behind one FIFO queue. What a request costs in time is computed, not measured: a
//! worker's requests finish on a planned clock and the worker sleeps only what real work left
//! over, so that capacity follows from the flags though nodes share CPUs.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::oneshot;

use crate::cli::ServiceArgs;
use crate::inflight::Presence;
use crate::rows::{Items, Reader};

/// How far a worker's clock may lag behind: late wake-ups are made good, a stopped process is not.
const MAX_LAG: Duration = Duration::from_millis(250);

/// What a request does on a worker: its items, and what is to be said beside them.
pub type Work<T> = Box<dyn FnOnce(&mut Reader) -> Result<(Items, T)> + Send>;

pub struct Job<T> {
    pub arrived: Instant,
    pub work: Work<T>,
    pub reply: oneshot::Sender<Result<(Items, T)>>,
    /// Kept to the end of the work, also when the client has gone.
    pub presence: Arc<Presence>,
}

pub struct Pool<T> {
    queue: Mutex<VecDeque<Job<T>>>,
    arrived: Condvar,
    limit: usize,
}

impl<T: Send + 'static> Pool<T> {
    /// Starts one thread a reader.
    pub fn start(readers: Vec<Reader>, service: &ServiceArgs, limit: usize) -> Result<Arc<Self>> {
        let pool = Arc::new(Self {
            queue: Mutex::new(VecDeque::new()),
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
        let mut queue = self.lock();
        if queue.len() >= self.limit {
            return Err(job);
        }
        queue.push_back(job);
        drop(queue);
        self.arrived.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job<T>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Job<T> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.pop_front() {
                return job;
            }
            queue = self
                .arrived
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_worker(&self, mut reader: Reader, service: &ServiceArgs) {
        let mut clock = Instant::now();
        loop {
            let Job {
                arrived,
                work,
                reply,
                presence,
            } = self.next();
            // Nobody waits for the answer any more: a client or proxy gave up in the queue.
            if reply.is_closed() {
                continue;
            }
            let begun = Instant::now();
            let outcome = work(&mut reader);
            if let Ok((items, _)) = &outcome {
                let earliest = begun.checked_sub(MAX_LAG).unwrap_or(begun);
                clock = clock.max(arrived).max(earliest) + cost(service, items);
                std::thread::sleep(clock.saturating_duration_since(Instant::now()));
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
