//! `/v1/placement`: how the table of primaries is, and what dispatchers and operators have an agent carry to Redis.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{MAX_NUMBER, is_amount};

/// Object sets in `busy`, and in `loads`, as in the function library.
pub const MAX_MESSAGE_SETS: usize = 1024;
/// Bytes of the name of an object set, with the rest that it is in.
const MAX_SET_BYTES: usize = 128 + 4;

/// A body of `POST /v1/placement`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementMessage {
    /// Whose table; may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What is asked for.
    pub op: PlacementOperation,
    /// The dispatcher.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Of the table that the dispatcher has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generation: String,
    /// Of the table that the dispatcher has.
    #[serde(default)]
    pub version: u64,
    /// Sets that are to leave their node and cannot yet; at most [`MAX_MESSAGE_SETS`].
    #[serde(default)]
    pub busy: Vec<String>,
    /// Cost since the last report, by set; at most [`MAX_MESSAGE_SETS`].
    #[serde(default)]
    pub loads: BTreeMap<String, f64>,
    /// A dispatcher that leaves has nothing in flight or in doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// The set to be moved.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// The node that it is moved to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// What a dispatcher or an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementOperation {
    /// A dispatcher begins.
    Join,
    /// A dispatcher reports what is busy and what came.
    Report,
    /// A dispatcher ends.
    Leave,
    /// An operator declares a dispatcher dead.
    Forget,
    /// An operator moves a set.
    Move,
}

/// The answer to a [`PlacementMessage`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum PlacementAnswer {
    /// To `join`: the dispatcher acts on this table.
    Open {
        /// Of the table.
        generation: String,
        /// Of the table.
        version: u64,
        /// How long the table may be used after the last answered message, in milliseconds; for `hold`.
        lease_ms: u64,
        /// How long a node may work on a request that ended in doubt, in milliseconds.
        request_limit_ms: u64,
        /// "serve" or "hold".
        when_lost: String,
        /// Pairs of set and state.
        entries: Vec<(String, String)>,
    },
    /// To `join`: not yet.
    Wait {
        /// Until the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// It is done; to `report`, with what changed.
    Ok {
        /// Of the table in Redis; to `report`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        /// `FROM TO SET STATE SET STATE …`, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        deltas: Vec<String>,
    },
    /// To `report`, if the changes since the dispatcher's version are no longer known.
    Table {
        /// Of the table.
        generation: String,
        /// Of the table.
        version: u64,
        /// Pairs of set and state.
        entries: Vec<(String, String)>,
    },
    /// To `report` and `leave`: there is no dispatcher of this id. It admits nothing, and joins again under a new one.
    Unknown,
}

/// The answer of `GET /v1/placement`.
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

impl PlacementMessage {
    /// A message of this kind that says nothing else.
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

    /// What would mean something else in Redis than it does here; the function library checks the rest.
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
