//! `POST /v1/partition-query`: a query in one partition.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionQuery<'a> {
    /// Whose rows.
    pub partition: Cow<'a, str>,
    /// A query by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<Cow<'a, str>>,
    /// In its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<Cow<'a, str>>,
    /// Values that JSON has.
    #[serde(default)]
    pub parameters: Cow<'a, [Value]>,
    /// No more rows than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The caller waits for so long.
    pub deadline_seconds: f64,
}
