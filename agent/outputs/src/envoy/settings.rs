//! `[envoy]`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use plimsoll_net::{Caller, HttpUrl};
use plimsoll_settings::{Checked, SharedTls, at, duration, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of peers.
const MAX_PEERS: usize = 256;

/// Settings of `[envoy]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoySettings {
    /// URLs of `/v1/node` of the cluster's agents.
    pub peers: Vec<HttpUrl>,
    /// Credentials for requests to the peers.
    pub caller: Caller,
    /// Time without news after which a node is unhealthy.
    pub lease: Duration,
    /// Address for load reports over gRPC.
    pub orca_listen: Option<SocketAddr>,
}

/// Configuration of endpoint discovery.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoyConfig {
    /// Settings of `[envoy]`.
    pub settings: EnvoySettings,
    /// Interval between polls of the peers.
    pub period: Duration,
    /// Fraction of the period by which each is randomly shifted.
    pub jitter: f64,
    /// This node's services.
    pub services: Vec<EnvoyService>,
}

/// A service that is a cluster in Envoy.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoyService {
    /// Name of the service.
    pub name: String,
    /// "host:port" that proxies connect to.
    pub address: Option<String>,
    /// Cluster of its ring, if it has one.
    pub ring_cluster: Option<String>,
    /// Relative change up to which a weight stays unchanged.
    pub weight_dead_band: f64,
}

impl EnvoyConfig {
    /// The service with this name or ring cluster.
    pub fn service(&self, name: &str) -> Option<&EnvoyService> {
        let by_name = self.services.iter().find(|service| service.name == name);
        let ring_of = |service: &&EnvoyService| service.ring_cluster.as_deref() == Some(name);
        by_name.or_else(|| self.services.iter().find(ring_of))
    }
}

/// Endpoint discovery for Envoy (`POST /v3/discovery:endpoints`): the nodes besides this one. See docs/envoy.md.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[envoy]")]
pub struct EnvoySection {
    /// Address for out-of-band ORCA load reports over gRPC. Use the same port on all nodes, at the address that
    /// proxies connect to. Needs a restart to change.
    #[schemars(extend("x-values" = "IP:port", "x-default" = "none"))]
    orca_listen: Option<String>,
    /// Agents of the cluster's nodes, at their `http.listen`. This agent may be included, so the list can be the same
    /// on all nodes.
    #[schemars(extend("x-values" = "up to 256 of `http://host:port` or `https://host:port`", "x-default" = "`[]`"))]
    #[serde(default)]
    peers: Vec<String>,
    /// File with a token of the peers with the role `read`, read at start and reload; needed if their `[http.tokens]`
    /// has `read_file`.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    token_file: Option<PathBuf>,
    /// A node whose agent has been silent for this long is reported as unhealthy, and is removed after ten times as
    /// long. If more than half of the nodes are silent, all stay unchanged.
    #[schemars(with = "String", extend("x-values" = "duration, 2 periods to 1hour", "x-default" = "3 periods"))]
    #[serde(default, with = "humantime_serde")]
    lease: Option<Duration>,
}

/// Checks `[envoy]`.
pub fn envoy(raw: &EnvoySection, period: Duration, tls: &SharedTls) -> Checked<EnvoySettings> {
    if raw.peers.len() > MAX_PEERS {
        return wrong(
            "envoy.peers",
            format!("may name {MAX_PEERS} agents, names {}", raw.peers.len()),
        );
    }
    let mut peers: Vec<HttpUrl> = Vec::new();
    for (index, peer) in raw.peers.iter().enumerate() {
        let key = format!("envoy.peers[{index}]");
        let url = plimsoll_net::http_or_https_url(peer).ok();
        let Some(mut url) = url.filter(|url| url.path == "/") else {
            return wrong(
                key,
                format!(
                    "must be an agent's http.listen such as \"http://192.0.2.12:9464\", is {peer:?}"
                ),
            );
        };
        url.path = "/v1/node".into();
        if peers.contains(&url) {
            return wrong(key, format!("duplicate {peer:?}"));
        }
        peers.push(url);
    }
    let lease = duration("envoy.lease", raw.lease, 3 * period, 2 * period)?;
    if lease > Duration::from_secs(3600) {
        return wrong("envoy.lease", "must be at most 1hour");
    }
    let orca_listen = raw.orca_listen.as_deref();
    let orca_listen = orca_listen.map(|text| at("envoy.orca_listen", plimsoll_net::address(text)));
    Ok(EnvoySettings {
        caller: tls.caller("envoy.token_file", raw.token_file.as_deref(), &peers)?,
        peers,
        lease,
        orca_listen: orca_listen.transpose()?,
    })
}
