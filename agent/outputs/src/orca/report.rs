//! Builds a load report from a service's last period.

use std::{collections::HashMap, fmt::Write};

use plimsoll_node::state::ServiceState;

use super::protocol::OrcaLoadReport;

/// Utilisation of an idle node. Not 0, which clients interpret as "no report".
const MIN_UTILIZATION: f64 = 0.001;

/// Utilisation is the mean backlog of the last period over the bound. A client that uses throughput over utilisation
/// as the weight thus gets weights proportional to bound over delay. Delay over SLA is no utilisation: such a client
/// would take ever more traffic from an inherently slow node, however idle.
///
/// In observe mode the report is empty, so that clients derive no weight.
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
    // Little's law; the current jobs if nothing finished.
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

/// The report as the header `endpoint-load-metrics`. Without named metrics, since older readers reject reports with
/// unknown keys.
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
