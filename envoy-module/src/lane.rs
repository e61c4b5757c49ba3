//! One worker's part of a cluster's state.

use std::sync::{Mutex, MutexGuard};

use envoy_policy::{config::Settings, engine::Engine, worker::Worker};

use crate::system::{locked, seed};

/// Name of the filter state in which a request's ticket is kept for the filters of its attempts.
pub const TICKET: &str = "plimsoll";

/// One worker's dispatcher behind a lock, which the worker takes several times per request and other threads ten times
/// a second. It has cache lines of its own, or workers would slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lane(Mutex<State>);

/// The state behind the lock of a [`Lane`].
#[derive(Debug)]
pub struct State {
    /// Decides on requests, and counts those in flight.
    pub engine: Engine,
    /// Reports demand, and takes shares.
    pub worker: Worker,
}

impl Lane {
    /// `name` must be unique among the dispatchers that run.
    pub fn new(settings: Settings, name: String) -> Self {
        let seed = seed();
        Lane(Mutex::new(State {
            engine: Engine::new(settings, seed),
            worker: Worker::new(name, seed),
        }))
    }

    /// Locks the state, to be held only briefly. Meanwhile nothing may be called in Envoy that can call back into the
    /// module.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}
