//! The nodes of a service, and when each was last heard from.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use plimsoll_core::Flow;

use super::node::{Node, Standing};

/// Maximum number of nodes.
const MAX_NODES: usize = 1024;
/// Number of leases without news after which a node is gone.
const GONE_LEASES: u32 = 10;

/// Latest state of each node except this agent's own, by address.
#[derive(Debug, Default)]
pub struct Directory {
    heard: BTreeMap<String, (Node, Instant)>,
}

impl Directory {
    /// Adds a state reported by the node's own agent.
    pub fn hear(&mut self, node: Node, at: Instant) {
        let known = self.heard.get(&node.address);
        let fits = known.map_or(self.heard.len() < MAX_NODES, |(_, before)| *before <= at);
        if fits {
            self.heard.insert(node.address.clone(), (node, at));
        }
    }

    /// Adds a state from Redis, to which no dead band has been applied yet: a weight stays while its relative error
    /// is at most `dead_band`.
    pub fn hear_of(&mut self, mut node: Node, at: Instant, dead_band: f64) {
        if let Some((known, _)) = self.heard.get(&node.address) {
            let is_out = node.standing != Standing::Healthy;
            if is_out || node.weight.is_within(known.weight, dead_band) {
                node.weight = known.weight;
            }
        }
        self.hear(node, at);
    }

    /// Whether the node's own agent has reported within this time.
    pub fn heard_since(&self, address: &str, within: Duration) -> bool {
        let known = self.heard.get(address);
        known.is_some_and(|(node, at)| node.flow.is_some() && at.elapsed() <= within)
    }

    /// Latest state of each node and when it was received, ordered by address.
    pub fn heard(&self) -> impl Iterator<Item = (&Node, Instant)> {
        self.heard.values().map(|(node, at)| (node, *at))
    }

    /// All nodes except this agent's own, ordered by address.
    ///
    /// A node silent for a lease is unhealthy; after ten leases it is gone. If more than half of all nodes are
    /// silent, counting this agent's own node, the agent itself is probably cut off: then all stay as they were.
    ///
    /// One silent for a lease is unhealthy, for ten leases gone. Where more than half of all are
    /// silent, this agent included, it is more likely cut off itself: then they stay as they were.
    pub fn others(&mut self, own: Option<&str>, lease: Duration, now: Instant) -> Vec<Node> {
        let silence = |at: Instant| now.saturating_duration_since(at);
        if let Some(own) = own {
            self.heard.remove(own);
        }
        let all = self.heard.len() + usize::from(own.is_some());
        let heard = self.heard.values();
        let silent = heard.filter(|(_, at)| silence(*at) > lease).count();
        if 2 * silent <= all {
            self.heard
                .retain(|_, (_, at)| silence(*at) <= GONE_LEASES * lease);
            for (node, at) in self.heard.values_mut() {
                if silence(*at) > lease {
                    node.standing = Standing::Unhealthy;
                    node.shed.asked = false;
                }
            }
        }
        self.heard.values().map(|(node, _)| node.clone()).collect()
    }
}

/// Total flow through the nodes that receive traffic. Nodes whose flow is unknown are assumed to carry as much per
/// bound as the others.
pub fn flow(nodes: &[Node]) -> Flow {
    let healthy = || nodes.iter().filter(|n| n.standing == Standing::Healthy);
    let known: Flow = healthy().filter_map(|node| node.flow).sum();
    let bound: f64 = healthy().map(|node| node.bound).sum();
    let scale = if known.bound > 0.0 {
        bound / known.bound
    } else {
        0.0
    };
    Flow {
        admitted: known.admitted * scale,
        ended: known.ended * scale,
        backlog: healthy()
            .map(|n| n.flow.map_or(n.backlog, |f| f.backlog))
            .sum(),
        bound,
    }
}

/// Fraction shed in force: the mean over the agents that proxies poll; 0 if there is none.
pub fn shed_in_force(nodes: &[Node]) -> f64 {
    let asked: Vec<f64> = nodes
        .iter()
        .filter(|node| node.shed.asked)
        .map(|node| node.shed.fraction)
        .collect();
    match asked.len() {
        0 => 0.0,
        n => asked.iter().sum::<f64>() / n as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::node::{Shed, Weight};

    const LEASE: Duration = Duration::from_secs(3);

    fn node(address: &str, bound: f64) -> Node {
        Node {
            address: address.into(),
            standing: Standing::Healthy,
            weight: Weight::Known(bound),
            bound,
            backlog: 5.0,
            flow: None,
            shed: Shed::default(),
        }
    }

    fn standings(nodes: &[Node]) -> Vec<(&str, Standing)> {
        nodes
            .iter()
            .map(|n| (n.address.as_str(), n.standing))
            .collect()
    }

    #[test]
    fn a_silent_node_is_unhealthy_then_gone_and_comes_back() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut known = Directory::default();
        known.hear(node("a:1", 1.0), start);
        for second in 0..40 {
            known.hear(node("b:1", 1.0), at(second));
            let others = known.others(Some("own:1"), LEASE, at(second));
            let b = ("b:1", Standing::Healthy);
            match second {
                0..=3 => assert_eq!(standings(&others), [("a:1", Standing::Healthy), b]),
                4..=30 => assert_eq!(standings(&others), [("a:1", Standing::Unhealthy), b]),
                _ => assert_eq!(standings(&others), [b]),
            }
        }
        known.hear(node("a:1", 1.0), at(40));
        assert_eq!(known.others(Some("own:1"), LEASE, at(40)).len(), 2);
    }

    #[test]
    fn an_agent_that_is_cut_off_does_not_blame_the_others() {
        let start = Instant::now();
        let mut known = Directory::default();
        for name in ["a:1", "b:1", "c:1"] {
            known.hear(node(name, 1.0), start);
        }
        let late = start + Duration::from_secs(1000);
        let others = known.others(Some("own:1"), LEASE, late);
        assert!(others.iter().all(|node| node.standing == Standing::Healthy) && others.len() == 3);
        // The others are heard again, so that c's silence is c's own.
        for name in ["a:1", "b:1"] {
            known.hear(node(name, 1.0), late);
        }
        assert_eq!(known.others(Some("own:1"), LEASE, late).len(), 2);
    }

    #[test]
    fn the_own_node_among_the_peers_is_not_listed_twice() {
        let mut known = Directory::default();
        let now = Instant::now();
        known.hear(node("own:1", 1.0), now);
        known.hear(node("a:1", 1.0), now);
        assert_eq!(known.others(Some("own:1"), LEASE, now).len(), 1);
    }

    #[test]
    fn weights_from_redis_stay_within_the_dead_band() {
        let now = Instant::now();
        let mut known = Directory::default();
        let mut weight = |bound, standing| {
            let mut said = node("a:1", bound);
            said.standing = standing;
            known.hear_of(said, now, 0.05);
            known.others(None, LEASE, now)[0].weight
        };
        for (bound, held) in [
            (100.0, 100.0),
            (104.0, 100.0),
            (106.0, 106.0),
            (101.0, 106.0),
        ] {
            assert_eq!(weight(bound, Standing::Healthy), Weight::Known(held));
        }
        assert_eq!(weight(0.0, Standing::Unhealthy), Weight::Known(106.0));
    }

    #[test]
    fn an_older_word_does_not_count_and_too_many_nodes_do_not_fit() {
        let now = Instant::now();
        let later = now + LEASE;
        let mut known = Directory::default();
        known.hear(node("a:1", 2.0), later);
        known.hear(node("a:1", 1.0), now);
        assert_eq!(known.others(None, LEASE, later)[0].bound, 2.0);
        for port in 0..2 * MAX_NODES {
            known.hear(node(&format!("b:{port}"), 1.0), now);
        }
        assert_eq!(known.others(None, LEASE, now).len(), MAX_NODES);
    }

    #[test]
    fn unknown_flow_is_as_that_of_the_others() {
        let carries = Flow {
            admitted: 8.0,
            ended: 6.0,
            backlog: 20.0,
            bound: 10.0,
        };
        let mut nodes = [node("a:1", 10.0), node("b:1", 30.0), node("c:1", 99.0)];
        nodes[0].flow = Some(carries);
        nodes[2].standing = Standing::Draining;
        let all = flow(&nodes);
        assert_eq!(
            all,
            Flow {
                admitted: 32.0,
                ended: 24.0,
                backlog: 25.0,
                bound: 40.0
            }
        );
        assert_eq!(flow(&[]), Flow::default());
    }

    #[test]
    fn what_is_in_force_is_what_asked_agents_say() {
        let mut nodes = [node("a:1", 1.0), node("b:1", 1.0), node("c:1", 1.0)];
        for (node, fraction) in nodes.iter_mut().zip([0.2, 0.4, 0.9]) {
            node.shed.fraction = fraction;
        }
        assert_eq!(shed_in_force(&nodes), 0.0);
        nodes[0].shed.asked = true;
        nodes[1].shed.asked = true;
        assert!((shed_in_force(&nodes) - 0.3).abs() < 1e-12);
    }
}
