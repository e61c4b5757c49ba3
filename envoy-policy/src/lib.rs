//! Plimsoll's policies for Envoy, independent of Envoy: the caller passes in the time, the requests and the agents'
//! answers.
//!
//! A worker has one [`engine::Engine`] per cluster, which admits requests and counts their attempts, and a
//! [`worker::Worker`], which reports on it. One [`exchanger::Exchanger`] per process communicates with agents for all
//! workers. To name primaries a worker has [`primaries::Primaries`] and a [`primary_link::PrimaryLink`].

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
