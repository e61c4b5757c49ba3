//! The configuration of `plimsoll gather`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use plimsoll_core::gather::{MAX_NAME_BYTES, MAX_PARTITIONS};
use plimsoll_settings::{
    Checked, ConfigError, HttpSection, Level, LogFormat, MILLI, at, duration, log_format,
    log_level, networks, token, wrong,
};
use serde::Deserialize;

use crate::{map::Map, partition::MAX_DEADLINE};

/// Nodes that serve one partition.
const MAX_REPLICAS: usize = 8;

/// A valid configuration with every default filled in.
#[derive(Clone, Debug)]
pub struct GatherConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may connect; everybody without.
    pub allow: Option<Vec<IpNet>>,
    /// What callers must show.
    pub token: Option<String>,
    /// What agents must be shown.
    pub agents_token: Option<String>,
    /// Least severe level that is logged.
    pub log_level: Level,
    /// Text or JSON.
    pub log_format: LogFormat,
    /// Whether callers may ask any query, where the agents let them.
    pub free_sql: bool,
    /// Gathers at once.
    pub at_once: usize,
    /// Of a gather that says none.
    pub deadline: Duration,
    /// That a gather may say.
    pub max_deadline: Duration,
    /// What is under way at the end has so long.
    pub shutdown_grace: Duration,
    /// In the order of the file; at least one.
    pub partitions: Vec<Served>,
}

/// A partition and who serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its name.
    pub name: String,
    /// Nodes that have the same rows; at least one.
    pub nodes: Vec<NodeAddress>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The node's name.
    pub name: String,
    /// Host and port of the agent's HTTP.
    pub address: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    gather: Gather,
    #[serde(default)]
    http: HttpSection,
    #[serde(default)]
    agents: Agents,
    nodes: BTreeMap<String, String>,
    #[serde(default)]
    partition: Vec<Partition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gather {
    log_level: Option<String>,
    log_format: Option<String>,
    map_file: Option<PathBuf>,
    #[serde(default)]
    free_sql: bool,
    at_once: Option<usize>,
    #[serde(default, with = "humantime_serde")]
    deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    max_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    shutdown_grace: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agents {
    token_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partition {
    name: String,
    nodes: Vec<String>,
}

impl GatherConfig {
    /// Reads and checks a file, and the map it names.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::whole_file(path, error.to_string()))?;
        Self::parse(path, &text)
    }

    /// Checks a text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = plimsoll_settings::deserialize(path, text)?;
        resolve(file).map_err(|wrong| plimsoll_settings::point_at(path, text, wrong))
    }
}

fn resolve(file: File) -> Checked<GatherConfig> {
    let File {
        gather,
        http,
        agents,
        nodes,
        partition,
    } = file;
    for (name, address) in &nodes {
        let key = format!("nodes.{name}");
        check_name(&key, name)?;
        at(&key, plimsoll_net::host_port(address))?;
    }
    let partitions = match &gather.map_file {
        Some(_) if !partition.is_empty() => {
            let problem = "there is gather.map_file, which has the partitions already";
            return wrong("partition", problem);
        }
        Some(file) => mapped(file, &nodes)?,
        None => written(partition, &nodes)?,
    };
    let at_once = gather.at_once.unwrap_or(32);
    if !(1..=256).contains(&at_once) {
        let problem = format!("must be from 1 to 256, is {at_once}");
        return wrong("gather.at_once", problem);
    }
    let least = 10 * MILLI;
    let key = "gather.max_deadline";
    let max_deadline = duration(key, gather.max_deadline, MAX_DEADLINE, least)?;
    if max_deadline > MAX_DEADLINE {
        return wrong(key, "must be at most 1m: agents take no longer one");
    }
    let default = Duration::from_secs(10).min(max_deadline);
    let deadline = duration("gather.deadline", gather.deadline, default, least)?;
    if deadline > max_deadline {
        let problem = "must not be longer than gather.max_deadline";
        return wrong("gather.deadline", problem);
    }
    let has_token = http.token_file.is_some();
    if gather.free_sql && !has_token {
        let problem = "needs http.token_file: not everybody may ask anything";
        return wrong("gather.free_sql", problem);
    }
    let listen = http.listen.as_deref().unwrap_or("127.0.0.1:9470");
    let grace = Duration::from_secs(10);
    Ok(GatherConfig {
        listen: at("http.listen", plimsoll_net::address(listen))?,
        allow: networks("http.allow", http.allow.as_deref())?,
        token: token("http.token_file", http.token_file.as_deref())?,
        agents_token: token("agents.token_file", agents.token_file.as_deref())?,
        log_level: log_level("gather.log_level", gather.log_level.as_deref())?,
        log_format: log_format("gather.log_format", gather.log_format.as_deref())?,
        free_sql: gather.free_sql,
        at_once,
        deadline,
        max_deadline,
        shutdown_grace: duration(
            "gather.shutdown_grace",
            gather.shutdown_grace,
            grace,
            Duration::ZERO,
        )?,
        partitions,
    })
}

fn check_name(key: &str, name: &str) -> Checked<()> {
    let fine = name.bytes().all(|byte| byte.is_ascii_graphic());
    match fine && (1..=MAX_NAME_BYTES).contains(&name.len()) {
        true => Ok(()),
        false => {
            let problem = format!("a name must be 1 to {MAX_NAME_BYTES} visible ASCII characters");
            wrong(key, problem)
        }
    }
}

/// Partitions of `[[partition]]`.
fn written(raw: Vec<Partition>, nodes: &BTreeMap<String, String>) -> Checked<Vec<Served>> {
    if !(1..=MAX_PARTITIONS).contains(&raw.len()) {
        let count = raw.len();
        let problem = format!(
            "must be 1 to {MAX_PARTITIONS} partitions, or there must be gather.map_file: are {count}"
        );
        return wrong("partition", problem);
    }
    let mut names = BTreeSet::new();
    let mut partitions = Vec::with_capacity(raw.len());
    for (index, Partition { name, nodes: at }) in raw.into_iter().enumerate() {
        let key = |field: &str| format!("partition[{index}].{field}");
        check_name(&key("name"), &name)?;
        if !names.insert(name.clone()) {
            return wrong(key("name"), format!("there are two partitions {name:?}"));
        }
        if !(1..=MAX_REPLICAS).contains(&at.len()) {
            let problem = format!("must be 1 to {MAX_REPLICAS} nodes, are {}", at.len());
            return wrong(key("nodes"), problem);
        }
        let mut replicas = Vec::with_capacity(at.len());
        for (place, node) in at.into_iter().enumerate() {
            let key = key(&format!("nodes[{place}]"));
            let replica = replica(&key, node, nodes)?;
            if replicas.contains(&replica) {
                return wrong(key, format!("node {:?} is there twice", replica.name));
            }
            replicas.push(replica);
        }
        partitions.push(Served {
            name,
            nodes: replicas,
        });
    }
    Ok(partitions)
}

/// Those of a map that `plimsoll partition` wrote.
fn mapped(file: &Path, nodes: &BTreeMap<String, String>) -> Checked<Vec<Served>> {
    let key = "gather.map_file";
    let told = |error: anyhow::Error| format!("{error:#}");
    let map = at(key, Map::read(file).map_err(told))?;
    let known: Vec<String> = nodes.keys().cloned().collect();
    if let Some(fault) = map.faults(&known).first() {
        return wrong(key, format!("{}: {fault}", file.display()));
    }
    let served = map.parts.into_iter().map(|part| {
        let node = replica(key, part.node, nodes)?;
        Ok(Served {
            name: part.name,
            nodes: vec![node],
        })
    });
    served.collect()
}

fn replica(key: &str, name: String, nodes: &BTreeMap<String, String>) -> Checked<NodeAddress> {
    match nodes.get(&name) {
        Some(address) => Ok(NodeAddress {
            address: address.clone(),
            name,
        }),
        None => wrong(key, format!("node {name:?} is not in [nodes]")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn known(text: &str) -> Vec<String> {
        let error = GatherConfig::parse(Path::new("x"), text).unwrap_err();
        plimsoll_settings::expected(&error.to_string())
    }

    /// Keys by table.
    fn documented() -> BTreeMap<String, Vec<String>> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scatter.md");
        let guide = std::fs::read_to_string(file).unwrap();
        let rows = guide
            .lines()
            .skip_while(|line| !line.starts_with("| key |"));
        let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
        let mut tables = BTreeMap::<String, Vec<String>>::new();
        for row in rows {
            let names = row.split('|').nth(1).unwrap();
            for name in names.split('`').skip(1).step_by(2) {
                let (table, key) = name.split_once('.').unwrap();
                tables
                    .entry(table.to_owned())
                    .or_default()
                    .push(key.to_owned());
            }
        }
        tables
    }

    #[test]
    fn the_guide_has_every_key_and_no_other() {
        let mut documented = documented();
        let tables: Vec<_> = documented.keys().cloned().collect();
        assert_eq!(tables, known("zzz = 1\n"));
        // Whatever they are called.
        assert_eq!(documented.remove("nodes").unwrap(), ["NAME"]);
        for (table, mut keys) in documented {
            let header = match table.as_str() {
                "partition" => "[[partition]]".to_owned(),
                _ => format!("[{table}]"),
            };
            keys.sort();
            assert_eq!(keys, known(&format!("{header}\nzzz = 1\n")), "{table}");
        }
    }
}
