//! How the main thread is called for a cluster, and what it finds then.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use envoy_abi::{Answer, ConfigScheduler, Configuration};
use envoy_policy::call::{Answered, Request};

use crate::{registry::wake, system::locked};

/// Envoy numbers each configuration's calls from the same number on; these bits are theirs.
const CALLS: u32 = 40;

/// Tells the configurations of a process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u64);

impl Number {
    /// One that no other has.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Number(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Of a configuration's call; no other call of the process has it.
    pub fn token(self, call: u64) -> u64 {
        self.0 << CALLS | call
    }

    /// Calls an agent.
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
    /// The newest last.
    schedulers: Mutex<Vec<(Number, ConfigScheduler)>>,
    /// Answers of agents that are not looked at yet, by the tokens of their calls. Envoy may answer a call before it
    /// returns, while its caller holds locks.
    answers: Mutex<Vec<(u64, Answer)>>,
}

impl Configurations {
    /// One more, which is to be woken from now on.
    pub fn join(&self, number: Number, configuration: &Configuration) -> Result<(), String> {
        if !configuration.is_validation() {
            wake()?;
            locked(&self.schedulers).push((number, configuration.scheduler()));
        }
        Ok(())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        locked(&self.schedulers).is_empty()
    }

    /// It goes.
    pub fn leave(&self, number: Number) {
        locked(&self.schedulers).retain(|(other, _)| *other != number);
    }

    /// The newest is to be woken, on the main thread.
    pub fn wake(&self) {
        if let Some((_, scheduler)) = locked(&self.schedulers).last() {
            scheduler.wake();
        }
    }

    /// An agent's answer has come.
    pub fn put(&self, token: u64, answer: Answer) {
        locked(&self.answers).push((token, answer));
    }

    /// The answers that have come since the last time.
    pub fn answers(&self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut *locked(&self.answers))
    }
}

/// An answer, as the policies take it.
pub fn answered(answer: &Answer) -> Answered<'_> {
    match answer.status {
        0 => Err("an agent's answer breaks off".to_owned()),
        status => Ok((u32::from(status), &answer.body)),
    }
}
