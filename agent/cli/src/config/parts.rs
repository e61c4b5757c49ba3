//! The configuration split by component.

use std::sync::Arc;

use plimsoll_net::ServerTls;
use plimsoll_node::{control_loop::ServiceConfig, placement::PlacementConfig, ring::RingsConfig};
use plimsoll_outputs::{
    agent_check::{OutputSettings, ServiceOutput},
    envoy::{EnvoyConfig, EnvoyService},
    http::{HttpConfig, HttpService},
    orca::OrcaConfig,
};
use tokio::sync::watch;

use super::Config;

impl Config {
    /// Configuration of the ring tasks and the proxies' exchanges.
    pub fn rings(&self) -> RingsConfig {
        let ring = |service: &ServiceConfig| Some((service.name.clone(), service.ring.clone()?));
        RingsConfig {
            link: self.redis.clone(),
            period: self.period,
            rings: self.services.iter().filter_map(ring).collect(),
        }
    }

    /// Configuration of the placement keeper; `None` without `[placement]`.
    pub fn placement(&self) -> Option<PlacementConfig> {
        let (link, settings) = self.redis.clone().zip(self.placement.clone())?;
        let mut rings = self.services.iter().filter_map(|it| it.ring.as_ref());
        let ring = rings.find(|ring| ring.cluster == settings.cluster);
        Some(PlacementConfig {
            node: ring.map(|ring| ring.node.clone()),
            link,
            settings,
        })
    }

    /// Configuration of Envoy's endpoint discovery.
    pub fn envoy(&self) -> EnvoyConfig {
        let service = |service: &ServiceConfig| EnvoyService {
            name: service.name.clone(),
            address: service.address.clone(),
            ring_cluster: service.ring.as_ref().map(|ring| ring.cluster.clone()),
            weight_dead_band: service.weight_dead_band,
        };
        EnvoyConfig {
            settings: self.envoy.clone(),
            period: self.period,
            jitter: self.jitter,
            services: self.services.iter().map(service).collect(),
        }
    }

    /// Configuration of load reports.
    pub fn orca(&self) -> OrcaConfig {
        OrcaConfig {
            allow: self.http_allow.clone(),
            period: self.period,
            services: self.services.iter().map(|it| it.name.clone()).collect(),
        }
    }

    /// Configuration of the HTTP server, which also serves discovery and load reports.
    fn http(&self, envoy: &Arc<EnvoyConfig>, orca: &Arc<OrcaConfig>) -> HttpConfig {
        let service = |service: &ServiceConfig| {
            let limits = service.settings.limits;
            HttpService {
                name: service.name.clone(),
                has_ring: service.ring.is_some(),
                has_updates: service.updates.is_some(),
                has_role: service.role.is_some(),
                first_bound: limits.nominal.unwrap_or(limits.max),
            }
        };
        HttpConfig {
            allow: self.http_allow.clone(),
            tokens: self.http_tokens.clone(),
            tls: self.http_tls.clone(),
            partitions: self.partitions.clone(),
            envoy: Arc::clone(envoy),
            orca: Arc::clone(orca),
            services: self.services.iter().map(service).collect(),
        }
    }

    /// Settings of the agent-check server.
    pub fn output_settings(&self) -> OutputSettings {
        let output = |service: &ServiceConfig| ServiceOutput {
            name: service.name.clone(),
            identities: service.identities.clone(),
            send: service.send,
            mode: service.settings.mode,
        };
        let tls = self.http_tls.as_ref();
        let wants_certificates = tls.is_some_and(ServerTls::wants_certificates);
        let token = (!self.http_tokens.is_empty()).then_some("token");
        let certificate = wants_certificates.then_some("client_certificate");
        OutputSettings::new(
            self.services.iter().map(output).collect(),
            self.period,
            self.agent_check.clone(),
            self.http_listen,
            self.http_allow.clone(),
            token.into_iter().chain(certificate).collect(),
        )
    }
}

/// The current configuration of each component, replaced on reload.
#[derive(Debug)]
pub struct Parts {
    /// Ring tasks and the proxies' exchanges.
    pub rings: watch::Sender<Arc<RingsConfig>>,
    /// Placement keeper.
    pub placement: watch::Sender<Arc<Option<PlacementConfig>>>,
    /// Envoy's endpoint discovery.
    pub envoy: watch::Sender<Arc<EnvoyConfig>>,
    /// Load reports.
    pub orca: watch::Sender<Arc<OrcaConfig>>,
    /// HTTP server.
    pub http: watch::Sender<Arc<HttpConfig>>,
}

impl Parts {
    /// Splits a configuration.
    pub fn new(config: &Config) -> Self {
        let (envoy, orca) = (Arc::new(config.envoy()), Arc::new(config.orca()));
        Parts {
            rings: watch::Sender::new(Arc::new(config.rings())),
            placement: watch::Sender::new(Arc::new(config.placement())),
            http: watch::Sender::new(Arc::new(config.http(&envoy, &orca))),
            envoy: watch::Sender::new(envoy),
            orca: watch::Sender::new(orca),
        }
    }

    /// Replaces every part by that of a reloaded configuration.
    pub fn send(&self, config: &Config) {
        self.rings.send_replace(Arc::new(config.rings()));
        self.placement.send_replace(Arc::new(config.placement()));
        let (envoy, orca) = (Arc::new(config.envoy()), Arc::new(config.orca()));
        self.http.send_replace(Arc::new(config.http(&envoy, &orca)));
        self.envoy.send_replace(envoy);
        self.orca.send_replace(orca);
    }
}
