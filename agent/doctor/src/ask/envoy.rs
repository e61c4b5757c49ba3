//! Queries Envoy's admin interface.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use plimsoll_net::{HttpUrl, get};
use serde::{Deserialize, de::DeserializeOwned};

use super::shown;
use crate::snapshot::{Cluster, Envoy};

const MAX_BYTES: usize = 32 << 20;

#[derive(Deserialize)]
struct ServerInfo {
    version: String,
}

#[derive(Deserialize)]
struct Clusters {
    #[serde(default)]
    cluster_statuses: Vec<ClusterStatus>,
}

#[derive(Deserialize)]
struct ClusterStatus {
    name: String,
    eds_service_name: Option<String>,
    #[serde(default)]
    host_statuses: Vec<serde::de::IgnoredAny>,
    circuit_breakers: Option<Breakers>,
}

#[derive(Deserialize)]
struct Breakers {
    #[serde(default)]
    thresholds: Vec<Threshold>,
}

/// Envoy omits values of 0, and the priority if it is the default.
#[derive(Deserialize)]
struct Threshold {
    priority: Option<String>,
    #[serde(default)]
    max_connections: u64,
    #[serde(default)]
    max_pending_requests: u64,
    #[serde(default)]
    max_requests: u64,
}

#[derive(Deserialize)]
struct Stats {
    #[serde(default)]
    stats: Vec<Stat>,
}

/// Histograms have no name, and none is requested.
#[derive(Deserialize)]
struct Stat {
    name: Option<String>,
    value: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Dump {
    #[serde(default)]
    configs: Vec<Bootstrap>,
}

#[derive(Deserialize)]
struct Bootstrap {
    bootstrap: serde_json::Value,
}

#[derive(Deserialize)]
struct Configured {
    #[serde(default)]
    configs: Vec<ConfiguredCluster>,
}

#[derive(Deserialize)]
struct ConfiguredCluster {
    cluster: serde_json::Value,
}

pub async fn ask(url: HttpUrl, patience: Duration) -> (String, Result<Envoy, String>) {
    let at = url.authority.clone();
    let answer = heard(&url, patience).await;
    (at, answer)
}

async fn heard(url: &HttpUrl, patience: Duration) -> Result<Envoy, String> {
    let info: ServerInfo = json(url, "/server_info", patience).await?;
    let clusters: Clusters = json(url, "/clusters?format=json", patience).await?;
    let mut by_rest = BTreeSet::new();
    for kind in ["static_clusters", "dynamic_active_clusters"] {
        let path = format!("/config_dump?resource={kind}");
        let dump: Configured = json(url, &path, patience).await?;
        by_rest.extend(dump.configs.into_iter().filter_map(discovered_by_rest));
    }
    let stats: Stats = json(url, "/stats?filter=update_&format=json", patience).await?;
    let dump: Dump = json(url, "/config_dump?mask=bootstrap.admin", patience).await?;
    let version = info.version.split('/').nth(1).unwrap_or(&info.version);
    Ok(Envoy {
        at: shown(&url.authority),
        version: shown(version),
        admin: admin(&dump),
        clusters: discovered(clusters, &by_rest, &stats),
    })
}

async fn json<T: DeserializeOwned>(
    url: &HttpUrl,
    path: &str,
    patience: Duration,
) -> Result<T, String> {
    let url = HttpUrl {
        path: path.to_owned(),
        ..url.clone()
    };
    let answer = get(&url, patience, MAX_BYTES).await;
    let (status, body) = answer.map_err(|error| error.to_string())?;
    if status != 200 {
        return Err(format!("{path} answers with status {status}"));
    }
    serde_json::from_slice(&body)
        .map_err(|error| format!("{path} is not what Envoy's admin answers: {error}"))
}

fn admin(dump: &Dump) -> Option<String> {
    let bootstrap = &dump.configs.first()?.bootstrap;
    let address = bootstrap.pointer("/admin/address/socket_address")?;
    let host = address.get("address")?.as_str()?;
    let port = address.get("port_value")?.as_u64()?;
    Some(shown(&match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }))
}

/// The cluster's name if it uses REST discovery: agents support no other protocol, and little else uses it.
fn discovered_by_rest(found: ConfiguredCluster) -> Option<String> {
    let kind = found
        .cluster
        .pointer("/eds_cluster_config/eds_config/api_config_source/api_type")?;
    let name = found.cluster.get("name")?.as_str()?;
    (kind.as_str() == Some("REST")).then(|| name.to_owned())
}

fn discovered(clusters: Clusters, by_rest: &BTreeSet<String>, stats: &Stats) -> Vec<Cluster> {
    let counts: HashMap<&str, u64> = stats
        .stats
        .iter()
        .filter_map(|stat| Some((stat.name.as_deref()?, stat.value.as_ref()?.as_u64()?)))
        .collect();
    let cluster = |status: ClusterStatus| {
        // Without a service name it is the cluster's name.
        let service = status.eds_service_name.as_ref().unwrap_or(&status.name);
        let count = |what: &str| {
            let name = format!("cluster.{}.{what}", status.name);
            counts.get(name.as_str()).copied().unwrap_or_default()
        };
        Cluster {
            updates: vec![count("update_success")],
            failures: vec![count("update_failure") + count("update_rejected")],
            breaker: status.circuit_breakers.as_ref().and_then(smallest),
            name: shown(&status.name),
            service: shown(service),
            hosts: status.host_statuses.len(),
        }
    };
    clusters
        .cluster_statuses
        .into_iter()
        .filter(|status| by_rest.contains(&status.name))
        .map(cluster)
        .collect()
}

/// The smallest limit for requests of the default priority.
fn smallest(breakers: &Breakers) -> Option<(String, u64)> {
    let is_default = |it: &&Threshold| it.priority.as_deref().is_none_or(|it| it == "DEFAULT");
    let threshold = breakers.thresholds.iter().find(is_default)?;
    let limits = [
        ("max_requests", threshold.max_requests),
        ("max_connections", threshold.max_connections),
        ("max_pending_requests", threshold.max_pending_requests),
    ];
    let least = limits.into_iter().min_by_key(|(_, value)| *value)?;
    Some((least.0.to_owned(), least.1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let clusters = r#"{"cluster_statuses": [
            {"name": "queries", "eds_service_name": "q", "host_statuses": [{"weight": 1}, {}], "circuit_breakers":
             {"thresholds": [{"priority": "HIGH"}, {"max_connections": 9000, "max_pending_requests": 1024, "max_requests": 9000}]}},
            {"name": "static"}]}"#;
        let stats = r#"{"stats": [{"name": "cluster.queries.update_success", "value": 7}, {"histograms": {}},
            {"name": "cluster.queries.update_failure", "value": 2}, {"name": "cluster.queries.update_rejected", "value": 1}]}"#;
        let dump = r#"{"configs": [{"cluster": {"name": "static"}}, {"cluster": {"name": "queries", "eds_cluster_config":
            {"eds_config": {"api_config_source": {"api_type": "REST"}}}}}]}"#;
        let dump: Configured = serde_json::from_str(dump).unwrap();
        let by_rest: BTreeSet<_> = dump
            .configs
            .into_iter()
            .filter_map(discovered_by_rest)
            .collect();
        let found = discovered(
            serde_json::from_str(clusters).unwrap(),
            &by_rest,
            &serde_json::from_str(stats).unwrap(),
        );
        assert_eq!(found.len(), 1);
        let cluster = &found[0];
        assert_eq!((cluster.hosts, cluster.service.as_str()), (2, "q"));
        assert_eq!((cluster.updates[0], cluster.failures[0]), (7, 3));
        let least = cluster.breaker.clone().unwrap();
        assert_eq!(least, ("max_pending_requests".to_owned(), 1024));
        let dump = r#"{"configs": [{"bootstrap": {"admin": {"address": {"socket_address": {"address": "::", "port_value": 9901}}}}}]}"#;
        let dump = serde_json::from_str(dump).unwrap();
        assert_eq!(admin(&dump).as_deref(), Some("[::]:9901"));
        assert_eq!(admin(&Dump { configs: vec![] }), None);
    }
}
