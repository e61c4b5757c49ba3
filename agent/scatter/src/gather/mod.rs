//! `plimsoll gather`: one query to every partition, combined into one answer (docs/scatter.md). It is stateless, so
//! any number of instances can run behind a proxy.

mod answer;
mod connector;
mod metrics;
mod nodes;
mod out;
mod question;
mod reader;
mod server;
mod settings;

pub use answer::{OUTCOMES, Outcome, Summary};
pub use metrics::GatherMetrics;
pub use server::{GatherContext, serve};
pub use settings::{GatherConfig, NodeAddress, Served, reference};
