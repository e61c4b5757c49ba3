//! A finding, and what all of its kind have in common.

use serde::{Serialize, Serializer};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// Where: a server, a file and line, an address.
    pub at: String,
    /// What was found.
    pub found: String,
    /// What to do.
    pub fix: String,
}

/// Kinds of findings. Their words are stable: scripts go by them.
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
    /// All of them, in the order of the documentation.
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

    /// Its word, also the anchor in docs/doctor.md.
    pub fn word(self) -> &'static str {
        self.facts().0
    }

    /// Why it matters, in a sentence.
    pub fn why(self) -> &'static str {
        self.facts().1
    }

    /// The page that says more.
    pub fn docs(self) -> String {
        format!("docs/doctor.md#{}", self.word())
    }

    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Code::AgentCheckMissing => (
                "agent-check-missing",
                "Beside servers that are held to their bounds, this one gets its full weight and no limit.",
            ),
            Code::AgentCheckOff => (
                "agent-check-off",
                "HAProxy no longer asks the agent, and the last weight, limit and state stay in force.",
            ),
            Code::AgentSendMissing => (
                "agent-send-missing",
                "Where any server of the process sends a line, one that sends none waits 200 ms for each answer, \
                 and gets none within a shorter agent-inter.",
            ),
            Code::AgentSilent => (
                "agent-silent",
                "HAProxy keeps the last weight, limit and state of an agent that no longer answers, for ever.",
            ),
            Code::AgentUnknownIdentity => (
                "agent-unknown-identity",
                "The agent answers an empty line, which changes nothing, so the server is not controlled.",
            ),
            Code::AgentOfAnotherServer => (
                "agent-of-another-server",
                "The server's weight and limit are those of another one, and overload here changes nothing.",
            ),
            Code::WeightSmall => (
                "weight-small",
                "Agents answer in percent of this weight, and what comes out below 1 is 0: the server is drained.",
            ),
            Code::BalanceIgnoresWeights => (
                "balance-ignores-weights",
                "This algorithm takes no weight but 0 and 100 %, so only maxconn holds an overloaded server.",
            ),
            Code::TimeoutQueueUnset => (
                "timeout-queue-unset",
                "Requests wait in HAProxy for as long as `timeout connect` allows, and that is delay for clients.",
            ),
            Code::MaxconnNotFollowing => (
                "maxconn-not-following",
                "The server gets more, or less, than its agent found that it can do within the SLA.",
            ),
            Code::EnvoyDiscoveryFails => (
                "envoy-discovery-fails",
                "Envoy keeps the weights and the refused fraction that it has, or has no hosts at all.",
            ),
            Code::EnvoyCircuitBreaker => (
                "envoy-circuit-breaker",
                "Envoy's own limit for the whole cluster refuses work that the nodes could do.",
            ),
            Code::SourceFails => (
                "source-fails",
                "Without measurements the bound stays at what was learned, whatever happens to the node.",
            ),
            Code::SourceBlind => (
                "source-blind",
                "Requests wait where the service's own histogram does not look, so clients wait longer than it shows.",
            ),
            Code::ClocksApart => (
                "clocks-apart",
                "Log lines are matched by time: those of a proxy 10 s behind the others are dropped as late; \
                 and no two logs or graphs agree.",
            ),
            Code::RedisCannotHold => (
                "redis-cannot-hold",
                "With placement.when_lost = \"hold\" no agent becomes keeper, so that no object set moves or fails over.",
            ),
            Code::RedisLibrary => (
                "redis-library",
                "Agents do not join a ring or table whose function library is newer than theirs, and replace an older one.",
            ),
            Code::VersionsDiffer => (
                "versions-differ",
                "Programs of different versions are tested together for the time of an upgrade only.",
            ),
            Code::VersionUnsupported => (
                "version-unsupported",
                "What Plimsoll needs is not in this version, or not tested with it.",
            ),
            Code::OpenToEverybody => (
                "open-to-everybody",
                "There is no password on this port: whoever reaches it can read, and mostly change, what the proxies do.",
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
