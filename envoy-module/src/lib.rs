//! Plimsoll as a dynamic module of Envoy: `envoy_policy`, run by Envoy's own threads.
//!
//! One filter has two positions. Among the HTTP filters it admits a request and chooses its host, or names its primary;
//! among the router's upstream filters, once per attempt, it counts what is in flight at each host and measures its
//! delay. Each worker has a dispatcher of its own, behind a lock that is rarely contended. Envoy's main thread talks to
//! the agents for all workers; one thread of the module wakes it.

mod balancer;
mod cluster;
mod configuration;
mod downstream;
mod exchange;
mod lane;
mod metrics;
mod primary;
mod primary_cluster;
mod registry;
mod system;
mod upstream;
mod waking;

use envoy_abi::{Configuration, HttpFilterConfig, LoadBalancerConfig, Module};
use envoy_policy::config::{self, Config};

struct Plimsoll;

impl Module for Plimsoll {
    fn name(&self) -> &'static str {
        "plimsoll"
    }

    fn http_filter(
        &self,
        configuration: &Configuration,
        config: &[u8],
    ) -> Result<Box<dyn HttpFilterConfig>, String> {
        Ok(match config::parse(config)? {
            Config::Upstream => Box::new(upstream::Attempts::new()),
            Config::Downstream(settings) => {
                Box::new(configuration::Admission::new(configuration, *settings)?)
            }
            Config::Primary(settings) => {
                Box::new(primary::Placement::new(configuration, *settings)?)
            }
        })
    }

    fn load_balancer(&self, config: &[u8]) -> Result<Box<dyn LoadBalancerConfig>, String> {
        let cluster = config::parse_balancer(config)?;
        Ok(Box::new(balancer::Fallback { cluster }))
    }
}

envoy_abi::module!(Plimsoll);
