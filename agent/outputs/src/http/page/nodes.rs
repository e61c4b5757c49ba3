//! The other nodes of a service, as this agent knows them.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_node::ring::{RingNode, RingNodes};

use super::figures::{UNKNOWN, age, figure};
use crate::envoy::{Node, Standing, Weight};

/// Rows that are shown; those that take no traffic come first.
const MAX_ROWS: usize = 100;

/// Sources of what is known.
pub struct Others<'a> {
    /// From their agents, or from Redis; and when.
    pub heard: Vec<(Node, Instant)>,
    /// From Redis, and when.
    pub ring: Option<(Arc<RingNodes>, Instant)>,
    /// This node's address.
    pub own: Option<&'a str>,
    /// Time after which a node counts as silent.
    pub lease: Duration,
    /// The time that ages refer to.
    pub now: Instant,
}

/// One other node.
#[derive(Debug, Default, PartialEq)]
pub struct NodeRow {
    /// In the ring, else its address.
    pub name: String,
    /// Next to its name.
    pub address: Option<String>,
    /// In words.
    pub state: String,
    /// Whether it takes traffic, as far as is known.
    pub is_well: bool,
    /// Whether it was not heard for a lease.
    is_silent: bool,
    /// In cost units.
    pub bound: String,
    /// In cost units.
    pub backlog: String,
    /// In cost units.
    pub capacity: String,
    /// Time since it was heard.
    pub heard: String,
}

impl Others<'_> {
    /// Rows to show, and how many are left out.
    pub fn rows(&self) -> (Vec<NodeRow>, usize) {
        let heard: BTreeSet<&str> = self.heard.iter().map(|(it, _)| &*it.address).collect();
        let known = |node: &RingNode| {
            let address = node.address.as_deref();
            address.is_some_and(|it| heard.contains(it) || self.own == Some(it))
        };
        let of_ring = |(nodes, at): &(Arc<RingNodes>, Instant)| {
            let strangers = nodes.iter().filter(|(_, node)| !known(node));
            strangers
                .map(|(name, node)| self.ring_row(name, node, *at))
                .collect()
        };
        let mut rows: Vec<NodeRow> = self.ring.as_ref().map_or_else(Vec::new, of_ring);
        rows.extend(self.heard.iter().map(|(node, at)| self.row(node, *at)));
        rows.sort_by(|a, b| (a.is_well, &a.name).cmp(&(b.is_well, &b.name)));
        let left_out = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        (rows, left_out)
    }

    fn row(&self, node: &Node, at: Instant) -> NodeRow {
        let state = match node.standing {
            Standing::Healthy if node.bound > 0.0 => "up",
            // Nodes that are obeyed have a bound.
            Standing::Healthy => "observed only",
            Standing::Unhealthy => "down",
            Standing::Draining => "drained",
        };
        let name = self.name_of(&node.address);
        let capacity = match node.weight {
            Weight::Known(capacity) => Some(capacity),
            Weight::OfMean(_) => None,
        };
        let is_bounded = node.bound > 0.0;
        let seen = self.seen(state, node.standing == Standing::Healthy, at);
        let figures = [
            is_bounded.then_some(node.bound),
            is_bounded.then_some(node.backlog),
            capacity,
        ];
        NodeRow {
            name: name.unwrap_or(&node.address).to_owned(),
            address: name.map(|_| node.address.clone()),
            ..seen.with(figures)
        }
    }

    fn ring_row(&self, name: &str, node: &RingNode, at: Instant) -> NodeRow {
        let is_bounded = node.bound > 0.0;
        let state = if is_bounded { "up" } else { "down or drained" };
        let figures = [
            is_bounded.then_some(node.bound),
            Some(node.jobs * node.mean_cost),
            node.capacity,
        ];
        NodeRow {
            name: name.to_owned(),
            address: node.address.clone(),
            ..self.seen(state, is_bounded, at).with(figures)
        }
    }

    fn seen(&self, state: &str, is_well: bool, at: Instant) -> NodeRow {
        let silence = self.now.saturating_duration_since(at);
        let is_silent = silence > self.lease;
        NodeRow {
            state: match is_silent {
                true => format!("silent, was {state}"),
                false => state.to_owned(),
            },
            is_well: is_well && !is_silent,
            is_silent,
            heard: age(silence),
            ..NodeRow::default()
        }
    }

    fn name_of(&self, address: &str) -> Option<&str> {
        let (nodes, _) = self.ring.as_ref()?;
        let mut nodes = nodes.iter();
        let found = nodes.find(|(_, node)| node.address.as_deref() == Some(address));
        found.map(|(name, _)| name.as_str())
    }
}

impl NodeRow {
    /// With bound, backlog and capacity; those of a silent node are not its figures now.
    fn with(self, figures: [Option<f64>; 3]) -> Self {
        let is_known = !self.is_silent;
        let worded = |it: Option<f64>| it.filter(|_| is_known).map_or(UNKNOWN.to_owned(), figure);
        let [bound, backlog, capacity] = figures.map(worded);
        NodeRow {
            bound,
            backlog,
            capacity,
            ..self
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::envoy::Shed;

    const LEASE: Duration = Duration::from_secs(3);

    fn node(address: &str, standing: Standing, bound: f64) -> Node {
        Node {
            address: address.to_owned(),
            standing,
            weight: Weight::Known(bound),
            bound,
            backlog: 2.0,
            flow: None,
            shed: Shed::default(),
        }
    }

    fn in_ring(address: Option<&str>) -> RingNode {
        RingNode {
            address: address.map(str::to_owned),
            bound: 30.0,
            bound_jobs: 15.0,
            mean_cost: 2.0,
            jobs: 4.0,
            load: 0.5,
            capacity: None,
        }
    }

    fn others(heard: Vec<(Node, Instant)>, ring: RingNodes, now: Instant) -> Others<'static> {
        Others {
            heard,
            ring: Some((Arc::new(ring), now)),
            own: Some("192.0.2.11:80"),
            lease: LEASE,
            now,
        }
    }

    #[test]
    fn a_node_has_one_row_whoever_told_of_it_and_this_one_has_none() {
        let now = Instant::now();
        let heard = vec![(node("192.0.2.12:80", Standing::Healthy, 40.0), now)];
        let ring = [
            ("a", Some("192.0.2.11:80")),
            ("b", Some("192.0.2.12:80")),
            ("c", None),
        ];
        let ring = ring.map(|(name, address)| (name.to_owned(), in_ring(address)));
        let (rows, left_out) = others(heard, ring.into(), now).rows();
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    &*row.name,
                    row.address.as_deref(),
                    &*row.bound,
                    &*row.backlog,
                )
            })
            .collect();
        let expected = [
            ("b", Some("192.0.2.12:80"), "40", "2"),
            ("c", None, "30", "8"),
        ];
        assert_eq!((shown.as_slice(), left_out), (expected.as_slice(), 0));
        assert_eq!((&*rows[0].capacity, &*rows[1].capacity), ("40", UNKNOWN));
    }

    #[test]
    fn a_silent_node_is_not_shown_as_it_was() {
        let now = Instant::now() + 10 * LEASE;
        let heard = [
            ("192.0.2.12:80", Standing::Healthy, 40.0, now),
            ("192.0.2.13:80", Standing::Healthy, 40.0, now - 2 * LEASE),
            ("192.0.2.14:80", Standing::Healthy, 0.0, now),
            ("192.0.2.15:80", Standing::Draining, 40.0, now),
        ];
        let heard =
            heard.map(|(address, standing, bound, at)| (node(address, standing, bound), at));
        let (rows, _) = others(heard.into(), RingNodes::new(), now).rows();
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (&*row.name, &*row.state, &*row.heard))
            .collect();
        let expected = [
            ("192.0.2.13:80", "silent, was up", "6s"),
            ("192.0.2.15:80", "drained", "0s"),
            ("192.0.2.12:80", "up", "0s"),
            ("192.0.2.14:80", "observed only", "0s"),
        ];
        assert_eq!(shown, expected);
        let bounds: Vec<_> = rows.iter().map(|row| &*row.bound).collect();
        assert_eq!(bounds, [UNKNOWN, "40", "40", UNKNOWN]);
    }

    #[test]
    fn those_that_take_no_traffic_are_not_left_out() {
        let now = Instant::now();
        let nodes = (0..150).map(|n| {
            let standing = match n {
                149 => Standing::Unhealthy,
                _ => Standing::Healthy,
            };
            (node(&format!("192.0.2.12:{n:04}"), standing, 1.0), now)
        });
        let (rows, left_out) = others(nodes.collect(), RingNodes::new(), now).rows();
        assert_eq!((rows.len(), left_out), (MAX_ROWS, 50));
        assert_eq!(rows[0].name, "192.0.2.12:0149");
    }
}
