//! The service as its clients see it, over SQLite and over PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capacity;
mod feed;
mod http;
mod ledger;
mod postgres;
mod primaries;
mod replication;
mod support;
