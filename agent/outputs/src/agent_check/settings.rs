//! What the outputs need of the configuration.

use std::{collections::BTreeMap, time::Duration};

use ipnet::IpNet;
use plimsoll_node::control_loop::SendWords;

/// What the proxies are told when the agent stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnShutdown {
    /// `drain`, undone by `ready` after the next start. Needs a state directory.
    #[default]
    Drain,
    /// Nothing: HAProxy keeps the last weight and limit.
    Hold,
}

/// One service as the outputs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceOutput {
    /// Name in the configuration.
    pub name: String,
    /// Identities besides the name, as `agent-send` sends them ("backend/server").
    pub identities: Vec<String>,
    /// Words in the answers.
    pub send: SendWords,
}

/// Settings of the agent-check server, the HTTP server and the control socket.
#[derive(Clone, Debug)]
pub struct OutputSettings {
    services: Vec<ServiceOutput>,
    by_identity: BTreeMap<String, usize>,
    /// Sampling period `P`; a loop silent for several of them is reported unhealthy.
    pub period: Duration,
    /// Networks that agent checks may come from; all without.
    pub allow: Option<Vec<IpNet>>,
    /// Proxies of one address that share a service's bound, at most.
    pub max_proxies_per_address: usize,
    /// Open agent-check connections at most; over that the oldest is closed.
    pub max_connections: usize,
    /// How long a client may take to send its line.
    pub identity_wait: Duration,
    /// A proxy that has not polled for this long gives its share back.
    pub proxy_lease: Duration,
    /// What the proxies are told at the end.
    pub on_shutdown: OnShutdown,
    /// How long the end may wait for them to ask.
    pub shutdown_grace: Duration,
}

impl OutputSettings {
    /// The defaults of every limit, for these services.
    pub fn new(services: Vec<ServiceOutput>) -> Self {
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
            period: Duration::from_secs(1),
            allow: None,
            max_proxies_per_address: 8,
            max_connections: 256,
            identity_wait: Duration::from_millis(30),
            proxy_lease: Duration::from_secs(10),
            on_shutdown: OnShutdown::Drain,
            shutdown_grace: Duration::from_secs(3),
        }
    }

    /// All services, in the order of the configuration.
    pub fn services(&self) -> &[ServiceOutput] {
        &self.services
    }

    /// The service of this name.
    pub fn service(&self, name: &str) -> Option<&ServiceOutput> {
        self.services.iter().find(|service| service.name == name)
    }

    /// The service a client means; without an identity the only one there is.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, identities: &[&str]) -> ServiceOutput {
        ServiceOutput {
            name: name.into(),
            identities: identities.iter().map(|&i| i.to_owned()).collect(),
            send: SendWords::Both,
        }
    }

    #[test]
    fn an_identity_names_its_service_and_none_means_the_only_one() {
        let one = OutputSettings::new(vec![service("stocks", &["queries/node1"])]);
        let name = |s: Option<&ServiceOutput>| s.map(|s| s.name.clone());
        assert_eq!(name(one.resolve(None)).as_deref(), Some("stocks"));
        assert_eq!(name(one.resolve(Some("stocks"))).as_deref(), Some("stocks"));
        assert_eq!(
            name(one.resolve(Some("queries/node1"))).as_deref(),
            Some("stocks")
        );
        assert_eq!(name(one.resolve(Some("queries/node2"))), None);

        let two = OutputSettings::new(vec![service("stocks", &[]), service("orders", &[])]);
        assert_eq!(name(two.resolve(None)), None);
        assert_eq!(name(two.resolve(Some("orders"))).as_deref(), Some("orders"));
    }
}
