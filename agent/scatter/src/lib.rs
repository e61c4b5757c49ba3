//! One query to every part of the data, and one answer made of theirs: a node's partitions, maps of them, and gathers
//! (docs/scatter.md, docs/partitioning.md).

pub mod client;
pub mod gather;
pub mod map;
pub mod partition;
