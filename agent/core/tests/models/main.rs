//! Exhaustive checks of small configurations: every order of events within bounds, by stateright.
#![allow(clippy::unwrap_used, clippy::panic)]

mod handover;
mod shares;
#[path = "../vectors/mod.rs"]
mod vectors;
