//! `GET /v1/placement`: how the table of primaries is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlacementView {
    /// Whose table.
    pub cluster: String,
    /// "serve" or "hold": what a dispatcher does that cannot reach Redis for a lease. Agents before it do not say.
    pub when_lost: Option<String>,
    /// A dispatcher's lease, seconds. Agents before it do not say.
    pub lease_seconds: Option<f64>,
    /// Of the table in Redis; empty where there is none.
    #[serde(default)]
    pub generation: String,
    /// Of the table in Redis; 0 where there is none.
    pub version: u64,
    /// Nobody is let in before, seconds.
    pub open_in_seconds: f64,
    /// The agent that is; null while nobody is.
    pub keeper: Option<String>,
    /// The keeper's.
    pub epoch: u64,
    /// The version that this agent knows, 0 where it knows none; as the next three.
    #[serde(default)]
    pub known_version: u64,
    /// Object sets with an entry of their own.
    pub named: u64,
    /// Entries by node; null where no table is known.
    pub nodes: Option<BTreeMap<String, u64>>,
    /// Sets on their way, the first 100.
    pub moving: Vec<String>,
    /// Who acts on the table.
    pub dispatchers: Vec<PlacedDispatcher>,
    /// Who may have left requests in flight.
    pub gone: Vec<GoneDispatcher>,
    /// For people: the reason, the unevenness before and after, and the number of changes.
    pub last_plan: Option<Value>,
}

/// A dispatcher that acts on the table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlacedDispatcher {
    /// Its id.
    pub id: String,
    /// Since it was heard.
    pub silent_seconds: f64,
    /// For longer than the lease, so that nothing moves.
    pub is_silent: bool,
    /// The version that it told.
    pub version: u64,
}

/// A dispatcher that is gone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GoneDispatcher {
    /// Its id.
    pub id: String,
    /// Since when, seconds.
    pub since_seconds: f64,
}

impl PlacementView {
    /// Reads an answer; what is wrong with it otherwise.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|problem| problem.to_string())
    }
}
