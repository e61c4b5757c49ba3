//! One query to every partition, and one answer made of theirs (docs/scatter.md). It keeps nothing, so
//! that any number of them can stand behind a proxy.

mod answer;
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
pub use settings::{GatherConfig, NodeAddress, REFERENCE, Served};
