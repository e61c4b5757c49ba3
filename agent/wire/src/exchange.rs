//! `POST /v1/observe`: dispatchers report their observations of nodes and receive shares of the nodes' bounds.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::dispatch::NodeReport;
use serde::{Deserialize, Serialize};

use crate::{
    LEASE_SECONDS, MAX_DISPATCHERS, MAX_NAME_BYTES, MAX_NODES, MAX_OBSERVATION_BYTES, is_address,
    is_amount, is_name,
};

/// The request body: reports from a proxy's dispatchers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Service whose ring is meant; optional if the agent follows only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// At most [`MAX_DISPATCHERS`], with unique names.
    pub dispatchers: Vec<Dispatcher>,
}

/// One dispatcher's report for a period.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatcher {
    /// Name, unique in the cluster.
    pub name: String,
    /// Distinguishes this run of the dispatcher from earlier ones.
    pub instance: String,
    /// Time without another exchange after which its shares expire, within [`LEASE_SECONDS`]; 0 expires them at once.
    pub lease_seconds: f64,
    /// Demand and observations by node; at most [`MAX_NODES`], with unique names.
    pub nodes: Vec<Wish>,
}

/// A dispatcher's demand and observations for one node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Name of the node.
    pub name: String,
    /// Cost that the dispatcher wanted to send to the node in the last period, including refused work.
    pub demand: f64,
    /// Cost that it may have in flight at the node until it receives its new share.
    #[serde(default)]
    pub held: f64,
    /// Observations of its requests, as a line of `plimsoll_core::dispatch::Observed`.
    pub observation: String,
}

/// The response body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Exchanged {
    /// Version of the ring; 0 if there is none.
    pub version: u64,
    /// All live nodes by name.
    pub nodes: BTreeMap<String, LiveNode>,
    /// Results by dispatcher.
    pub dispatchers: BTreeMap<String, Granted>,
}

/// A live node, as last reported by its agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LiveNode {
    /// "host:port" that proxies connect to, if its agent knows it.
    pub address: Option<String>,
    /// Backlog bound in jobs; 0 if the node is down or drained.
    pub bound_jobs: f64,
    /// Mean cost of a request, in cost units.
    pub mean_cost: f64,
    /// Active requests.
    pub jobs: f64,
    /// Delay over the SLA's target.
    pub load: f64,
}

/// The result for one dispatcher.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Granted {
    /// The function library rejected the call.
    Refused {
        /// Reason for the rejection.
        problem: String,
    },
    /// The dispatcher's shares.
    Shares {
        /// Number of live dispatchers in the cluster.
        count: u64,
        /// Cost it may have in flight, by node; live nodes only.
        granted: BTreeMap<String, f64>,
    },
}

impl Dispatcher {
    /// The lease in milliseconds, as the function library takes it.
    pub fn lease_millis(&self) -> u64 {
        (1000.0 * self.lease_seconds).round() as u64
    }
}

impl Exchange {
    /// Rejects what the function library in Redis would reject; each error names the field.
    pub fn check(&self) -> Result<(), String> {
        at_most("dispatchers", self.dispatchers.len(), MAX_DISPATCHERS)?;
        let mut names = BTreeSet::new();
        for (i, dispatcher) in self.dispatchers.iter().enumerate() {
            let path = format!("dispatchers[{i}]");
            check_name(&format!("{path}.name"), &dispatcher.name)?;
            once(&mut names, &format!("{path}.name"), &dispatcher.name)?;
            check_name(&format!("{path}.instance"), &dispatcher.instance)?;
            let lease = dispatcher.lease_seconds;
            if lease != 0.0 && !LEASE_SECONDS.contains(&lease) {
                let (least, most) = (LEASE_SECONDS.start(), LEASE_SECONDS.end());
                return Err(format!(
                    "{path}.lease_seconds: must be 0, or from {least} to {most}, is {lease}"
                ));
            }
            at_most(&format!("{path}.nodes"), dispatcher.nodes.len(), MAX_NODES)?;
            let mut nodes = BTreeSet::new();
            for (i, wish) in dispatcher.nodes.iter().enumerate() {
                let path = format!("{path}.nodes[{i}]");
                wish.check(&path)?;
                once(&mut nodes, &format!("{path}.name"), &wish.name)?;
            }
        }
        Ok(())
    }
}

impl Wish {
    fn check(&self, path: &str) -> Result<(), String> {
        check_name(&format!("{path}.name"), &self.name)?;
        for (field, value) in [("demand", self.demand), ("held", self.held)] {
            if !is_amount(value) {
                return Err(format!(
                    "{path}.{field}: must be from 0 to 1e15, is {value}"
                ));
            }
        }
        let printable = |b: u8| b == b' ' || b.is_ascii_graphic();
        let text = &self.observation;
        if text.len() > MAX_OBSERVATION_BYTES || !text.bytes().all(printable) {
            return Err(format!(
                "{path}.observation: must be at most {MAX_OBSERVATION_BYTES} printable ASCII characters"
            ));
        }
        Ok(())
    }
}

impl From<NodeReport> for Wish {
    fn from(report: NodeReport) -> Self {
        Wish {
            name: report.name,
            demand: report.demand,
            held: report.held,
            observation: report.observation,
        }
    }
}

impl Exchanged {
    /// Parses a response body; the error names the field.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let answer: Exchanged =
            serde_json::from_slice(body).map_err(|problem| problem.to_string())?;
        if answer.nodes.len() > MAX_NODES {
            return Err(format!(
                "nodes: {}, maximum {MAX_NODES}",
                answer.nodes.len()
            ));
        }
        for (name, node) in &answer.nodes {
            if !is_name(name) {
                return Err("nodes: malformed name".to_owned());
            }
            let numbers = [node.bound_jobs, node.mean_cost, node.jobs, node.load];
            if !numbers.into_iter().all(is_amount) {
                return Err(format!("nodes.{name}: numbers must be within 0..1e15"));
            }
            if !node.address.as_deref().is_none_or(is_address) {
                return Err(format!("nodes.{name}.address: malformed"));
            }
        }
        for (name, dispatcher) in &answer.dispatchers {
            if let Granted::Shares { granted, .. } = dispatcher
                && !granted.values().copied().all(is_amount)
            {
                return Err(format!(
                    "dispatchers.{name}.granted: must be within 0..1e15"
                ));
            }
        }
        Ok(answer)
    }
}

fn at_most(path: &str, count: usize, most: usize) -> Result<(), String> {
    match count <= most {
        true => Ok(()),
        false => Err(format!("{path}: {count}, maximum {most}")),
    }
}

fn check_name(path: &str, text: &str) -> Result<(), String> {
    match is_name(text) {
        true => Ok(()),
        false => Err(format!(
            "{path}: must be 1 to {MAX_NAME_BYTES} of A-Za-z0-9._:/-"
        )),
    }
}

fn once<'a>(seen: &mut BTreeSet<&'a str>, path: &str, text: &'a str) -> Result<(), String> {
    match seen.insert(text) {
        true => Ok(()),
        false => Err(format!("{path}: duplicate {text:?}")),
    }
}
