//! `POST /v1/partition-query`: a query to one partition.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The request body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionQuery<'a> {
    /// Partition to query.
    pub partition: Cow<'a, str>,
    /// Name of a configured query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<Cow<'a, str>>,
    /// SQL text, instead of a named query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<Cow<'a, str>>,
    /// Parameters, as JSON values.
    #[serde(default)]
    pub parameters: Cow<'a, [Value]>,
    /// Maximum number of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Seconds that the caller waits.
    pub deadline_seconds: f64,
}
