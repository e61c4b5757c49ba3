//! `/v1/placement`: the state of the placement table, and messages that an agent relays to Redis for dispatchers and
//! operators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{MAX_NUMBER, is_amount};

/// Maximum number of object sets in `busy` and in `loads`, as in the function library.
pub const MAX_MESSAGE_SETS: usize = 1024;
/// Maximum length of an object set's name with the rest it belongs to.
const MAX_SET_BYTES: usize = 128 + 4;

/// Request body of `POST /v1/placement`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementMessage {
    /// Cluster of the table; optional.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Operation.
    pub op: PlacementOperation,
    /// Id of the dispatcher.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Generation of the dispatcher's table.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generation: String,
    /// Version of the dispatcher's table.
    #[serde(default)]
    pub version: u64,
    /// Sets that must leave their node but still have requests in flight or in doubt; at most [`MAX_MESSAGE_SETS`].
    #[serde(default)]
    pub busy: Vec<String>,
    /// Cost since the last report, by set; at most [`MAX_MESSAGE_SETS`].
    #[serde(default)]
    pub loads: BTreeMap<String, f64>,
    /// Whether a leaving dispatcher has nothing in flight or in doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// Set to move.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// Destination node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// Operations of dispatchers and operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementOperation {
    /// A dispatcher starts.
    Join,
    /// A dispatcher reports its busy sets and the load of each set.
    Report,
    /// A dispatcher stops.
    Leave,
    /// An operator declares a dispatcher dead.
    Forget,
    /// An operator moves a set.
    Move,
}

/// Response to a [`PlacementMessage`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum PlacementAnswer {
    /// To `join`: the dispatcher may use this table.
    Open {
        /// Generation of the table.
        generation: String,
        /// Version of the table.
        version: u64,
        /// How long the table may be used after the last successful message, in milliseconds; for `hold`.
        lease_ms: u64,
        /// How long a node may keep working on a request whose outcome is in doubt, in milliseconds.
        request_limit_ms: u64,
        /// "serve" or "hold".
        when_lost: String,
        /// Object sets with their states.
        entries: Vec<(String, String)>,
    },
    /// To `join`: try again later.
    Wait {
        /// Time until the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// Success; to `report`, with the changes.
    Ok {
        /// Version of the table in Redis; to `report`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        /// Changes in order: `FROM TO SET STATE SET STATE …`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        deltas: Vec<String>,
    },
    /// To `report`, if the changes since the dispatcher's version are no longer available: the whole table.
    Table {
        /// Generation of the table.
        generation: String,
        /// Version of the table.
        version: u64,
        /// Object sets with their states.
        entries: Vec<(String, String)>,
    },
    /// To `report` and `leave`: the id is unknown. The dispatcher stops admitting, and joins again under a new id.
    Unknown,
}

/// Response body of `GET /v1/placement`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlacementView {
    /// Cluster of the table.
    pub cluster: String,
    /// "serve" or "hold": what a dispatcher does after a lease without Redis. Absent from older agents.
    pub when_lost: Option<String>,
    /// Lease of a dispatcher in seconds. Absent from older agents.
    pub lease_seconds: Option<f64>,
    /// Generation of the table in Redis; empty if there is none.
    #[serde(default)]
    pub generation: String,
    /// Version of the table in Redis; 0 if there is none.
    pub version: u64,
    /// Seconds until requests are admitted.
    pub open_in_seconds: f64,
    /// Name of the keeper's agent; null if there is none.
    pub keeper: Option<String>,
    /// Epoch of the keeper.
    pub epoch: u64,
    /// Version of the table that this agent knows; 0 if none. The next three fields refer to this version.
    #[serde(default)]
    pub known_version: u64,
    /// Number of named sets: object sets with an entry of their own.
    pub named: u64,
    /// Number of entries by node; null if no table is known.
    pub nodes: Option<BTreeMap<String, u64>>,
    /// The first 100 sets being moved.
    pub moving: Vec<String>,
    /// Dispatchers that use the table.
    pub dispatchers: Vec<PlacedDispatcher>,
    /// Dispatchers that are gone and may have left requests in flight.
    pub gone: Vec<GoneDispatcher>,
    /// Last plan, for display: its reason, the imbalance before and after, and the number of changes.
    pub last_plan: Option<Value>,
}

/// A dispatcher that uses the table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlacedDispatcher {
    /// Its id.
    pub id: String,
    /// Seconds since its last message.
    pub silent_seconds: f64,
    /// Whether it has been silent for longer than its lease, which blocks moves.
    pub is_silent: bool,
    /// Version of the table that it last reported.
    pub version: u64,
}

/// A dispatcher that is gone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GoneDispatcher {
    /// Its id.
    pub id: String,
    /// Seconds since it went.
    pub since_seconds: f64,
}

impl PlacementView {
    /// Parses a response body; the error names the field.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|problem| problem.to_string())
    }
}

impl PlacementMessage {
    /// A message with this operation and all other fields empty.
    pub fn new(op: PlacementOperation) -> Self {
        PlacementMessage {
            cluster: None,
            op,
            id: String::new(),
            generation: String::new(),
            version: 0,
            busy: Vec::new(),
            loads: BTreeMap::new(),
            idle: false,
            set: String::new(),
            node: String::new(),
        }
    }

    /// Rejects values that would be read differently in Redis; the function library checks the rest.
    ///
    /// # Errors
    ///
    /// Names the field, the value found and the limit.
    pub fn check(&self) -> Result<(), String> {
        let (busy, loads) = (&self.busy, &self.loads);
        for (field, count) in [("busy", busy.len()), ("loads", loads.len())] {
            if count > MAX_MESSAGE_SETS {
                return Err(format!("{field}: {count}, maximum {MAX_MESSAGE_SETS}"));
            }
        }
        let busy = busy.iter().map(|set| ("busy", set));
        for (field, set) in busy.chain(loads.keys().map(|set| ("loads", set))) {
            let fits = (1..=MAX_SET_BYTES).contains(&set.len());
            if !fits || !set.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("{field}: {set:?} is no object set"));
            }
        }
        match loads.iter().find(|(_, cost)| !is_amount(**cost)) {
            Some((set, cost)) => Err(format!(
                "loads: {set} must be from 0 to {MAX_NUMBER:e}, is {cost}"
            )),
            None => Ok(()),
        }
    }
}
