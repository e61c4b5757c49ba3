//! What an agent can see of its node: delays, jobs, the host's load, health, its database's role, and temporal data.

pub mod health_probe;
pub mod host_load;
pub mod jobs;
pub mod role;
pub mod source_error;
pub mod sources;
pub mod updates;
