//! Configuration of the position that names primaries.

use plimsoll_core::dispatch::MAX_COST;
use plimsoll_wire::{MAX_CONFIGURED_NAME_BYTES, is_configured_name};
use serde::Deserialize;

use super::{
    Position,
    checks::{check_common, checked, is_header, whole, within},
    half, one,
};
use crate::part::Part;

/// Settings of the position that names primaries.
#[derive(Clone, Debug, PartialEq)]
pub struct PrimarySettings {
    /// Cluster, as in the agents' `[placement]`; also the label of metrics.
    pub cluster: String,
    /// Name of the Envoy cluster of the agents' HTTP servers.
    pub agents: String,
    /// Bearer token that the agents require.
    pub token: Option<String>,
    /// Name of this proxy; the node id if not configured.
    pub proxy: Option<String>,
    /// Part of the request with the name of the object set.
    pub object_set: Part,
    /// Part of the request with the cost in items.
    pub cost: Option<Part>,
    /// Cost of a request that states none.
    pub default_cost: f64,
    /// Request header that passes the name of the primary's Envoy cluster to the route.
    pub header: String,
    /// Prefix that turns a node's name into the name of its Envoy cluster.
    pub prefix: String,
    /// Interval between exchanges with an agent, in seconds.
    pub period: f64,
    /// Timeout of a request to an agent, in seconds.
    pub timeout: f64,
    /// Maximum time that a request waits for a hand-over, in seconds.
    pub wait: f64,
    /// `Retry-After` of a refusal, in whole seconds.
    pub retry_after: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPrimary {
    #[serde(rename = "position")]
    _position: Position,
    cluster: String,
    agents: String,
    token: Option<String>,
    proxy: Option<String>,
    object_set: Part,
    #[serde(default)]
    cost: RawPrimaryCost,
    #[serde(default = "primary_header")]
    header: String,
    #[serde(default)]
    prefix: String,
    #[serde(default = "one")]
    period: f64,
    #[serde(default = "one")]
    timeout: f64,
    #[serde(default = "half")]
    wait: f64,
    #[serde(default = "one")]
    retry_after: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPrimaryCost {
    from: Option<Part>,
    default: f64,
}

impl Default for RawPrimaryCost {
    fn default() -> Self {
        RawPrimaryCost {
            from: None,
            default: 1.0,
        }
    }
}

fn primary_header() -> String {
    "x-plimsoll-primary".to_owned()
}

impl RawPrimary {
    pub fn resolve(self) -> Result<PrimarySettings, String> {
        let (proxy, token) = (self.proxy.as_deref(), self.token.as_deref());
        check_common(&self.cluster, proxy, &self.agents, token)?;
        if !is_header(&self.header) {
            return Err("header: must be a header's name, in lower-case letters".to_owned());
        }
        if !self.prefix.is_empty() && !is_configured_name(&self.prefix) {
            return Err(format!(
                "prefix: must be at most {MAX_CONFIGURED_NAME_BYTES} of A-Za-z0-9._:/-"
            ));
        }
        let object_set = checked("object_set", Some(self.object_set))?;
        Ok(PrimarySettings {
            object_set: object_set.ok_or("object_set: is missing")?,
            cost: checked("cost.from", self.cost.from)?,
            default_cost: within("cost.default", self.cost.default, 1e-6, MAX_COST, "")?,
            period: within("period", self.period, 0.1, 60.0, " s")?,
            timeout: within("timeout", self.timeout, 0.01, 60.0, " s")?,
            wait: within("wait", self.wait, 0.0, 30.0, " s")?,
            retry_after: whole("retry_after", self.retry_after, 0.0, 3600.0)? as u32,
            cluster: self.cluster,
            agents: self.agents,
            token: self.token,
            proxy: self.proxy,
            header: self.header,
            prefix: self.prefix,
        })
    }
}
