//! `[envoy]`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use plimsoll_net::{Caller, HttpUrl};
use plimsoll_settings::{Checked, SharedTls, TableReference, at, duration, wrong};
use serde::Deserialize;

/// More peers than this are refused.
const MAX_PEERS: usize = 256;

/// `[envoy]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoySettings {
    /// `/v1/node` of the cluster's agents.
    pub peers: Vec<HttpUrl>,
    /// What they are shown.
    pub caller: Caller,
    /// A node silent for longer is unhealthy.
    pub lease: Duration,
    /// Load reports over gRPC.
    pub orca_listen: Option<SocketAddr>,
}

/// What this agent tells Envoy of.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoyConfig {
    /// `[envoy]`.
    pub settings: EnvoySettings,
    /// Between two rounds of questions to peers.
    pub period: Duration,
    /// Share of it each period is moved by at random.
    pub jitter: f64,
    /// This node's.
    pub services: Vec<EnvoyService>,
}

/// A service as a cluster of Envoy's.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoyService {
    /// Its name.
    pub name: String,
    /// "host:port" that proxies connect to.
    pub address: Option<String>,
    /// The cluster of its ring, where it is in one.
    pub ring_cluster: Option<String>,
    /// Relative change under which a weight stays.
    pub weight_dead_band: f64,
}

impl EnvoyConfig {
    /// The service that Envoy calls so: by its own name, or its ring's.
    pub fn service(&self, name: &str) -> Option<&EnvoyService> {
        let by_name = self.services.iter().find(|service| service.name == name);
        let ring_of = |service: &&EnvoyService| service.ring_cluster.as_deref() == Some(name);
        by_name.or_else(|| self.services.iter().find(ring_of))
    }
}

/// `[envoy]`, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvoySection {
    #[serde(default)]
    peers: Vec<String>,
    token_file: Option<PathBuf>,
    orca_listen: Option<String>,
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

/// Of `[envoy]`, key by key.
pub const REFERENCE: TableReference = (
    "[envoy]",
    "What Envoy is answered, beside this node: `POST /v3/discovery:endpoints`, see docs/envoy.md.",
    &[
        (
            "orca_listen",
            "IP:port",
            "none",
            "Load reports over gRPC: ORCA, out of band. The same port on all nodes, on the address that proxies connect to. Needs a restart to change.",
        ),
        (
            "peers",
            "up to 256 of `http://host:port` or `https://host:port`",
            "`[]`",
            "The agents of the cluster's nodes, by their `http.listen`; this one may be among them, so that the list can be the same everywhere.",
        ),
        (
            "token_file",
            "path",
            "none",
            "File with a token of the peers with the role `read`, read at start and reload; needed if their `[http.tokens]` has `read_file`.",
        ),
        (
            "lease",
            "duration, 2 periods to 1hour",
            "3 periods",
            "A node whose agent is silent for this long is told to be unhealthy, and after ten times this long is gone; but where more than half of the nodes are silent, all stay as they were.",
        ),
    ],
);
