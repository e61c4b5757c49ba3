//! Envoy's discovery messages as JSON: `envoy.service.discovery.v3.DiscoveryRequest` and `DiscoveryResponse` with
//! `envoy.config.endpoint.v3.ClusterLoadAssignment`.

use std::net::SocketAddr;

use plimsoll_core::ring::ring_weights;
use serde::{Deserialize, Serialize};

use super::node::{Node, Standing, Weight};

/// The only supported resource type.
pub const TYPE: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// The largest weight is between half of this and this.
const LARGEST_WEIGHT: f64 = 1024.0;
/// Denominator of the drop fraction.
const PARTS: f64 = 10_000.0;
/// Envoy's name for the denominator.
const DENOMINATOR: &str = "TEN_THOUSAND";

/// Envoy's request. Its description of itself is ignored.
#[derive(Debug, Default, Deserialize)]
pub struct Request {
    /// Version that Envoy has.
    #[serde(default, alias = "versionInfo")]
    pub version_info: String,
    /// Names of the clusters.
    #[serde(default, alias = "resourceNames")]
    pub resource_names: Vec<String>,
    /// Requested type; optional, since the path implies it.
    #[serde(default, alias = "typeUrl")]
    pub type_url: String,
}

/// The response.
#[derive(Debug, Serialize)]
pub struct Response {
    /// Changes whenever the resources do.
    pub version_info: String,
    /// One per known cluster.
    pub resources: Vec<Assignment>,
    /// Type of the resources.
    pub type_url: &'static str,
}

/// The endpoints of a cluster.
#[derive(Debug, Serialize)]
pub struct Assignment {
    #[serde(rename = "@type")]
    kind: &'static str,
    cluster_name: String,
    endpoints: [Locality; 1],
    policy: Policy,
}

#[derive(Debug, Serialize)]
struct Locality {
    lb_endpoints: Vec<Endpoint>,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    endpoint: Target,
    health_status: &'static str,
    load_balancing_weight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

/// Envoy's workers learn of a new drop fraction only when some host changes, so the first host carries the fraction
/// as well.
#[derive(Debug, Serialize)]
struct Metadata {
    filter_metadata: FilterMetadata,
}

#[derive(Debug, Serialize)]
struct FilterMetadata {
    plimsoll: ShedMetadata,
}

#[derive(Debug, Serialize)]
struct ShedMetadata {
    shed: f64,
}

#[derive(Debug, Serialize)]
struct Target {
    address: Address,
}

#[derive(Debug, Serialize)]
struct Address {
    socket_address: Socket,
}

#[derive(Debug, Serialize)]
struct Socket {
    address: String,
    port_value: u16,
}

#[derive(Debug, Serialize)]
struct Policy {
    drop_overloads: [DropOverload; 1],
}

#[derive(Debug, Serialize)]
struct DropOverload {
    category: &'static str,
    drop_percentage: Percentage,
}

#[derive(Debug, Serialize)]
struct Percentage {
    numerator: u32,
    denominator: &'static str,
}

impl Assignment {
    /// Builds an assignment from nodes with their resolved addresses and the fraction to shed. The order of the nodes
    /// does not matter.
    pub fn new(cluster_name: String, mut nodes: Vec<(Node, SocketAddr)>, shed: f64) -> Self {
        nodes.sort_by_key(|(_, at)| *at);
        nodes.dedup_by_key(|(_, at)| *at);
        let bounds = weights(&nodes);
        let scale = weight_scale(bounds.iter().copied());
        let endpoint = |((node, at), bound): (&(Node, SocketAddr), f64)| Endpoint {
            endpoint: Target {
                address: Address {
                    socket_address: Socket {
                        address: at.ip().to_string(),
                        port_value: at.port(),
                    },
                },
            },
            health_status: match node.standing {
                Standing::Healthy => "HEALTHY",
                Standing::Unhealthy => "UNHEALTHY",
                Standing::Draining => "DRAINING",
            },
            load_balancing_weight: weight(bound * scale),
            metadata: None,
        };
        let mut lb_endpoints: Vec<Endpoint> = nodes.iter().zip(bounds).map(endpoint).collect();
        let numerator = (shed.clamp(0.0, 1.0) * PARTS).round();
        if let Some(first) = lb_endpoints.first_mut() {
            let plimsoll = ShedMetadata {
                shed: numerator / PARTS,
            };
            first.metadata = Some(Metadata {
                filter_metadata: FilterMetadata { plimsoll },
            });
        }
        Assignment {
            kind: TYPE,
            cluster_name,
            endpoints: [Locality { lb_endpoints }],
            policy: Policy {
                drop_overloads: [DropOverload {
                    category: "plimsoll",
                    drop_percentage: Percentage {
                        numerator: numerator as u32,
                        denominator: DENOMINATOR,
                    },
                }],
            },
        }
    }
}

impl Response {
    /// Derives the version from the resources, so that agents with the same resources have the same version.
    pub fn new(resources: Vec<Assignment>) -> Result<Self, serde_json::Error> {
        let text = serde_json::to_vec(&resources)?;
        // FNV-1a.
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        Ok(Response {
            version_info: format!("{hash:016x}"),
            resources,
            type_url: TYPE,
        })
    }
}

/// Unscaled weight of each node.
fn weights(nodes: &[(Node, SocketAddr)]) -> Vec<f64> {
    let known = |(node, _): &(Node, SocketAddr)| match node.weight {
        Weight::Known(capacity) => Some(capacity),
        Weight::OfMean(_) => None,
    };
    let capacities: Vec<Option<f64>> = nodes.iter().map(known).collect();
    let share = |(node, _): &(Node, SocketAddr)| match node.weight {
        Weight::Known(_) => 1.0,
        Weight::OfMean(share) => share,
    };
    let found = ring_weights(&capacities).into_iter().zip(nodes);
    found.map(|(weight, node)| weight * share(node)).collect()
}

/// A power of two, so that a change of one node rarely changes the weights of others.
fn weight_scale(bounds: impl Iterator<Item = f64>) -> f64 {
    let largest = bounds.fold(f64::MIN_POSITIVE, f64::max);
    LARGEST_WEIGHT / largest.log2().ceil().exp2()
}

/// At least 1: a live node without traffic would show no load and never recover.
fn weight(exact: f64) -> u32 {
    if exact.is_finite() {
        exact.round().clamp(1.0, LARGEST_WEIGHT) as u32
    } else {
        1
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::envoy::node::Shed;

    fn node(port: u16, weight_bound: f64, standing: Standing) -> (Node, SocketAddr) {
        let node = Node {
            address: format!("192.0.2.1:{port}"),
            standing,
            weight: Weight::Known(weight_bound),
            bound: weight_bound,
            backlog: 0.0,
            flow: None,
            shed: Shed::default(),
        };
        let at = node.address.parse().unwrap();
        (node, at)
    }

    fn answer(nodes: Vec<(Node, SocketAddr)>, shed: f64) -> Value {
        let assignment = Assignment::new("stocks".into(), nodes, shed);
        serde_json::to_value(Response::new(vec![assignment]).unwrap()).unwrap()
    }

    fn weights(bounds: &[f64]) -> Vec<u64> {
        let known: Vec<_> = bounds.iter().copied().map(Weight::Known).collect();
        weights_of(&known)
    }

    fn weights_of(weights: &[Weight]) -> Vec<u64> {
        let nodes = (1..).zip(weights);
        let nodes = nodes.map(|(port, weight)| {
            let (mut node, at) = node(port, 1e6, Standing::Healthy);
            node.weight = *weight;
            (node, at)
        });
        let answer = answer(nodes.collect(), 0.0);
        let endpoints = answer["resources"][0]["endpoints"][0]["lb_endpoints"].clone();
        let endpoints = endpoints.as_array().unwrap().clone();
        let weight = |e: &Value| e["load_balancing_weight"].as_u64().unwrap();
        endpoints.iter().map(weight).collect()
    }

    #[test]
    fn an_assignment_as_envoy_reads_it() {
        let said = answer(
            vec![
                node(8002, 32.0, Standing::Draining),
                node(8001, 64.0, Standing::Unhealthy),
            ],
            0.25,
        );
        assert_eq!(said["type_url"], TYPE);
        let assignment = &said["resources"][0];
        assert_eq!(assignment["@type"], TYPE);
        assert_eq!(assignment["cluster_name"], "stocks");
        let endpoints = &assignment["endpoints"][0]["lb_endpoints"];
        assert_eq!(
            endpoints[0],
            json!({"endpoint": {"address": {"socket_address": {"address": "192.0.2.1", "port_value": 8001}}},
                   "health_status": "UNHEALTHY", "load_balancing_weight": 1024,
                   "metadata": {"filter_metadata": {"plimsoll": {"shed": 0.25}}}})
        );
        assert_eq!(endpoints[1]["health_status"], "DRAINING");
        assert_eq!(endpoints[1]["load_balancing_weight"], 512);
        assert_eq!(
            assignment["policy"]["drop_overloads"][0]["drop_percentage"],
            json!({"numerator": 2500, "denominator": "TEN_THOUSAND"})
        );
    }

    #[test]
    fn the_same_nodes_have_the_same_version_in_any_order() {
        let (a, b) = (
            node(1, 5.0, Standing::Healthy),
            node(2, 6.0, Standing::Healthy),
        );
        let version = |nodes, shed| answer(nodes, shed)["version_info"].clone();
        let first = version(vec![a.clone(), b.clone()], 0.1);
        assert_eq!(first, version(vec![b.clone(), a.clone(), a.clone()], 0.1));
        assert_ne!(first, version(vec![a.clone(), b.clone()], 0.2));
        assert_ne!(first, version(vec![a], 0.1));
    }

    #[test]
    fn weights_go_by_bounds_and_are_never_0() {
        assert_eq!(weights(&[64.0, 64.0, 12.8]), [1024, 1024, 205]);
        assert_eq!(weights(&[100.0]), [800]);
        assert_eq!(weights(&[1e15, 1e-9]), [909, 1]);
        assert_eq!(weights(&[1e-12, 2e-12]), [281, 563]);
        // A small change of one node is a change of one weight.
        assert_eq!(weights(&[100.0, 90.0]), [800, 720]);
        assert_eq!(weights(&[105.0, 90.0]), [840, 720]);
    }

    #[test]
    fn a_node_of_which_nothing_is_known_has_the_mean_of_the_others() {
        let unknown = Weight::OfMean(1.0);
        let half = Weight::OfMean(0.5);
        for (nodes, weights) in [
            (&[unknown, unknown, unknown][..], &[1024, 1024, 1024][..]),
            (
                &[Weight::Known(128.0), unknown, Weight::Known(64.0)],
                &[1024, 768, 512],
            ),
            // An operator's weight of 50 %.
            (&[Weight::Known(128.0), half], &[1024, 512]),
            (&[unknown, half], &[1024, 512]),
        ] {
            assert_eq!(weights_of(nodes), weights, "{nodes:?}");
        }
    }

    #[test]
    fn requests_are_read_in_either_spelling_and_with_all_that_envoy_adds() {
        for text in [
            r#"{"version_info": "1", "resource_names": ["a"], "node": {"id": "x", "extensions": [{}]}}"#,
            r#"{"versionInfo": "1", "resourceNames": ["a"], "responseNonce": "z"}"#,
        ] {
            let request: Request = serde_json::from_str(text).unwrap();
            assert_eq!(
                (request.version_info.as_str(), request.resource_names),
                ("1", vec!["a".to_owned()])
            );
        }
    }
}
