//! Decides what is wrong with a set-up: pure functions from a snapshot to findings.

mod clocks;
mod config;
mod envoy;
mod haproxy;
mod nodes;
mod open;
mod redis;
mod versions;

use std::collections::BTreeSet;

use crate::{Finding, snapshot::Snapshot};

type Part = fn(&Snapshot) -> Vec<Finding>;

/// All findings, sorted by kind and then by place.
pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(config) = &seen.haproxy_config {
        found.extend(config::findings(config));
    }
    let parts: [Part; 7] = [
        haproxy::findings,
        envoy::findings,
        nodes::findings,
        clocks::findings,
        redis::findings,
        versions::findings,
        open::findings,
    ];
    found.extend(parts.iter().flat_map(|part| part(seen)));
    // Report a problem of both the configuration and the process once, with the line of the configuration.
    let mut told = BTreeSet::new();
    found.retain(|it| told.insert((it.code, it.at.clone())));
    found.sort_by(|a, b| (a.code, &a.at).cmp(&(b.code, &b.at)));
    found
}
