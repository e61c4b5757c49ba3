//! Findings from Envoy's admin interface.

use crate::{
    Code, Finding,
    snapshot::{Cluster, Snapshot},
};

/// Envoy's default for each circuit breaker.
const DEFAULT_LIMIT: u64 = 1024;

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for envoy in &seen.envoys {
        for cluster in &envoy.clusters {
            let at = format!("{} {}", envoy.at, cluster.name);
            found.extend(discovery(&at, cluster));
            if let Some((limit, value)) = &cluster.breaker
                && *value <= DEFAULT_LIMIT
            {
                found.push(Finding::new(
                    Code::EnvoyCircuitBreaker,
                    at,
                    format!("circuit_breakers has {limit} {value}"),
                    "set max_connections, max_pending_requests and max_requests above the bounds of all nodes together",
                ));
            }
        }
    }
    found
}

fn discovery(at: &str, cluster: &Cluster) -> Option<Finding> {
    let rises = |counts: &[u64]| counts.first() < counts.last();
    let problem = if cluster.updates.last().is_some_and(|count| *count == 0) {
        let failures = cluster.failures.last().copied().unwrap_or_default();
        format!("no agent's response was ever accepted; {failures} requests failed")
    } else if rises(&cluster.failures) && !rises(&cluster.updates) {
        "all requests to the agents fail".to_owned()
    } else if cluster.hosts == 0 {
        format!("the agents return no hosts for \"{}\"", cluster.service)
    } else {
        return None;
    };
    Some(Finding::new(
        Code::EnvoyDiscoveryFails,
        at,
        problem,
        "check that the agents run, that the agents' cluster has their HTTP addresses, and that service_name is the name of one of their services",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Envoy;

    fn told(change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        let mut cluster = Cluster {
            name: "queries".into(),
            service: "q".into(),
            hosts: 2,
            updates: vec![5, 6, 7],
            failures: vec![1, 1, 2],
            breaker: Some(("max_requests".into(), 8000)),
        };
        change(&mut cluster);
        let envoy = Envoy {
            clusters: vec![cluster],
            ..Envoy::default()
        };
        let seen = Snapshot {
            envoys: vec![envoy],
            ..Snapshot::default()
        };
        let found = findings(&seen).into_iter();
        found.map(|it| it.code.word()).collect()
    }

    #[test]
    fn a_cluster_with_hosts_that_is_answered_has_no_findings() {
        assert!(told(|_| {}).is_empty());
    }

    #[test]
    fn each_change_makes_its_finding() {
        let fails = ["envoy-discovery-fails"];
        assert_eq!(told(|it| it.updates = vec![0; 3]), fails);
        assert_eq!(told(|it| it.updates = vec![5; 3]), fails);
        assert_eq!(told(|it| it.hosts = 0), fails);
        let breaker = Some(("max_requests".to_owned(), 1024));
        let found = told(|it| it.breaker = breaker.clone());
        assert_eq!(found, ["envoy-circuit-breaker"]);
    }
}
