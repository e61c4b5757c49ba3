//! Scatter-gather: one query to every partition, combined into one answer (SQMD, section 3), without I/O.
//!
//! A [`PartitionMap`] maps partitions to nodes. A [`Gathering`] takes the partitions' answers, streams of rows that
//! arrive in any order, and combines them into one stream: concatenated, merged in order, or reduced to one row. It
//! queues at most [`QUEUED`] rows per partition: a stream that is ahead waits for [`Gathering::room`]. Its report gives
//! the state of each partition. Time is passed in.

mod admission;
mod cores;
mod map;
mod merge;
mod plan;
mod reduce;
mod report;
mod value;

pub use admission::Admission;
pub use cores::Cores;
pub use map::{MapError, Partition, PartitionMap};
pub use merge::{Gathering, Offer, Step};
pub use plan::{Function, How, OrderKey, Plan, PlanError, Reduction};
pub use report::{Failure, PartitionReport, Report, State};
pub use value::{Keys, Kind, Value};

/// Maximum partitions of a map.
pub const MAX_PARTITIONS: usize = 256;
/// Maximum columns of an answer.
pub const MAX_COLUMNS: usize = 100;
/// Maximum queued rows per partition.
pub const QUEUED: usize = 4;
/// Maximum agents that a query may have come through before the last one.
pub const MAX_HOPS: usize = 3;
