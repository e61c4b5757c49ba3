//! A connection to Redis, and the calls of the ring's function library.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use plimsoll_core::ring::RingTable;
use plimsoll_net::host_port;
use plimsoll_signal::sources::Observations;
use plimsoll_wire::{Dispatcher, Exchanged, Granted, LiveNode, MAX_NUMBER, Ring, ring_keys};
use redis::{Cmd, Value};

use super::{
    follow::{RingNode, RingNodes},
    server::Server,
    settings::LinkSettings,
};
use crate::functions;

/// Represents an unknown capacity.
const UNKNOWN: f64 = -1.0;

/// An agent's report.
pub struct Report<'a> {
    pub node: &'a str,
    pub instance: &'a str,
    pub bound: f64,
    pub bound_jobs: f64,
    pub mean_cost: f64,
    pub jobs: f64,
    pub load: f64,
    pub lease: Duration,
    pub slots: u32,
    pub dead_band: f64,
    pub settle: Duration,
    pub address: Option<&'a str>,
    /// Capacity that ring sizes are computed from, if known.
    pub capacity: Option<f64>,
}

/// Response to a report.
pub struct Reported {
    /// Version of the ring; 0 if there is none.
    pub version: u64,
    /// The proxies' observations of this node.
    pub seen: Observations,
    /// The live nodes, if requested.
    pub nodes: Option<RingNodes>,
}

/// A connection for one cluster, shared by its clones.
#[derive(Clone)]
pub struct Link {
    server: Server,
    keys: [String; 5],
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("keys", &self.keys).finish()
    }
}

impl Link {
    /// Connects to the writable server, and loads the library if needed.
    pub async fn open(settings: &LinkSettings, cluster: &str) -> anyhow::Result<Self> {
        let mut server = Server::open(settings).await?;
        let keys = ring_keys(cluster);
        server.load(&functions::RING, &keys[0]).await?;
        Ok(Link { server, keys })
    }

    /// The key of the ring.
    pub fn ring_key(&self) -> &str {
        &self.keys[1]
    }

    fn call(&self, function: &str) -> Cmd {
        let mut command = redis::cmd("FCALL");
        command.arg(function).arg(self.keys.len()).arg(&self.keys);
        command
    }

    fn nodes(&self) -> Cmd {
        nodes(&self.keys)
    }

    /// Reports, and reads the live nodes if requested.
    pub async fn report(
        &mut self,
        report: &Report<'_>,
        with_nodes: bool,
    ) -> anyhow::Result<Reported> {
        let mut command = self.call("plimsoll_report");
        command
            .arg(report.node)
            .arg(report.instance)
            .arg(report.bound)
            .arg(report.bound_jobs)
            .arg(report.mean_cost)
            .arg(report.jobs)
            .arg(report.load)
            .arg(report.lease.as_millis() as u64)
            .arg(report.slots)
            .arg(report.dead_band)
            .arg(report.settle.as_millis() as u64)
            .arg(report.address.unwrap_or_default())
            .arg(report.capacity.unwrap_or(UNKNOWN));
        let mut commands = redis::pipe();
        commands.add_command(command);
        if with_nodes {
            commands.add_command(self.nodes());
        }
        let mut answers = self
            .server
            .all(&commands)
            .await
            .context("plimsoll_report")?
            .into_iter();
        let (version, seen) = parse_report(answers.next()).context("plimsoll_report")?;
        let nodes = answers.next().map(parse_nodes).transpose();
        Ok(Reported {
            version,
            seen,
            nodes: nodes.context("plimsoll_nodes")?.map(|(_, nodes)| nodes),
        })
    }

    /// Relays the dispatchers' reports to the library, and reads the live nodes. A call that the library rejects
    /// fails for its dispatcher alone, any other error for all.
    pub async fn exchange(
        &mut self,
        dispatchers: &[Dispatcher],
    ) -> anyhow::Result<(Exchanged, RingNodes)> {
        let mut commands = redis::pipe();
        for dispatcher in dispatchers {
            let mut command = self.call("plimsoll_observe");
            command
                .arg(&dispatcher.name)
                .arg(&dispatcher.instance)
                .arg(dispatcher.lease_millis());
            for wish in &dispatcher.nodes {
                command
                    .arg(&wish.name)
                    .arg(format!("{:.6e}/{:.6e}", wish.demand, wish.held))
                    .arg(&wish.observation);
            }
            commands.add_command(command);
        }
        commands.add_command(self.nodes());
        let mut answers = self
            .server
            .all(&commands)
            .await
            .context("plimsoll_observe")?;
        let nodes = answers.pop().context("no answer")?;
        let mut answered = BTreeMap::new();
        for (dispatcher, answer) in dispatchers.iter().zip(answers) {
            let answer = match answer {
                Value::ServerError(error) => match refusal(&error) {
                    Some(problem) => Granted::Refused { problem },
                    None => return Err(redis::RedisError::from(error)).context("plimsoll_observe"),
                },
                answer => parse_shares(answer).context("plimsoll_observe")?,
            };
            answered.insert(dispatcher.name.clone(), answer);
        }
        let (version, nodes) = parse_nodes(nodes).context("plimsoll_nodes")?;
        let live = nodes.iter().map(|(name, node)| (name.clone(), live(node)));
        let exchanged = Exchanged {
            version,
            nodes: live.collect(),
            dispatchers: answered,
        };
        Ok((exchanged, nodes))
    }

    /// Reads the ring, if there is a consistent one.
    pub async fn ring(&mut self) -> anyhow::Result<Option<Ring>> {
        let command = self.call("plimsoll_ring");
        let answer: Vec<Value> = self.server.query(&command).await.context("plimsoll_ring")?;
        Ok(parse_ring(answer).ok())
    }

    /// Restores the last known ring, under this version, to a Redis that has lost it.
    pub async fn restore(
        &mut self,
        version: u64,
        ring: &Ring,
        settle: Duration,
    ) -> anyhow::Result<()> {
        let mut command = self.call("plimsoll_restore");
        command
            .arg(version)
            .arg(ring.table.slots())
            .arg(ring.names.join("\n"))
            .arg(ring.table.owners())
            .arg(settle.as_millis() as u64);
        self.server
            .query::<Value>(&command)
            .await
            .context("plimsoll_restore")?;
        Ok(())
    }
}

/// Version of the ring and its live nodes.
pub async fn live_nodes(
    server: &mut Server,
    keys: &[String; 5],
) -> anyhow::Result<(u64, RingNodes)> {
    let answer = server.query(&nodes(keys)).await.context("plimsoll_nodes")?;
    parse_nodes(answer).context("plimsoll_nodes")
}

fn nodes(keys: &[String; 5]) -> Cmd {
    let mut command = redis::cmd("FCALL");
    command.arg("plimsoll_nodes").arg(keys.len()).arg(keys);
    command.arg("capacity");
    command
}

fn live(node: &RingNode) -> LiveNode {
    LiveNode {
        address: node.address.clone(),
        bound_jobs: node.bound_jobs,
        mean_cost: node.mean_cost,
        jobs: node.jobs,
        load: node.load,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Parses a list that begins with the ring's version.
fn parse_list(answer: Option<Value>) -> anyhow::Result<(u64, Vec<Value>)> {
    let answer = answer.context("no answer")?.extract_error()?;
    let mut list: Vec<Value> = redis::from_redis_value(answer)?;
    match list.first() {
        Some(Value::Int(version)) => {
            let version = u64::try_from(*version).unwrap_or(0);
            list.remove(0);
            Ok((version, list))
        }
        _ => bail!("an answer that cannot be read"),
    }
}

fn parse_report(answer: Option<Value>) -> anyhow::Result<(u64, Observations)> {
    let (version, list) = parse_list(answer)?;
    let seen = list.chunks_exact(2);
    let seen = seen.map(|pair| (text(&pair[0]), text(&pair[1])));
    Ok((version, seen.collect()))
}

/// Extracts the function library's own error message.
fn refusal(error: &redis::ServerError) -> Option<String> {
    let said = error.details()?.strip_prefix("plimsoll: ")?;
    Some(said.to_owned())
}

fn parse_shares(answer: Value) -> anyhow::Result<Granted> {
    let (_, list) = parse_list(Some(answer))?;
    let Some((Value::Int(count), list)) = list.split_first() else {
        bail!("an answer that cannot be read");
    };
    let shares = list.chunks_exact(6);
    let granted = shares.filter_map(|words| Some((text(&words[0]), amount(&words[1])?)));
    Ok(Granted::Shares {
        count: u64::try_from(*count).unwrap_or(0),
        granted: granted.collect(),
    })
}

/// Skips nodes that cannot be parsed.
fn parse_nodes(answer: Value) -> anyhow::Result<(u64, RingNodes)> {
    let (version, list) = parse_list(Some(answer))?;
    let mut nodes = BTreeMap::new();
    for words in list.chunks_exact(8) {
        let numbers: Vec<f64> = words[2..7].iter().filter_map(amount).collect();
        if let [bound, bound_jobs, mean_cost, jobs, load] = numbers[..] {
            let node = RingNode {
                // Host lists and headers are built from it.
                address: host_port(&text(&words[1])).ok(),
                bound,
                bound_jobs,
                mean_cost,
                jobs,
                load,
                capacity: amount(&words[7]).filter(|capacity| *capacity > 0.0),
            };
            nodes.insert(text(&words[0]), node);
        }
    }
    Ok((version, nodes))
}

fn amount(value: &Value) -> Option<f64> {
    let amount: f64 = text(value).parse().ok()?;
    (0.0..=MAX_NUMBER).contains(&amount).then_some(amount)
}

fn parse_ring(answer: Vec<Value>) -> anyhow::Result<Ring> {
    let [version, _, names, owners]: [Value; 4] = answer
        .try_into()
        .map_err(|_| anyhow::anyhow!("not four parts"))?;
    let version: u64 = redis::from_redis_value(version)?;
    let names: String = redis::from_redis_value(names)?;
    let owners: Vec<u8> = redis::from_redis_value(owners)?;
    let names: Vec<String> = names.split('\n').map(str::to_owned).collect();
    let table = RingTable::from_owners(version, names.len(), owners)?;
    let mut sizes = names.iter().zip(table.sizes());
    if sizes.any(|(name, size)| name.is_empty() && size > 0) {
        bail!("an owner without a name");
    }
    Ok(Ring { table, names })
}
