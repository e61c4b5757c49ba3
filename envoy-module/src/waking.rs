//! A cluster's configurations, by which the main thread is woken for it, and the answers of agents that wait there.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use envoy_abi::{Answer, ConfigScheduler, Configuration};
use envoy_policy::call::{Answered, Request};

use crate::{registry::wake, system::locked};

/// Number of low bits of a token that hold Envoy's number of the call, which is unique within a configuration only.
const CALLS: u32 = 40;

/// Number of a configuration, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u64);

impl Number {
    /// The next unused number.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Number(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Token of one of the configuration's calls, unique within the process.
    pub fn token(self, call: u64) -> u64 {
        self.0 << CALLS | call
    }

    /// Calls an agent, and returns the token of its answer. `agents` is the name of the agents' cluster in Envoy,
    /// `token` a bearer token.
    ///
    /// # Errors
    ///
    /// If Envoy cannot make the call.
    pub fn ask(
        self,
        configuration: &Configuration,
        (agents, token): (&str, Option<&str>),
        request: &Request,
    ) -> Result<u64, String> {
        let headers = request.headers(agents, token);
        let timeout = std::time::Duration::from_secs_f64(request.timeout);
        let called = configuration.call(agents, &headers, request.body.as_deref(), timeout);
        called.map(|call| self.token(call))
    }
}

/// The configurations of one cluster.
#[derive(Debug, Default)]
pub struct Configurations {
    /// Oldest first.
    schedulers: Mutex<Vec<(Number, ConfigScheduler)>>,
    /// Answers of agents that have not been taken, with the tokens of their calls. They are stored because Envoy may
    /// deliver an answer before the call returns, while its caller holds locks.
    answers: Mutex<Vec<(u64, Answer)>>,
}

impl Configurations {
    /// Adds a configuration, which is woken from now on; does nothing if Envoy only validates.
    ///
    /// # Errors
    ///
    /// If the module's thread cannot be started.
    pub fn join(&self, number: Number, configuration: &Configuration) -> Result<(), String> {
        if !configuration.is_validation() {
            wake()?;
            locked(&self.schedulers).push((number, configuration.scheduler()));
        }
        Ok(())
    }

    /// True if there is no configuration.
    pub fn is_empty(&self) -> bool {
        locked(&self.schedulers).is_empty()
    }

    /// Removes a configuration.
    pub fn leave(&self, number: Number) {
        locked(&self.schedulers).retain(|(other, _)| *other != number);
    }

    /// Schedules a wake-up of the newest configuration on the main thread.
    pub fn wake(&self) {
        if let Some((_, scheduler)) = locked(&self.schedulers).last() {
            scheduler.wake();
        }
    }

    /// Stores an agent's answer.
    pub fn put(&self, token: u64, answer: Answer) {
        locked(&self.answers).push((token, answer));
    }

    /// Takes all stored answers.
    pub fn answers(&self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut *locked(&self.answers))
    }
}

/// Converts an answer to the form that the policies take.
pub fn answered(answer: &Answer) -> Answered<'_> {
    match answer.status {
        0 => Err("an agent's answer breaks off".to_owned()),
        status => Ok((u32::from(status), &answer.body)),
    }
}
