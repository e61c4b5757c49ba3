//! Findings about the agents' sources.

use crate::{Code, Finding, snapshot::Snapshot};

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for agent in &seen.agents {
        for (name, service) in &agent.services {
            let at = format!("{} {name}", agent.at);
            if let Some(error) = &service.source_error {
                found.push(Finding::new(
                    Code::SourceFails,
                    &at,
                    format!("its source fails: {error}"),
                    "run plimsoll agent --check-config --probe on the node; docs/sources.md lists the requirements of each source",
                ));
            }
            if let Some(ratio) = service.blind {
                found.push(Finding::new(
                    Code::SourceBlind,
                    &at,
                    format!("the delay computed as jobs over throughput is {ratio:.1} times the source's delay"),
                    "measure where requests wait: use HAProxy's log as source, or a histogram that starts when a request is accepted; docs/load-and-jobs.md#jobs",
                ));
            }
        }
    }
    found
}
