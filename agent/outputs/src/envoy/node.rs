//! A node in endpoint discovery, from its agent's or Redis' report.

use plimsoll_core::Flow;
use plimsoll_node::{
    overrides::{ForcedHealth, ServiceOverride},
    ring::RingNode,
    state::ServiceState,
};
pub use plimsoll_wire::Shed;
use plimsoll_wire::{Health, MAX_NUMBER, NodeService, NodeView};

/// Whether a node receives traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It receives traffic.
    Healthy,
    /// Its probe fails, an operator forced it down, or its agent is silent.
    Unhealthy,
    /// An operator drains it.
    Draining,
}

/// Basis of a node's weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// Its capacity.
    Known(f64),
    /// Capacity unknown: this multiple of the mean of the others.
    OfMean(f64),
}

impl Weight {
    fn new(capacity_known: bool, weight_bound: f64, percent: Option<u16>) -> Self {
        match capacity_known {
            true => Weight::Known(weight_bound),
            false => Weight::OfMean(
                percent.map_or(1.0, |percent| f64::from(percent.clamp(1, 256)) / 100.0),
            ),
        }
    }

    /// Whether the relative difference from `held` is small enough to keep `held`.
    pub fn is_within(self, held: Weight, dead_band: f64) -> bool {
        match (self, held) {
            (Weight::Known(new), Weight::Known(held)) => (new - held).abs() <= dead_band * held,
            _ => self == held,
        }
    }
}

/// A node of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// "host:port" as configured.
    pub address: String,
    /// Whether it receives traffic.
    pub standing: Standing,
    /// Basis of its weight.
    pub weight: Weight,
    /// Its bound, in cost units.
    pub bound: f64,
    /// Its backlog, in cost units.
    pub backlog: f64,
    /// Its throughput, if its agent reports it.
    pub flow: Option<Flow>,
    /// The fraction that its agent wants shed.
    pub shed: Shed,
}

impl Node {
    /// This agent's own node; `None` without an address.
    pub fn own(state: &ServiceState, set: &ServiceOverride, shed: Shed) -> Option<Node> {
        let address = state.address.clone()?;
        if state.observes() {
            return Some(Node::observed(address, shed));
        }
        Some(Node {
            address,
            standing: standing(state.health, set.health, set.drain),
            weight: Weight::new(
                state.capacity.is_some(),
                state.weight_bound.get(),
                set.weight_percent,
            ),
            bound: state.decision.bound.get(),
            backlog: state.backlog.map_or(0.0, |backlog| backlog.get()),
            flow: state.flow,
            shed,
        })
    }

    /// A node whose agent is in observe mode: treated like any other, but not part of what is shed.
    fn observed(address: String, shed: Shed) -> Node {
        Node {
            address,
            standing: Standing::Healthy,
            weight: Weight::OfMean(1.0),
            bound: 0.0,
            backlog: 0.0,
            flow: None,
            shed,
        }
    }

    /// A node from Redis, which does not distinguish drained from down.
    pub fn of_ring(node: &RingNode) -> Option<Node> {
        Some(Node {
            address: node.address.clone()?,
            standing: if node.bound > 0.0 {
                Standing::Healthy
            } else {
                Standing::Unhealthy
            },
            weight: node.capacity.map_or(Weight::OfMean(1.0), Weight::Known),
            bound: node.bound,
            backlog: node.jobs * node.mean_cost,
            flow: None,
            shed: Shed::default(),
        })
    }
}

/// Determined by the probe, unless an operator overrides it.
pub fn standing(probe: Health, forced: Option<ForcedHealth>, drain: bool) -> Standing {
    let down = match forced {
        Some(forced) => forced == ForcedHealth::Down,
        None => probe == Health::Down,
    };
    match (down, drain) {
        (true, _) => Standing::Unhealthy,
        (false, true) => Standing::Draining,
        (false, false) => Standing::Healthy,
    }
}

/// Parses the nodes in another agent's `/v1/node`, for the services that `wanted` knows. Unknown services and fields
/// are ignored, since the agent may be newer.
pub fn parse_answer(
    text: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, Node)>, String> {
    let answer = NodeView::parse(text)?;
    let mut nodes = Vec::new();
    for (service, value) in answer.services {
        if !wanted(&service) {
            continue;
        }
        let at = |problem: String| format!("services.{service}: {problem}");
        let said = NodeService::parse(value).map_err(at)?;
        if let Some(node) = check(said).map_err(at)? {
            nodes.push((service, node));
        }
    }
    Ok(nodes)
}

fn check(said: NodeService) -> Result<Option<Node>, String> {
    let Some(address) = said.address else {
        return Ok(None);
    };
    let address = plimsoll_net::host_port(&address).map_err(|p| format!("address: {p}"))?;
    let backlog = said.backlog.unwrap_or(0.0);
    for (key, value, least) in [
        ("decision.bound", said.decision.bound, f64::MIN_POSITIVE),
        ("weight_bound", said.weight_bound, f64::MIN_POSITIVE),
        ("backlog", backlog, 0.0),
        ("shed.fraction", 1.0 - said.shed.fraction, 0.0),
    ] {
        if !(least..=MAX_NUMBER).contains(&value) {
            return Err(format!("{key}: cannot be {value}"));
        }
    }
    if said.settings.mode.observes() {
        return Ok(Some(Node::observed(address, said.shed)));
    }
    let most = |flow: &Flow| {
        flow.admitted
            .max(flow.ended)
            .max(flow.backlog)
            .max(flow.bound)
    };
    let flow = said
        .flow
        .filter(|flow| flow.is_sound() && most(flow) <= MAX_NUMBER);
    Ok(Some(Node {
        address,
        standing: standing(said.health, said.set.health, said.set.drain),
        weight: Weight::new(
            said.capacity != Some(None),
            said.weight_bound,
            said.set.weight_percent,
        ),
        bound: said.decision.bound,
        backlog,
        flow,
        shed: said.shed,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer() -> Value {
        json!({"address": "192.0.2.11:8001", "health": "up", "override": {"drain": false, "health": null, "more": 1},
            "decision": {"bound": 64.0, "reason": "start"}, "weight_bound": 60.5, "backlog": null,
            "flow": {"admitted": 10.0, "ended": 9.0, "backlog": 5.0, "bound": 64.0},
            "shed": {"fraction": 0.25, "asked": true}, "unknown": []})
    }

    fn parse(service: &Value) -> Result<Vec<(String, Node)>, String> {
        let text = json!({"version": "9", "services": {"stocks": service, "other": 1}}).to_string();
        parse_answer(text.as_bytes(), |name| name == "stocks")
    }

    #[test]
    fn a_node_is_read_whatever_else_is_there() {
        let (service, node) = parse(&answer()).unwrap().remove(0);
        assert_eq!(
            (service.as_str(), node.address.as_str()),
            ("stocks", "192.0.2.11:8001")
        );
        assert_eq!(
            (node.standing, node.weight),
            (Standing::Healthy, Weight::Known(60.5))
        );
        assert_eq!(node.flow.unwrap().admitted, 10.0);
        assert_eq!(
            node.shed,
            Shed {
                fraction: 0.25,
                asked: true
            }
        );
        let mut weighed = answer();
        weighed["capacity"] = json!(60.5);
        let weight = |said: &Value| parse(said).unwrap()[0].1.weight;
        assert_eq!(weight(&weighed), Weight::Known(60.5));
        weighed["capacity"] = Value::Null;
        assert_eq!(weight(&weighed), Weight::OfMean(1.0));
        weighed["override"]["weight_percent"] = json!(20);
        assert_eq!(weight(&weighed), Weight::OfMean(0.2));
        let mut without = answer();
        without["address"] = Value::Null;
        assert_eq!(parse(&without), Ok(vec![]));
    }

    #[test]
    fn a_node_that_is_only_observed_is_as_any_other() {
        let mut said = answer();
        said["settings"] = json!({"mode": "observe", "mpl": false});
        said["health"] = json!("down");
        said["override"] = json!({"drain": true, "health": null, "weight_percent": 5});
        let (_, node) = parse(&said).unwrap().remove(0);
        let shed = Shed {
            fraction: 0.25,
            asked: true,
        };
        assert_eq!(node, Node::observed("192.0.2.11:8001".into(), shed));
        assert_eq!(node.weight, Weight::OfMean(1.0));
        said["settings"] = json!({"mode": "enforce"});
        assert_eq!(parse(&said).unwrap()[0].1.standing, Standing::Unhealthy);
        said["settings"] = json!({"mode": "dream"});
        assert!(parse(&said).is_err());
    }

    #[test]
    fn operators_have_the_last_word() {
        for (health, forced, drain, standing) in [
            ("up", Value::Null, false, Standing::Healthy),
            ("down", Value::Null, false, Standing::Unhealthy),
            ("down", json!("up"), false, Standing::Healthy),
            ("up", json!("down"), true, Standing::Unhealthy),
            ("up", Value::Null, true, Standing::Draining),
        ] {
            let mut said = answer();
            said["health"] = json!(health);
            said["override"] = json!({"drain": drain, "health": forced});
            assert_eq!(parse(&said).unwrap()[0].1.standing, standing);
        }
    }

    #[test]
    fn malformed_answers_are_rejected_with_the_field() {
        for (key, value) in [
            ("address", json!("nowhere")),
            ("address", json!("a b:1")),
            ("health", json!("fine")),
            ("weight_bound", json!(0)),
            ("weight_bound", json!(1e300)),
            ("backlog", json!(-1)),
            ("decision", json!({"bound": -5})),
            ("shed", json!({"fraction": 2, "asked": true})),
            ("flow", json!({"admitted": "x"})),
        ] {
            let mut said = answer();
            said[key] = value;
            let problem = parse(&said).unwrap_err();
            assert!(problem.starts_with("services.stocks: "), "{problem}");
        }
        for text in ["", "{", "[]", "{\"services\": 1}", "null"] {
            assert!(parse_answer(text.as_bytes(), |_| true).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse_answer(deep.as_bytes(), |_| true).is_err());
    }

    #[test]
    fn a_flow_beyond_reason_is_as_good_as_none() {
        let mut said = answer();
        said["flow"]["admitted"] = json!(1e300);
        assert_eq!(parse(&said).unwrap()[0].1.flow, None);
    }
}
