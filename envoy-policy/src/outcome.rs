//! Decisions on requests for a primary, and their counts.

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its set is being handed over, and the request may not wait any longer.
    Moving,
    /// This worker has no table in force.
    Suspended,
    /// The request has no name of an object set, or an invalid one.
    Name,
}

impl Reason {
    /// The value of the response header `plimsoll-reason`.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Moving => "moving",
            Reason::Suspended => "suspended",
            Reason::Name => "name",
        }
    }
}

/// Decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send it to this node and to no other, with a fencing token by which the node can refuse it if it arrives late.
    Go {
        /// Name of the node.
        node: String,
        /// Generation and version of the table. As text it sorts in the order of tables: generations do, and every
        /// version fits into 16 digits.
        fence: String,
    },
    /// Hold it; [`Primaries::again`](crate::primaries::Primaries::again) decides on it later.
    Wait,
    /// Refuse it.
    Refuse(Reason),
}

/// Numbers of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrimaryCounts {
    /// Sent to a primary.
    pub placed: u64,
    /// Held for a while because their set had no primary at first.
    pub waited: u64,
    /// Refused.
    pub refused: u64,
    /// Ended while their node may still have been at work on them.
    pub doubted: u64,
}
