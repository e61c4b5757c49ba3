//! What the controller's reasons mean, as in the dashboards.

use plimsoll_core::Reason;

/// The cause, and the effect on the bound.
pub fn in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Start => "just started",
        Reason::Open => "nothing has waited yet: not limited",
        Reason::Burst => "room for a burst, at the rate learned",
        Reason::Standing => "overload, queue stood: lowered",
        Reason::Starved => "less done with fewer: raised",
        Reason::BlindSource => "waiting that the source misses: by jobs",
        Reason::SourceLate => "source answers late: lowered",
        Reason::UnderSla => "under the target: raised",
        Reason::OverSla => "over the target: lowered",
        Reason::Rising => "under the target, slowing: lowered",
        Reason::Falling => "over the target, recovering: raised",
        Reason::LateSignal => "waiting work will be late: lowered",
        Reason::OverBound => "more inside than let in: held low",
        Reason::Stalled => "nothing ends: halved",
        Reason::Errors => "errors: lowered",
        Reason::FewSamples => "few requests: held",
        Reason::LightLoad => "light load: held",
        Reason::Recovering => "light load: drawn back up",
        Reason::Unused => "far above the load: drawn down",
        Reason::Empty => "no requests: held",
        Reason::IdleDrift => "no requests: drifts to nominal",
        Reason::SourceLost => "source lost: held",
        Reason::Mpl => "more jobs would not do more: held there",
        Reason::AtMin => "over the target: at its minimum",
        Reason::AtMax => "under the target: at its maximum",
        Reason::Fixed => "fixed by hand or configuration",
    }
}
