//! What goes between agents, the VM that talks to them, and the workers. Nothing in it is trusted.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::{
    dispatch::{NodeReport, NodeShare},
    ring::{MAX_NODES, MAX_SLOTS, NOBODY, RingDelta, RingTable},
    wire::{MAX_DISPATCHERS, MAX_NUMBER},
};
use serde::{Deserialize, Serialize};

use crate::config::is_name;

const MAX_ADDRESS: usize = 255;

/// What a worker tells the VM that talks to agents.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Told {
    /// Changes with every telling.
    pub beat: u64,
    /// The dispatcher's name.
    pub name: String,
    /// The number of the shares that it knew.
    pub taken: u64,
    /// Tells it apart from an earlier one of that name.
    pub instance: String,
    /// Cost in flight.
    pub in_flight: f64,
    /// Requests in flight.
    pub requests: u64,
    /// Of each node.
    pub nodes: Vec<ToldNode>,
}

/// What a worker tells of one node.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct ToldNode {
    name: String,
    demand: f64,
    held: f64,
    observation: String,
}

impl Told {
    /// It told this before it could know of its newest shares: it may hold all that it ever was granted.
    pub fn hold_all(&mut self) {
        for node in &mut self.nodes {
            node.held = MAX_NUMBER;
        }
    }
}

impl From<NodeReport> for ToldNode {
    fn from(report: NodeReport) -> Self {
        ToldNode {
            name: report.name,
            demand: report.demand,
            held: report.held,
            observation: report.observation,
        }
    }
}

#[derive(Serialize)]
struct Exchange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    dispatchers: Vec<ExchangeDispatcher<'a>>,
}

#[derive(Serialize)]
struct ExchangeDispatcher<'a> {
    name: &'a str,
    instance: &'a str,
    lease_seconds: f64,
    nodes: Vec<ExchangeNode<'a>>,
}

#[derive(Serialize)]
struct ExchangeNode<'a> {
    name: &'a str,
    demand: f64,
    held: f64,
    observation: &'a str,
}

/// The body of `POST /v1/observe`. Each dispatcher asks for the `live` nodes too, also those that it does
/// not know yet.
pub fn exchange(service: Option<&str>, lease: f64, told: &[Told], live: &[String]) -> Vec<u8> {
    let dispatchers = told.iter().map(|told| {
        let known: BTreeSet<&str> = told.nodes.iter().map(|node| node.name.as_str()).collect();
        let new = live.iter().filter(|name| !known.contains(name.as_str()));
        let told_of = told.nodes.iter().map(|node| ExchangeNode {
            name: &node.name,
            demand: node.demand,
            held: node.held,
            observation: &node.observation,
        });
        let mut nodes: Vec<ExchangeNode> = told_of.collect();
        nodes.extend(new.map(|name| ExchangeNode {
            name,
            demand: 0.0,
            // A worker that knows nothing of it may have been granted a share that it has not seen yet.
            held: MAX_NUMBER,
            observation: "2 0 0 0 0 - -",
        }));
        nodes.truncate(MAX_NODES);
        ExchangeDispatcher {
            name: &told.name,
            instance: &told.instance,
            lease_seconds: lease,
            nodes,
        }
    });
    let exchange = Exchange {
        service,
        dispatchers: dispatchers.take(MAX_DISPATCHERS).collect(),
    };
    serde_json::to_vec(&exchange).unwrap_or_default()
}

/// An agent's answer to an exchange.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// The ring's, 0 where there is none.
    pub version: u64,
    nodes: BTreeMap<String, AnswerNode>,
    dispatchers: BTreeMap<String, AnswerDispatcher>,
}

#[derive(Debug, Deserialize)]
struct AnswerNode {
    address: Option<String>,
    bound_jobs: f64,
    mean_cost: f64,
    jobs: f64,
    load: f64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum AnswerDispatcher {
    Refused {
        problem: String,
    },
    Granted {
        count: u64,
        granted: BTreeMap<String, f64>,
    },
}

/// What a dispatcher is granted.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Shares {
    /// Dispatchers, this one among them.
    pub count: u64,
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
    /// Whether it may send nothing anywhere: the others have not given anything up yet.
    pub fn are_none(&self) -> bool {
        self.nodes.iter().all(|share| share.granted <= 0.0)
    }

    /// For the dispatcher.
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

impl Answer {
    /// Reads an answer; what is wrong with it otherwise.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let mut answer: Answer =
            serde_json::from_slice(body).map_err(|problem| problem.to_string())?;
        if answer.nodes.len() > MAX_NODES {
            return Err(format!("{} nodes: at most {MAX_NODES}", answer.nodes.len()));
        }
        for (name, node) in &mut answer.nodes {
            if !is_name(name) {
                return Err("a node's name is none".to_owned());
            }
            let numbers = [node.bound_jobs, node.mean_cost, node.jobs, node.load];
            if !numbers
                .iter()
                .all(|number| (0.0..=MAX_NUMBER).contains(number))
            {
                return Err(format!("nodes.{name}: numbers must be within 0..1e15"));
            }
            if node
                .address
                .as_deref()
                .is_some_and(|address| !is_address(address))
            {
                return Err(format!("nodes.{name}.address: is none"));
            }
        }
        for (name, dispatcher) in &answer.dispatchers {
            if let AnswerDispatcher::Granted { granted, .. } = dispatcher
                && !granted
                    .values()
                    .all(|granted| (0.0..=MAX_NUMBER).contains(granted))
            {
                return Err(format!(
                    "dispatchers.{name}.granted: must be within 0..1e15"
                ));
            }
        }
        Ok(answer)
    }

    /// The live nodes' names.
    pub fn live(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// What a dispatcher is granted, or why it is not.
    pub fn shares(&self, dispatcher: &str) -> Result<Shares, &str> {
        match self.dispatchers.get(dispatcher) {
            None => Err("the agent's answer is without it"),
            Some(AnswerDispatcher::Refused { problem }) => Err(problem),
            Some(AnswerDispatcher::Granted { count, granted }) => {
                let share = |(name, granted): (&String, &f64)| {
                    let node = self.nodes.get(name)?;
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
                    count: *count,
                    nodes: granted.iter().filter_map(share).collect(),
                })
            }
        }
    }
}

/// It goes into a list of addresses in a header.
fn is_address(address: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-[]".contains(&byte);
    (1..=MAX_ADDRESS).contains(&address.len()) && address.bytes().all(good)
}

/// A ring and the names of its nodes by index, empty where an index is free.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    /// Slots and version.
    pub table: RingTable,
    /// Names.
    pub names: Vec<String>,
}

/// `GET /v1/ring`.
#[derive(Debug, Deserialize)]
pub struct RingView {
    version: u64,
    slots: u32,
    nodes: Vec<String>,
    owners: Option<Vec<u32>>,
    since: Option<u64>,
    changes: Option<Vec<[u32; 3]>>,
}

impl RingView {
    /// Reads an answer; what is wrong with it otherwise.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let view: RingView = serde_json::from_slice(body).map_err(|problem| problem.to_string())?;
        if !(1..=MAX_SLOTS).contains(&view.slots) {
            return Err(format!(
                "slots: {} is not within 1..={MAX_SLOTS}",
                view.slots
            ));
        }
        if view.nodes.len() > MAX_NODES {
            return Err(format!("nodes: {}, at most {MAX_NODES}", view.nodes.len()));
        }
        let mut seen = BTreeSet::new();
        for name in view.nodes.iter().filter(|name| !name.is_empty()) {
            if !is_name(name) {
                return Err("nodes: a name is none".to_owned());
            }
            if !seen.insert(name) {
                return Err(format!("nodes: {name} is there twice"));
            }
        }
        Ok(view)
    }

    /// The ring's version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The ring it shows, going on from `held` where it shows changes only.
    pub fn ring(self, held: Option<&Ring>) -> Result<Ring, String> {
        let table = match (&self.owners, &self.changes, self.since) {
            (Some(runs), _, _) => self.whole(runs)?,
            (None, Some(changes), Some(since)) => {
                let held = held.ok_or("changes, but there is no ring to change")?;
                self.changed(held, changes, since)?
            }
            _ => return Err("neither owners nor changes".to_owned()),
        };
        let unnamed = |owner: &u8| {
            *owner != NOBODY
                && self
                    .nodes
                    .get(usize::from(*owner))
                    .is_none_or(String::is_empty)
        };
        if let Some(owner) = table.owners().iter().find(|owner| unnamed(owner)) {
            return Err(format!("owner {owner} is no node of this ring"));
        }
        Ok(Ring {
            table,
            names: self.nodes,
        })
    }

    fn whole(&self, runs: &[u32]) -> Result<RingTable, String> {
        let mut owners = Vec::with_capacity(self.slots as usize);
        for run in runs.chunks(2) {
            let &[owner, count] = run else {
                return Err("owners: an odd number of them".to_owned());
            };
            let owner = u8::try_from(owner).map_err(|_| format!("owners: {owner} is none"))?;
            if count as usize > self.slots as usize - owners.len() {
                return Err("owners: more than slots".to_owned());
            }
            owners.resize(owners.len() + count as usize, owner);
        }
        if owners.len() != self.slots as usize {
            return Err("owners: fewer than slots".to_owned());
        }
        let table = RingTable::from_owners(self.version, self.nodes.len(), owners);
        table.map_err(|problem| problem.to_string())
    }

    fn changed(&self, held: &Ring, changes: &[[u32; 3]], since: u64) -> Result<RingTable, String> {
        if held.table.slots() != self.slots {
            return Err("changes of a ring of another size".to_owned());
        }
        let mut moves = Vec::new();
        for [first, count, owner] in changes {
            let owner =
                u8::try_from(*owner).map_err(|_| format!("changes: {owner} is no owner"))?;
            let end = first.checked_add(*count).filter(|end| *end <= self.slots);
            let end = end.ok_or("changes: a slot beyond the table")?;
            if moves.len() + *count as usize > self.slots as usize {
                return Err("changes: more than slots".to_owned());
            }
            moves.extend((*first..end).map(|slot| (slot, owner)));
        }
        let delta = RingDelta {
            from: since,
            to: self.version,
            moves,
        };
        let mut table = held.table.clone();
        let applied = table.apply(&delta, self.nodes.len());
        applied.map_err(|problem| problem.to_string())?;
        Ok(table)
    }
}

impl Ring {
    /// As workers get it: version, number of names, each with its length, owners.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.table.version().to_le_bytes().to_vec();
        bytes.push(self.names.len() as u8);
        for name in &self.names {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(self.table.owners());
        bytes
    }

    /// See [`Ring::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let (count, mut rest) = rest.split_first()?;
        let mut names = Vec::with_capacity(usize::from(*count));
        for _ in 0..*count {
            let (length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            names.push(std::str::from_utf8(name).ok()?.to_owned());
            rest = after;
        }
        let version = u64::from_le_bytes(*version);
        let table = RingTable::from_owners(version, names.len(), rest.to_vec()).ok()?;
        Some(Ring { table, names })
    }
}
