//! Reasons of a bound's change or hold.

use serde::Serialize;

/// Rule that set the bound in one step. `as_str` is the value of the `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No step has been taken yet.
    Start,
    /// No queue has been seen, so the capacity is unknown and nothing is limited.
    Open,
    /// Load line: the backlog that finishes within the target at the learned rate, for bursts.
    Burst,
    /// Standing queue under overload: lowered to the fewest jobs that keep the node busy.
    Standing,
    /// Throughput fell with the bound: raised at once.
    Starved,
    /// The source measures less delay than jobs and throughput imply: the larger one counts.
    BlindSource,
    /// The source did not respond in time, like an overloaded service: lowered to what is known to finish in time.
    SourceLate,
    /// Delay below the target: the law raised the bound.
    UnderSla,
    /// Delay above the target: the law lowered the bound.
    OverSla,
    /// Within the target but getting slower: lowered by the proportional term.
    Rising,
    /// Over the target but getting faster: raised by the proportional term.
    Falling,
    /// Finished requests are in time, but the backlog or the oldest unfinished request predicts later ones.
    LateSignal,
    /// The backlog exceeds the bound: lowered no further than a share of what finishes in time.
    OverBound,
    /// Requests wait and none finished: lowered as if the delay were the wait so far.
    Stalled,
    /// More than the allowed share of requests failed.
    Errors,
    /// Too few requests finished for the objective: held.
    FewSamples,
    /// The backlog was well below the bound, so the bound did not cause the delay: held.
    LightLoad,
    /// As light load, but below the nominal bound: drawn towards it, within the headroom over the
    /// recent peak backlog.
    Recovering,
    /// The bound was too far above the recent peak backlog: drawn towards it.
    Unused,
    /// The node was empty: held for a while.
    Empty,
    /// The node was empty for long: drifts to the nominal bound, so that the node is probed again.
    IdleDrift,
    /// The source gave no observation: the bound is held, but no higher than what last finished in time.
    SourceLost,
    /// More jobs would not increase throughput: at the multiprogramming level.
    Mpl,
    /// The law wanted less than the minimum bound.
    AtMin,
    /// The law wanted more than the maximum bound.
    AtMax,
    /// Set by the `fixed` law or by an operator.
    Fixed,
}

impl Reason {
    /// Every reason, in the order of the enum: the closed set of label values.
    pub const ALL: [Reason; 26] = [
        Reason::Start,
        Reason::Open,
        Reason::Burst,
        Reason::Standing,
        Reason::Starved,
        Reason::BlindSource,
        Reason::SourceLate,
        Reason::UnderSla,
        Reason::OverSla,
        Reason::Rising,
        Reason::Falling,
        Reason::LateSignal,
        Reason::OverBound,
        Reason::Stalled,
        Reason::Errors,
        Reason::FewSamples,
        Reason::LightLoad,
        Reason::Recovering,
        Reason::Unused,
        Reason::Empty,
        Reason::IdleDrift,
        Reason::SourceLost,
        Reason::Mpl,
        Reason::AtMin,
        Reason::AtMax,
        Reason::Fixed,
    ];

    /// The label value, in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Start => "start",
            Reason::Open => "open",
            Reason::Burst => "burst",
            Reason::Standing => "standing",
            Reason::Starved => "starved",
            Reason::BlindSource => "blind_source",
            Reason::SourceLate => "source_late",
            Reason::UnderSla => "under_sla",
            Reason::OverSla => "over_sla",
            Reason::Rising => "rising",
            Reason::Falling => "falling",
            Reason::LateSignal => "late_signal",
            Reason::OverBound => "over_bound",
            Reason::Stalled => "stalled",
            Reason::Errors => "errors",
            Reason::FewSamples => "few_samples",
            Reason::LightLoad => "light_load",
            Reason::Recovering => "recovering",
            Reason::Unused => "unused",
            Reason::Empty => "empty",
            Reason::IdleDrift => "idle_drift",
            Reason::SourceLost => "source_lost",
            Reason::Mpl => "mpl",
            Reason::AtMin => "at_min",
            Reason::AtMax => "at_max",
            Reason::Fixed => "fixed",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
