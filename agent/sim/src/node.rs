//! The plant: one node, its workers, queue and cache.
//!
//! Jobs in service share the node: `n` of them run at `min(n, cores) · g(m)` together, each at its part,
//! where `m` jobs are in the node. With as many workers as cores that is a plain queue; with more it is
//! processor sharing under a limit; and `g` falls where concurrency hurts (lock contention, thrashing).

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    num::NonZeroUsize,
};

use lru::LruCache;
use plimsoll_core::{Cost, DelayHistogram, Observation, Seconds};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    events::Time,
    scenario::{NodeSettings, Order},
};

/// Published settings: if the queue was not empty for `N`, requests wait for at most `M`, else for at most `N`.
const SHED_INTERVAL: f64 = 0.1;
const SHED_TARGET: f64 = 0.005;

/// In place of a request: a transaction of another node to be applied here.
const APPLIED: u32 = u32::MAX;

/// Job in the node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    request: u32,
    items: f64,
    /// Work in seconds of one core.
    work: f64,
    since: Time,
}

/// Job in service, ordered by the virtual time at which it will be done.
#[derive(Clone, Copy, PartialEq)]
struct Running {
    ends: f64,
    job: Job,
}

impl Eq for Running {}
impl PartialOrd for Running {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Running {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.ends
            .total_cmp(&other.ends)
            .then(self.job.request.cmp(&other.job.request))
    }
}

/// Result of a connection attempt.
pub enum Offer {
    /// The node has accepted the request.
    Taken,
    /// The listen queue is full: the client's kernel tries again.
    NoRoom,
    /// No process listens on the port.
    Refused,
    /// Answered with an error at once.
    Error,
    /// Accepted, and never answered.
    Swallowed,
}

/// Health of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Health {
    Good,
    Down,
    /// Accepts everything and answers nothing.
    BlackHole,
    /// Answers this share of its requests with an error at once.
    Failing(f64),
}

pub struct Node {
    settings: NodeSettings,
    pub health: Health,
    /// Speed relative to the configured one.
    speed: f64,
    /// Share of the cores' time for updates, which have priority.
    updating: f64,
    queue: VecDeque<Job>,
    running: BinaryHeap<Reverse<Running>>,
    /// Virtual time: work done for each job in service since the start.
    served: f64,
    served_at: Time,
    pub version: u32,
    planned: Option<Time>,
    cache: Option<LruCache<u32, ()>>,
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Work in queue and service, in seconds of one core, for the oracle.
    work: f64,
    swallowed: Vec<(u32, Time)>,
    /// Jobs that apply other nodes' transactions, which agents do not see.
    applying: usize,
    shed: Option<Shed>,
    chances: Xoshiro256PlusPlus,
    seen: Seen,
}

/// A queue that drops by age.
#[derive(Default)]
struct Shed {
    empty_at: Time,
    dropped: Vec<u32>,
}

/// Measurements of an agent's source in a period.
struct Seen {
    delays: DelayHistogram,
    failed: u64,
    cost: f64,
    peak: usize,
    since: Time,
}

impl Seen {
    fn new(bounds: std::sync::Arc<[f64]>, since: Time, peak: usize) -> Option<Self> {
        Some(Seen {
            delays: DelayHistogram::empty(bounds).ok()?,
            failed: 0,
            cost: 0.0,
            peak,
            since,
        })
    }
}

impl Node {
    /// Creates a node; `None` for invalid histogram bounds, which does not happen.
    pub fn new(settings: NodeSettings, bounds: std::sync::Arc<[f64]>, seed: u64) -> Option<Self> {
        let cache = NonZeroUsize::new(settings.cache_keys as usize).map(LruCache::new);
        Some(Node {
            settings,
            health: Health::Good,
            speed: 1.0,
            updating: 0.0,
            queue: VecDeque::new(),
            running: BinaryHeap::new(),
            served: 0.0,
            served_at: Time::default(),
            version: 0,
            planned: None,
            cache,
            cache_hits: 0,
            cache_misses: 0,
            work: 0.0,
            swallowed: Vec::new(),
            applying: 0,
            shed: None,
            chances: Xoshiro256PlusPlus::seed_from_u64(seed),
            seen: Seen::new(bounds, Time::default(), 0)?,
        })
    }

    /// Jobs in the node.
    pub fn jobs(&self) -> usize {
        self.queue.len() + self.running.len() + self.swallowed.len()
    }

    /// Jobs in the node that are requests.
    fn requests(&self) -> usize {
        self.jobs() - self.applying
    }

    /// Capacity in items/s with cache misses only and the best concurrency; 0 while the node does not respond.
    pub fn capacity(&self) -> f64 {
        match self.health {
            Health::Good | Health::Failing(_) => {
                f64::from(self.settings.cores) * self.speed * (1.0 - self.updating)
                    / self.settings.item_seconds
            }
            Health::Down | Health::BlackHole => 0.0,
        }
    }

    pub fn is_good(&self) -> bool {
        self.health == Health::Good
    }

    /// Predicted delay of a job that arrives now, if its key is not cached.
    pub fn foretold(&self, items: f64) -> f64 {
        let (jobs, workers) = (self.jobs() + 1, self.settings.workers as usize);
        let busy = jobs.min(workers);
        let rate = self.rate(busy, jobs).max(1e-9);
        let own = items * self.settings.item_seconds;
        if workers > self.settings.cores as usize {
            // All jobs share the cores.
            return (self.work + own) / rate;
        }
        let wait = if jobs > workers {
            self.work / rate
        } else {
            0.0
        };
        wait + own * busy as f64 / rate
    }

    /// Total work rate of `n` jobs in service with `jobs` in the node, in seconds of one core per second.
    fn rate(&self, n: usize, jobs: usize) -> f64 {
        let over = jobs as f64 - f64::from(self.settings.contention_from);
        let slowed = 1.0 + self.settings.contention * over.max(0.0);
        let free = self.speed * (1.0 - self.updating);
        (n as f64).min(f64::from(self.settings.cores)) * free / slowed
    }

    /// Advances virtual time to `now`.
    fn advance(&mut self, now: Time) {
        let n = self.running.len();
        if n > 0 {
            let passed = now.get() - self.served_at.get();
            let each = passed * self.rate(n, self.jobs()) / n as f64;
            self.served += each;
            self.work -= each * n as f64;
        }
        self.served_at = now;
    }

    pub fn set_speed(&mut self, now: Time, speed: f64) {
        self.advance(now);
        self.speed = speed;
    }

    /// Sets the cores' time that updates take from now on.
    pub fn update(&mut self, now: Time, cores: f64) {
        self.advance(now);
        self.updating = (cores / f64::from(self.settings.cores)).min(0.99);
    }

    /// Sets the contention from now on.
    pub fn contend(&mut self, now: Time, contention: f64) {
        self.advance(now);
        self.settings.contention = contention;
    }

    /// Offers a connection with a request for `items` of `key`.
    pub fn offer(&mut self, now: Time, request: u32, key: u32, items: f64, chance: f64) -> Offer {
        match self.health {
            Health::Down => return Offer::Refused,
            Health::BlackHole => {
                self.swallowed.push((request, now));
                return Offer::Swallowed;
            }
            Health::Failing(part) if chance < part => {
                self.seen.failed += 1;
                return Offer::Error;
            }
            Health::Good | Health::Failing(_) => {}
        }
        if self.queue.len() >= self.settings.backlog as usize {
            return Offer::NoRoom;
        }
        self.advance(now);
        let hit = self.cache.as_mut().is_some_and(|cache| {
            let hit = cache.get(&key).is_some();
            cache.put(key, ());
            hit
        });
        let saved = if hit { self.settings.cache_saves } else { 0.0 };
        *if hit {
            &mut self.cache_hits
        } else {
            &mut self.cache_misses
        } += 1;
        let work = items * self.settings.item_seconds * (1.0 - saved);
        self.work += work;
        let job = Job {
            request,
            items,
            work,
            since: now,
        };
        self.take(job);
        self.seen.peak = self.seen.peak.max(self.requests());
        Offer::Taken
    }

    fn take(&mut self, job: Job) {
        if self.running.len() < self.settings.workers as usize {
            self.serve(job);
        } else {
            self.queue.push_back(job);
        }
    }

    /// Applies another node's finished transaction of this many items; `part` of its work is also done here.
    pub fn apply(&mut self, now: Time, items: f64, part: f64) {
        if matches!(self.health, Health::Down | Health::BlackHole) || part <= 0.0 {
            return;
        }
        self.advance(now);
        let work = items * self.settings.item_seconds * part;
        self.work += work;
        self.applying += 1;
        self.take(Job {
            request: APPLIED,
            items,
            work,
            since: now,
        });
    }

    fn serve(&mut self, job: Job) {
        let ends = self.served + job.work;
        self.running.push(Reverse(Running { ends, job }));
    }

    /// Time at which the next job finishes, if that must be rescheduled.
    pub fn plan(&mut self, now: Time) -> Option<(Time, u32)> {
        let next = self.running.peek().map(|Reverse(first)| {
            let n = self.running.len();
            let each = self.rate(n, self.jobs()) / n as f64;
            // At least a nanosecond, so that time advances.
            Time(
                (now.after((first.ends - self.served) / each))
                    .0
                    .max(now.0 + 1),
            )
        });
        if next == self.planned {
            return None;
        }
        self.planned = next;
        self.version += 1;
        next.map(|at| (at, self.version))
    }

    /// Finishes the planned job. Returns its request, if it has one.
    pub fn finish(&mut self, now: Time) -> Option<u32> {
        self.advance(now);
        self.planned = None;
        let Reverse(Running { ends, job }) = self.running.pop()?;
        // Rounding to nanoseconds.
        self.served = self.served.max(ends);
        if let Some(next) = self.next_waiting(now) {
            self.serve(next);
        }
        if self.running.is_empty() {
            self.work = 0.0;
        }
        if job.request == APPLIED {
            self.applying -= 1;
            return None;
        }
        self.seen
            .delays
            .record(Seconds(now.get() - job.since.get()));
        self.seen.cost += job.items;
        Some(job.request)
    }

    fn next_waiting(&mut self, now: Time) -> Option<Job> {
        let Some(shed) = &mut self.shed else {
            return match self.settings.order {
                Order::Fifo => self.queue.pop_front(),
                Order::Random if self.queue.is_empty() => None,
                Order::Random => {
                    let chosen = self.chances.random_range(0..self.queue.len());
                    self.queue.swap_remove_back(chosen)
                }
            };
        };
        if self.queue.is_empty() {
            shed.empty_at = now;
            return None;
        }
        // Facebook's "controlled delay" and adaptive LIFO (ACM Queue 13(8), 2015).
        let overloaded = now.get() - shed.empty_at.get() > SHED_INTERVAL;
        let most = if overloaded {
            SHED_TARGET
        } else {
            SHED_INTERVAL
        };
        while let Some(oldest) = self.queue.front()
            && now.get() - oldest.since.get() > most
        {
            if oldest.request == APPLIED {
                self.applying -= 1;
            } else {
                shed.dropped.push(oldest.request);
            }
            self.work -= oldest.work;
            self.queue.pop_front();
        }
        if overloaded {
            self.queue.pop_back()
        } else {
            self.queue.pop_front()
        }
    }

    /// Drops requests that wait too long from now on.
    pub fn shed_by_age(&mut self) {
        self.shed = Some(Shed::default());
    }

    /// Requests dropped since the last call.
    pub fn take_dropped(&mut self) -> Vec<u32> {
        self.shed
            .as_mut()
            .map(|shed| std::mem::take(&mut shed.dropped))
            .unwrap_or_default()
    }

    /// Drops everything in the node. Returns the requests.
    pub fn drop_all(&mut self, now: Time) -> Vec<u32> {
        self.advance(now);
        let queued = self.queue.drain(..).map(|job| job.request);
        let mut lost: Vec<u32> = queued.collect();
        lost.extend(
            self.running
                .drain()
                .map(|Reverse(running)| running.job.request),
        );
        lost.extend(self.swallowed.drain(..).map(|(request, _)| request));
        lost.retain(|request| *request != APPLIED);
        lost.sort_unstable();
        self.applying = 0;
        self.work = 0.0;
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        lost
    }

    /// Records that a request's client left. Returns whether the request was swallowed, and will never finish.
    pub fn forget(&mut self, request: u32) -> bool {
        let before = self.swallowed.len();
        self.swallowed.retain(|(held, _)| *held != request);
        self.swallowed.len() < before
    }

    /// Drops the swallowed requests, and returns them.
    pub fn drop_swallowed(&mut self) -> Vec<u32> {
        self.swallowed
            .drain(..)
            .map(|(request, _)| request)
            .collect()
    }

    /// Ends a period; returns the observation of the agent's source.
    pub fn observe(&mut self, now: Time) -> Option<Observation> {
        let fresh = Seen::new(
            self.seen.delays.upper_bounds().clone(),
            now,
            self.requests(),
        )?;
        let seen = std::mem::replace(&mut self.seen, fresh);
        let running = self.running.iter().map(|Reverse(running)| &running.job);
        let taken = self.queue.iter().chain(running);
        let requests = taken.filter(|job| job.request != APPLIED);
        let swallowed = self.swallowed.iter().map(|(_, since)| *since);
        let oldest = requests.map(|job| job.since).chain(swallowed).min();
        Some(Observation {
            finished_cost: (seen.delays.count() > 0).then_some(Cost(seen.cost)),
            failed: seen.failed,
            jobs: Some(self.requests() as f64),
            peak_jobs: Some(seen.peak as f64),
            oldest_age: oldest.map(|since| Seconds(now.get() - since.get())),
            ..Observation::new(Seconds(now.get() - seen.since.get()), seen.delays)
        })
    }
}
