//! Findings and their kinds.

use serde::{Serialize, Serializer};

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// Place: a server, a file and line, or an address.
    pub at: String,
    /// The value found.
    pub found: String,
    /// How to fix it.
    pub fix: String,
}

/// Kinds of findings. Their codes are stable, since scripts use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // `word` and `why` say it.
pub enum Code {
    AgentCheckMissing,
    AgentCheckOff,
    AgentSendMissing,
    AgentSilent,
    AgentUnknownIdentity,
    AgentOfAnotherServer,
    WeightSmall,
    BalanceIgnoresWeights,
    TimeoutQueueUnset,
    MaxconnNotFollowing,
    EnvoyDiscoveryFails,
    EnvoyCircuitBreaker,
    SourceFails,
    SourceBlind,
    ClocksApart,
    RedisCannotHold,
    RedisLibrary,
    VersionsDiffer,
    VersionUnsupported,
    OpenToEverybody,
}

impl Code {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Code; 20] = [
        Code::AgentCheckMissing,
        Code::AgentCheckOff,
        Code::AgentSendMissing,
        Code::AgentSilent,
        Code::AgentUnknownIdentity,
        Code::AgentOfAnotherServer,
        Code::WeightSmall,
        Code::BalanceIgnoresWeights,
        Code::TimeoutQueueUnset,
        Code::MaxconnNotFollowing,
        Code::EnvoyDiscoveryFails,
        Code::EnvoyCircuitBreaker,
        Code::SourceFails,
        Code::SourceBlind,
        Code::ClocksApart,
        Code::RedisCannotHold,
        Code::RedisLibrary,
        Code::VersionsDiffer,
        Code::VersionUnsupported,
        Code::OpenToEverybody,
    ];

    /// The code, also the anchor in docs/doctor.md.
    pub fn word(self) -> &'static str {
        self.facts().0
    }

    /// Why it matters, as a sentence.
    pub fn why(self) -> &'static str {
        self.facts().1
    }

    /// The page with more information.
    pub fn docs(self) -> String {
        format!("docs/doctor.md#{}", self.word())
    }

    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Code::AgentCheckMissing => (
                "agent-check-missing",
                "Next to servers that are limited to their bounds, this one gets its full weight and no limit.",
            ),
            Code::AgentCheckOff => (
                "agent-check-off",
                "HAProxy no longer polls the agent, and the last weight, limit and state stay in force.",
            ),
            Code::AgentSendMissing => (
                "agent-send-missing",
                "If any server of the process sends a line, one that sends none waits 200 ms for each answer, \
                 and gets no answer if agent-inter is shorter.",
            ),
            Code::AgentSilent => (
                "agent-silent",
                "HAProxy keeps the last weight, limit and state of an agent that no longer answers, forever.",
            ),
            Code::AgentUnknownIdentity => (
                "agent-unknown-identity",
                "The agent answers with an empty line, which changes nothing, so the server is not controlled.",
            ),
            Code::AgentOfAnotherServer => (
                "agent-of-another-server",
                "The server gets the weight and limit of another one, and its own overload has no effect.",
            ),
            Code::WeightSmall => (
                "weight-small",
                "Agents answer in percent of this weight, and a result below 1 becomes 0: the server is drained.",
            ),
            Code::BalanceIgnoresWeights => (
                "balance-ignores-weights",
                "This algorithm accepts only the weights 0 and 100 %, so only maxconn limits an overloaded server.",
            ),
            Code::TimeoutQueueUnset => (
                "timeout-queue-unset",
                "Requests wait in HAProxy for as long as `timeout connect` allows, which clients see as delay.",
            ),
            Code::MaxconnNotFollowing => (
                "maxconn-not-following",
                "The server gets more, or less, work than it can do within the SLA according to its agent.",
            ),
            Code::EnvoyDiscoveryFails => (
                "envoy-discovery-fails",
                "Envoy keeps its current weights and refused fraction, or has no hosts at all.",
            ),
            Code::EnvoyCircuitBreaker => (
                "envoy-circuit-breaker",
                "Envoy's own limit for the whole cluster refuses work that the nodes could do.",
            ),
            Code::SourceFails => (
                "source-fails",
                "Without measurements the bound stays at its learned value, whatever happens to the node.",
            ),
            Code::SourceBlind => (
                "source-blind",
                "Requests wait before the service's own histogram starts to measure, so clients wait longer than it shows.",
            ),
            Code::ClocksApart => (
                "clocks-apart",
                "Log lines are matched by time: those of a proxy 10 s behind the others are dropped as late; \
                 and logs and graphs of different hosts do not line up.",
            ),
            Code::RedisCannotHold => (
                "redis-cannot-hold",
                "With placement.when_lost = \"hold\" no agent becomes keeper, so no object set moves or fails over.",
            ),
            Code::RedisLibrary => (
                "redis-library",
                "Agents do not join a ring or table whose function library is newer than theirs, and replace an older one.",
            ),
            Code::VersionsDiffer => (
                "versions-differ",
                "Different versions are tested together only for the duration of an upgrade.",
            ),
            Code::VersionUnsupported => (
                "version-unsupported",
                "This version lacks something that Plimsoll needs, or is not tested with it.",
            ),
            Code::OpenToEverybody => (
                "open-to-everybody",
                "This port has no password: anyone who can reach it can read, and usually change, what the proxies do.",
            ),
        }
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl Finding {
    pub(crate) fn new(
        code: Code,
        at: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Finding {
            code,
            at: at.into(),
            found: found.into(),
            fix: fix.into(),
        }
    }
}
