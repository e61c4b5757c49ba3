//! From a service's last period to a load report.

use std::{collections::HashMap, fmt::Write};

use plimsoll_node::state::ServiceState;

use super::protocol::OrcaLoadReport;

/// An idle node: not 0, which clients take for "no report".
const MIN_UTILIZATION: f64 = 0.001;

/// Utilisation is the mean backlog of the last period over the bound, so that a client that weighs by
/// throughput over utilisation gives weights that go by bound over delay. Delay over the SLA would be no
/// utilisation: a client that weighs by it takes ever more from a node that is slow by nature, however
/// little it has to do.
///
/// Of a service that is only observed the report is empty, by which clients weigh nothing.
pub fn of(state: &ServiceState) -> OrcaLoadReport {
    if state.observes() {
        return OrcaLoadReport::default();
    }
    let decision = &state.decision;
    let (bound, mean_cost) = (decision.bound.get(), decision.mean_cost.get());
    let now = state.backlog.map_or(0.0, |backlog| backlog.get());
    let per_second = |count: u64| match state.observed_seconds {
        Some(seconds) if seconds > 0.0 => count as f64 / seconds,
        _ => 0.0,
    };
    let finished = per_second(state.finished);
    // Little's law; where nothing finished, what is there.
    let backlog = match &state.delay {
        Some(delay) if finished > 0.0 => finished * delay.mean.get() * mean_cost,
        _ => now,
    };
    let ended = state.finished.saturating_add(state.failed);
    OrcaLoadReport {
        rps_fractional: per_second(ended),
        eps: per_second(state.failed),
        named_metrics: HashMap::from([
            ("plimsoll.backlog".to_owned(), now),
            ("plimsoll.bound".to_owned(), bound),
        ]),
        application_utilization: (backlog / bound).max(MIN_UTILIZATION),
    }
}

/// As the header `endpoint-load-metrics` has it. Without named metrics, since older readers drop a
/// report with a key they do not know.
pub fn text(report: &OrcaLoadReport) -> String {
    let mut text = String::from("TEXT ");
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "application_utilization={:.4},rps_fractional={:.3},eps={:.3}",
        report.application_utilization, report.rps_fractional, report.eps
    );
    text
}
