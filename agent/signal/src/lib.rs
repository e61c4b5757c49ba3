//! Measurements of a node: delays, jobs, host load, health, the role of its database, and temporal data.

pub mod health_probe;
pub mod host_load;
pub mod jobs;
pub mod role;
pub mod source_error;
pub mod sources;
pub mod updates;
