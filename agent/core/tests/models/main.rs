//! Exhaustive checks of small configurations: every order of events within bounds, by stateright.
#![allow(clippy::unwrap_used, clippy::panic)]

mod handover;
mod shares;
#[path = "../vectors/mod.rs"]
mod vectors;

use std::{fmt::Debug, hash::Hash, time::Instant};

use stateright::{Checker, HasDiscoveries, Model};

/// Checks that all states keep what the model promises.
fn holds<M>(model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let checker = model.checker().spawn_bfs().join();
    show(&checker, began);
    for (name, path) in checker.discoveries() {
        let property = checker.model().property(name);
        if property.expectation.discovery_is_failure() {
            panic!("not so: {name}: {:?}", path.into_actions());
        }
    }
    checker.assert_properties();
}

/// Checks that a promise is broken in some state.
fn is_broken<M>(model: M, promise: &'static str)
where
    M: Debug + Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let found = HasDiscoveries::AnyOf([promise].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    show(&checker, began);
    match checker.discovery(promise) {
        Some(path) => println!("{:?}", path.into_actions()),
        None => panic!("{:?}: it still is so: {promise}", checker.model()),
    }
}

fn show<M>(checker: &impl Checker<M>, began: Instant)
where
    M: Model,
{
    println!(
        "{} states, {} of them different, {} steps deep, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
}
