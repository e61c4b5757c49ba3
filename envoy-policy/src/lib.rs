//! Plimsoll's policies for Envoy, without Envoy: whoever calls passes in time, what requests are, and what agents answer.
//!
//! A worker has an [`engine::Engine`] a cluster, which admits requests and counts their attempts, and a
//! [`worker::Worker`], which tells of it. One [`exchanger::Exchanger`] a process talks to agents for all workers. Where
//! primaries are named a worker has [`primaries::Primaries`] and a [`primary_link::PrimaryLink`].

pub mod call;
pub mod config;
pub mod ending;
pub mod engine;
pub mod exchanger;
pub mod naming;
mod outcome;
pub mod part;
pub mod primaries;
pub mod primary_link;
pub mod random;
pub mod refusal;
pub mod statistics;
pub mod told;
pub mod worker;
