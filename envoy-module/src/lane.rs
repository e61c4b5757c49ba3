//! What one worker has of a cluster.

use std::sync::{Mutex, MutexGuard};

use envoy_policy::{config::Settings, engine::Engine, worker::Worker};

use crate::system::{locked, seed};

/// Filter state of a request that keeps its ticket for the filters of its attempts.
pub const TICKET: &str = "plimsoll";

/// One worker's dispatcher. The worker takes the lock for each request, others ten times a second. On cache lines of its
/// own, or workers would slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lane(Mutex<State>);

/// See [`Lane`].
#[derive(Debug)]
pub struct State {
    /// Decides, and counts what is in flight.
    pub engine: Engine,
    /// What it tells and takes.
    pub worker: Worker,
}

impl Lane {
    /// `name` is nobody else's.
    pub fn new(settings: Settings, name: String) -> Self {
        let seed = seed();
        Lane(Mutex::new(State {
            engine: Engine::new(settings, seed),
            worker: Worker::new(name, seed),
        }))
    }

    /// To itself, for a moment: Envoy must not be asked for anything that calls back.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}
