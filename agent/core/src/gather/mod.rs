//! One query to every partition, and one answer made of theirs (SQMD, section 3), without I/O.
//!
//! A [`PartitionMap`] says which node serves which partition. A [`Gathering`] takes the partitions' answers, streams of rows that
//! arrive in any order, and makes one stream of them: concatenated, merged in order, or reduced to one row. It holds at
//! most [`QUEUED`] rows of a partition: a stream that is ahead waits until [`Gathering::room`] is there for it. It says in the end how it was
//! with each partition. Time is passed in.

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

/// Partitions, at most.
pub const MAX_PARTITIONS: usize = 256;
/// Columns of an answer, at most.
pub const MAX_COLUMNS: usize = 100;
/// Rows of a partition that are held, at most.
pub const QUEUED: usize = 4;
/// Agents that a question may have come through on its way to the last one.
pub const MAX_HOPS: usize = 3;
