//! `[agent_check]`, and the services as the outputs see them.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use ipnet::IpNet;
use plimsoll_core::ServiceMode;
use plimsoll_node::control_loop::SendWords;
use plimsoll_settings::{Checked, MILLI, at, duration, networks, word, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// Answers to proxies while the agent stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnShutdown {
    /// `drain`, ended by `ready` after the next start. Needs a state directory.
    Drain,
    /// None: HAProxy keeps the last weight and limit.
    Hold,
}

/// Settings of `[agent_check]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentCheckSettings {
    /// Address that HAProxy polls.
    pub listen: SocketAddr,
    /// Networks allowed to connect; `None` allows all.
    pub allow: Option<Vec<IpNet>>,
    /// Maximum number of proxies of one address that share a service's bound.
    pub max_proxies_per_address: usize,
    /// Maximum number of open connections; above it the oldest is closed.
    pub max_connections: usize,
    /// Time for a client to send its line.
    pub identity_wait: Duration,
    /// Time without a poll after which a proxy gives back its share.
    pub proxy_lease: Duration,
    /// Answers to proxies while the agent stops.
    pub on_shutdown: OnShutdown,
    /// Time that the shutdown waits for them to poll.
    pub shutdown_grace: Duration,
}

/// A service as the outputs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceOutput {
    /// Name in the configuration.
    pub name: String,
    /// Identities besides the name, as sent by `agent-send` ("backend/server").
    pub identities: Vec<String>,
    /// Words in the answers.
    pub send: SendWords,
    /// Whether answers have an effect.
    pub mode: ServiceMode,
}

/// Settings of the agent-check server, the HTTP server and the control socket.
#[derive(Clone, Debug)]
pub struct OutputSettings {
    services: Vec<ServiceOutput>,
    by_identity: BTreeMap<String, usize>,
    /// Sampling period `P`; a loop silent for several of them is reported unhealthy.
    pub period: Duration,
    /// Settings of `[agent_check]`.
    pub agent_check: AgentCheckSettings,
    /// Address of the HTTP server.
    pub http_listen: SocketAddr,
    /// Networks allowed to connect to it; `None` allows all.
    pub http_allow: Option<Vec<IpNet>>,
    /// What its clients must show: `token`, `client_certificate`.
    pub http_requires: Vec<&'static str>,
}

impl OutputSettings {
    /// Creates the settings for these services.
    pub fn new(
        services: Vec<ServiceOutput>,
        period: Duration,
        agent_check: AgentCheckSettings,
        http_listen: SocketAddr,
        http_allow: Option<Vec<IpNet>>,
        http_requires: Vec<&'static str>,
    ) -> Self {
        let mut by_identity = BTreeMap::new();
        for (index, service) in services.iter().enumerate() {
            by_identity.insert(service.name.clone(), index);
            for identity in &service.identities {
                by_identity.insert(identity.clone(), index);
            }
        }
        OutputSettings {
            services,
            by_identity,
            period,
            agent_check,
            http_listen,
            http_allow,
            http_requires,
        }
    }

    /// All services in the order of the configuration.
    pub fn services(&self) -> &[ServiceOutput] {
        &self.services
    }

    /// The service of this name.
    pub fn service(&self, name: &str) -> Option<&ServiceOutput> {
        self.services.iter().find(|service| service.name == name)
    }

    /// Whether decisions for this service are passed to proxies.
    pub fn enforces(&self, name: &str) -> bool {
        self.service(name)
            .is_some_and(|service| !service.mode.observes())
    }

    /// The service with this identity; without an identity, the only service.
    pub fn resolve(&self, identity: Option<&str>) -> Option<&ServiceOutput> {
        match identity {
            Some(identity) => self
                .by_identity
                .get(identity)
                .and_then(|&i| self.services.get(i)),
            None if self.services.len() == 1 => self.services.first(),
            None => None,
        }
    }
}

/// The server that HAProxy polls; one port for all services.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agent_check]")]
pub struct AgentCheckSection {
    /// Use this node's address if HAProxy runs on another host. Needs a restart to change.
    #[schemars(extend("x-values" = "IP:port", "x-default" = "`\"127.0.0.1:9101\"`"))]
    listen: Option<String>,
    /// Networks that may connect; other connections are closed at once and counted. Every client can take a share of
    /// the bound, so restrict them to HAProxy's hosts, here or in the firewall.
    #[schemars(extend("x-values" = "1 to 256 networks or addresses, such as `192.0.2.0/24`", "x-default" = "all"))]
    allow: Option<Vec<String>>,
    /// Maximum number of proxies of one address that share a service's bound; a proxy that polls under two identities
    /// counts twice. Further proxies get empty answers and are counted.
    #[schemars(extend("x-values" = "1 to 64", "x-default" = "`8`"))]
    max_proxies_per_address: Option<usize>,
    /// Maximum number of open connections; beyond it the oldest is closed and counted.
    #[schemars(extend("x-values" = "1 to 65536", "x-default" = "`256`"))]
    max_connections: Option<usize>,
    /// Timeout for the `agent-send` line.
    #[schemars(with = "String", extend("x-values" = "duration, 1ms to 1day", "x-default" = "`\"30ms\"`"))]
    #[serde(default, with = "humantime_serde")]
    identity_wait: Option<Duration>,
    /// Time without a poll after which a proxy's share of the bound is released.
    #[schemars(with = "String", extend("x-values" = "duration, 100ms to 1day", "x-default" = "`\"10s\"`"))]
    #[serde(default, with = "humantime_serde")]
    proxy_lease: Option<Duration>,
    /// Answers to proxies while the agent stops; `drain` needs `state_directory`.
    #[schemars(extend("x-values" = "`drain`, `hold`", "x-default" = "`\"drain\"`"))]
    on_shutdown: Option<String>,
    /// Maximum time that the shutdown waits until every known proxy has polled.
    #[schemars(with = "String", extend("x-values" = "duration, 0s to 1day", "x-default" = "`\"3s\"`"))]
    #[serde(default, with = "humantime_serde")]
    shutdown_grace: Option<Duration>,
}

/// Checks `[agent_check]`.
pub fn agent_check(raw: &AgentCheckSection) -> Checked<AgentCheckSettings> {
    let max_connections = raw.max_connections.unwrap_or(256);
    if !(1..=65_536).contains(&max_connections) {
        return wrong(
            "agent_check.max_connections",
            format!("must be from 1 to 65536, is {max_connections}"),
        );
    }
    let max_proxies_per_address = raw.max_proxies_per_address.unwrap_or(8);
    if !(1..=64).contains(&max_proxies_per_address) {
        return wrong(
            "agent_check.max_proxies_per_address",
            format!("must be from 1 to 64, is {max_proxies_per_address}"),
        );
    }
    let listen = raw.listen.as_deref().unwrap_or("127.0.0.1:9101");
    Ok(AgentCheckSettings {
        listen: at("agent_check.listen", plimsoll_net::address(listen))?,
        allow: networks("agent_check.allow", raw.allow.as_deref())?,
        max_proxies_per_address,
        max_connections,
        identity_wait: duration(
            "agent_check.identity_wait",
            raw.identity_wait,
            30 * MILLI,
            MILLI,
        )?,
        proxy_lease: duration(
            "agent_check.proxy_lease",
            raw.proxy_lease,
            Duration::from_secs(10),
            100 * MILLI,
        )?,
        on_shutdown: word(
            "agent_check.on_shutdown",
            raw.on_shutdown.as_deref(),
            OnShutdown::Drain,
            &[("drain", OnShutdown::Drain), ("hold", OnShutdown::Hold)],
        )?,
        shutdown_grace: duration(
            "agent_check.shutdown_grace",
            raw.shutdown_grace,
            Duration::from_secs(3),
            Duration::ZERO,
        )?,
    })
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Default settings for these services.
    pub fn settings(services: Vec<ServiceOutput>) -> OutputSettings {
        let agent_check = agent_check(&AgentCheckSection::default()).unwrap();
        let http = SocketAddr::from(([127, 0, 0, 1], 9464));
        let period = Duration::from_secs(1);
        OutputSettings::new(services, period, agent_check, http, None, Vec::new())
    }

    fn service(name: &str, identities: &[&str]) -> ServiceOutput {
        ServiceOutput {
            name: name.into(),
            identities: identities.iter().map(|&i| i.to_owned()).collect(),
            send: SendWords::Both,
            mode: ServiceMode::Enforce,
        }
    }

    #[test]
    fn an_identity_names_its_service_and_none_means_the_only_one() {
        let one = settings(vec![service("stocks", &["queries/node1"])]);
        let name = |s: Option<&ServiceOutput>| s.map(|s| s.name.clone());
        assert_eq!(name(one.resolve(None)).as_deref(), Some("stocks"));
        assert_eq!(name(one.resolve(Some("stocks"))).as_deref(), Some("stocks"));
        assert_eq!(
            name(one.resolve(Some("queries/node1"))).as_deref(),
            Some("stocks")
        );
        assert_eq!(name(one.resolve(Some("queries/node2"))), None);

        let two = settings(vec![service("stocks", &[]), service("orders", &[])]);
        assert_eq!(name(two.resolve(None)), None);
        assert_eq!(name(two.resolve(Some("orders"))).as_deref(), Some("orders"));
    }
}
