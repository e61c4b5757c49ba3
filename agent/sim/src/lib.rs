//! A discrete-event simulator of clients, proxies and nodes, on the decisions of `plimsoll-core`.
//!
//! One run is one policy on one seed. It repeats bit for bit: time is in whole nanoseconds, events of
//! one moment keep their order, and clients draw from generators of their own, so that every policy
//! gets the same work.

mod clients;
mod events;
mod measure;
mod names;
mod node;
mod policy;
mod report;
mod scenario;
mod summary;
mod world;

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

pub use measure::{Outcome, Second};
pub use names::NAMES as POLICIES;
pub use report::section;
pub use scenario::{Change, NAMES as SCENARIOS, Phase, Scenario, ScenarioError, State};
use summary::summarise;
pub use summary::{PolicySummary, Summary};

/// Runs one policy of a scenario on one seed.
pub fn run(scenario: &Scenario, policy: &str, seed: u64) -> Result<Outcome, ScenarioError> {
    world::World::new(scenario, policy, seed).map(world::World::run)
}

/// Runs a scenario's policies on consecutive seeds from `first_seed` on, on all processors. `progress` is called after
/// each run with the numbers of completed and of all runs.
pub fn run_all(
    scenario: &Scenario,
    first_seed: u64,
    seeds: u32,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Summary, ScenarioError> {
    let policies = scenario.policies.iter();
    let jobs: Vec<(&str, u64)> = policies
        .flat_map(|policy| (0..u64::from(seeds)).map(|i| (policy.as_str(), first_seed + i)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((policy, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(scenario, policy, *seed).map(|outcome| (*policy, *seed, outcome));
            let mut done = done
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if outcome.is_err() {
                next.store(jobs.len(), Ordering::Relaxed);
            }
            done.push(outcome);
            progress(done.len(), jobs.len());
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    let done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut outcomes = Vec::with_capacity(done.len());
    for outcome in done {
        outcomes.push(outcome?);
    }
    let order = |policy: &str| scenario.policies.iter().position(|known| known == policy);
    outcomes.sort_by_key(|(policy, seed, _)| (order(policy), *seed));
    let outcomes: Vec<Outcome> = outcomes
        .into_iter()
        .map(|(_, _, outcome)| outcome)
        .collect();
    Ok(summarise(scenario, first_seed, seeds, &outcomes))
}
