//! Scatter-gather over partitioned data: a node's partitions, partition maps, and gathers (docs/scatter.md,
//! docs/partitioning.md).

pub mod answer;
pub mod client;
pub mod gather;
pub mod map;
pub mod partition;
