//! Whether a node may answer: when its database was last known to be in order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

pub struct Pulse {
    /// Silence longer than this ends readiness.
    limit: Duration,
    metrics: Arc<Metrics>,
    state: Mutex<Result<Instant, &'static str>>,
}

impl Pulse {
    pub fn new(limit: Duration, metrics: Arc<Metrics>) -> Self {
        Self {
            limit,
            metrics,
            state: Mutex::new(Err("the database was not asked yet")),
        }
    }

    pub fn ready(&self) -> Result<(), &'static str> {
        match *self.lock() {
            Err(why) => Err(why),
            Ok(heard) if heard.elapsed() > self.limit => Err("the database is silent"),
            Ok(_) => Ok(()),
        }
    }

    pub fn set(&self, state: Result<Instant, &'static str>) {
        self.metrics.replication_ready.set(i64::from(state.is_ok()));
        *self.lock() = state;
    }

    fn lock(&self) -> MutexGuard<'_, Result<Instant, &'static str>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
