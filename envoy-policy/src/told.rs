//! Messages between the workers and the exchanger.

use std::collections::BTreeSet;

use plimsoll_core::dispatch::NodeShare;
use plimsoll_wire::{
    Dispatcher, Exchange, Exchanged, Granted, MAX_DISPATCHERS, MAX_NODES, MAX_NUMBER, Wish,
};
use serde::{Deserialize, Serialize};

/// A worker's report.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Told {
    /// Changes with every report.
    pub beat: u64,
    /// When it was made, seconds of the worker's clock; 0 in reports of earlier versions.
    #[serde(default)]
    pub at: f64,
    /// Name of the dispatcher.
    pub name: String,
    /// Number of the shares that it had.
    pub taken: u64,
    /// Distinguishes it from an earlier dispatcher of the same name.
    pub instance: String,
    /// Cost in flight.
    pub in_flight: f64,
    /// Requests in flight.
    pub requests: u64,
    /// Demand and observations by node.
    pub nodes: Vec<Wish>,
}

impl Told {
    /// Marks a report made before the worker knew its newest shares: it may hold everything it was ever granted.
    pub fn hold_all(&mut self) {
        for node in &mut self.nodes {
            node.held = MAX_NUMBER;
        }
    }
}

/// The body of `POST /v1/observe`. Each dispatcher also requests shares of `live` nodes that it does not know yet.
pub fn exchange(service: Option<&str>, lease: f64, told: Vec<Told>, live: &[String]) -> Vec<u8> {
    let dispatchers = told.into_iter().map(|told| {
        let mut nodes = told.nodes;
        let known: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let new = live.iter().filter(|name| !known.contains(name.as_str()));
        let new: Vec<Wish> = new.map(|name| wish_of_new(name)).collect();
        nodes.extend(new);
        nodes.truncate(MAX_NODES);
        Dispatcher {
            name: told.name,
            instance: told.instance,
            lease_seconds: lease,
            nodes,
        }
    });
    let exchange = Exchange {
        service: service.map(str::to_owned),
        dispatchers: dispatchers.take(MAX_DISPATCHERS).collect(),
    };
    serde_json::to_vec(&exchange).unwrap_or_default()
}

fn wish_of_new(name: &str) -> Wish {
    Wish {
        name: name.to_owned(),
        demand: 0.0,
        // The worker may have been granted a share of it that it has not seen yet.
        held: MAX_NUMBER,
        observation: "3 0 0 0 0 - - 0 0 0".to_owned(),
    }
}

/// Shares granted to a dispatcher.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Shares {
    /// Number of dispatchers, including this one.
    pub count: u64,
    /// When the report that they answer was made, seconds of the worker's clock; 0 in shares of earlier versions.
    #[serde(default)]
    pub asked_at: f64,
    nodes: Vec<Share>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Share {
    name: String,
    address: String,
    granted: f64,
    bound_jobs: f64,
    mean_cost: f64,
    jobs: f64,
    load: f64,
}

impl Shares {
    /// Extracts a dispatcher's shares from an agent's answer to its report of `asked_at`; the error is the reason why it
    /// has none.
    pub fn of<'a>(answer: &'a Exchanged, dispatcher: &str, asked_at: f64) -> Result<Self, &'a str> {
        let (count, granted) = match answer.dispatchers.get(dispatcher) {
            None => return Err("the agent's answer is without it"),
            Some(Granted::Refused { problem }) => return Err(problem),
            Some(Granted::Shares { count, granted }) => (*count, granted),
        };
        let share = |(name, granted): (&String, &f64)| {
            let node = answer.nodes.get(name)?;
            Some(Share {
                name: name.clone(),
                address: node.address.clone().unwrap_or_default(),
                granted: *granted,
                bound_jobs: node.bound_jobs,
                mean_cost: node.mean_cost,
                jobs: node.jobs,
                load: node.load,
            })
        };
        Ok(Shares {
            count,
            asked_at,
            nodes: granted.iter().filter_map(share).collect(),
        })
    }

    /// Whether all shares are 0: the other dispatchers have not given anything up yet.
    pub fn are_none(&self) -> bool {
        self.nodes.iter().all(|share| share.granted <= 0.0)
    }

    /// Converts the shares for the dispatcher.
    pub fn nodes(self) -> Vec<NodeShare> {
        let share = |share: Share| NodeShare {
            name: share.name,
            address: share.address,
            granted: share.granted,
            bound_jobs: share.bound_jobs,
            mean_cost: share.mean_cost,
            jobs: share.jobs,
            load: share.load,
        };
        self.nodes.into_iter().map(share).collect()
    }
}
