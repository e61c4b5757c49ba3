//! The configuration of `plimsoll gather`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use plimsoll_core::MAX_NAME_BYTES;
use plimsoll_net::{Caller, ClientTls, HttpUrl, ServerTls, Tokens, http_or_https_url};
use plimsoll_settings::{
    Checked, ConfigError, HttpSection, KeyReference, Level, LogFormat, MILLI, ServerTlsSection,
    SharedTls, TableReference, TlsSection, TokensSection, at, duration, log_format, log_level,
    networks, server_tls, table, tokens, wrong,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::MAX_PARTITIONS;
use crate::{map::Map, partition::MAX_DEADLINE};

/// Maximum nodes that serve one partition.
const MAX_REPLICAS: usize = 8;

/// A valid configuration with every default filled in.
#[derive(Clone, Debug)]
pub struct GatherConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Networks whose clients may connect; `None` for all.
    pub allow: Option<Vec<IpNet>>,
    /// Bearer tokens that callers must send.
    pub tokens: Tokens,
    /// Credentials for the agents.
    pub agents: Caller,
    /// TLS of the server, if it has any.
    pub tls: Option<ServerTls>,
    /// TLS of the program that checks this server's health.
    pub health_tls: Option<ClientTls>,
    /// Lowest level that is logged.
    pub log_level: Level,
    /// Format of the log.
    pub log_format: LogFormat,
    /// Whether callers may send SQL, if the agents permit it.
    pub free_sql: bool,
    /// Maximum concurrent gathers.
    pub at_once: usize,
    /// Default deadline of a gather.
    pub deadline: Duration,
    /// Maximum deadline that a gather may state.
    pub max_deadline: Duration,
    /// Time at shutdown for running gathers to end.
    pub shutdown_grace: Duration,
    /// Partitions in the order of the file; at least one.
    pub partitions: Vec<Served>,
}

/// Partition with the nodes that serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Name of the partition.
    pub name: String,
    /// Nodes with the same rows; at least one.
    pub nodes: Vec<NodeAddress>,
}

/// Address of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// Name of the node.
    pub name: String,
    /// The agent's HTTP server.
    pub url: HttpUrl,
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
    #[serde(default)]
    tls: TlsSection,
    nodes: BTreeMap<String, String>,
    #[serde(default)]
    partition: Vec<Partition>,
}

/// Gathers, and the process as a whole.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[gather]")]
struct Gather {
    /// In place of `[[partition]]`: a map that `plimsoll partition` wrote ([partitioning.md](partitioning.md)). Its
    /// parts are the partitions, each at the node that it has there. Read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    map_file: Option<PathBuf>,
    /// Whether callers may send SQL of their own (`sql`); the agents must permit it, too. Needs `http.token_file` or
    /// `[http.tokens]`.
    #[schemars(extend("x-values" = "`true`, `false`", "x-default" = "`false`"))]
    #[serde(default)]
    free_sql: bool,
    /// Maximum concurrent gathers; more are answered 429. Each opens one connection per partition: allow the process
    /// that many open files, and 600 more.
    #[schemars(extend("x-values" = "1 to 256", "x-default" = "`32`"))]
    at_once: Option<usize>,
    /// Deadline of a gather that sets none.
    #[schemars(with = "String", extend("x-values" = "duration, 10ms to `max_deadline`", "x-default" = "`\"10s\"`, at most `max_deadline`"))]
    #[serde(default, with = "humantime_serde")]
    deadline: Option<Duration>,
    /// Maximum deadline that a gather may set.
    #[schemars(with = "String", extend("x-values" = "duration, 10ms to 1m", "x-default" = "`\"1m\"`"))]
    #[serde(default, with = "humantime_serde")]
    max_deadline: Option<Duration>,
    /// Time that running gathers are given after a SIGTERM; new connections are no longer accepted.
    #[schemars(with = "String", extend("x-values" = "duration, 0s to 1day", "x-default" = "`\"10s\"`"))]
    #[serde(default, with = "humantime_serde")]
    shutdown_grace: Option<Duration>,
    /// Lowest level that is logged, to standard error.
    #[schemars(extend("x-values" = "`error`, `warn`, `info`, `debug`, `trace`", "x-default" = "`\"info\"`"))]
    log_level: Option<String>,
    /// Format of log lines. Needs a restart to change.
    #[schemars(extend("x-values" = "`text`, `json`", "x-default" = "`\"text\"`"))]
    log_format: Option<String>,
}

/// Credentials for the agents of all nodes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents]")]
struct Agents {
    /// File with a token of the agents with the role `write`, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    token_file: Option<PathBuf>,
}

/// A partition and the nodes that serve it; 1 to 256 of these tables, unless `gather.map_file` is set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[partition]]")]
struct Partition {
    /// The name in the agents' `[[partition]]`; unique.
    #[schemars(extend("x-values" = "1 to 128 visible ASCII characters", "x-default" = "required"))]
    name: String,
    /// Nodes whose databases have the same rows of this partition; they are queried in turn.
    #[schemars(extend("x-values" = "1 to 8 names of `[nodes]`", "x-default" = "required"))]
    nodes: Vec<String>,
}

impl GatherConfig {
    /// Reads and validates a file, and the map that it names.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::whole_file(path, error.to_string()))?;
        Self::parse(path, &text)
    }

    /// Parses and validates a text; `path` is for messages.
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
        tls,
        nodes,
        partition,
    } = file;
    let nodes = nodes.into_iter().map(|(name, address)| {
        let key = format!("nodes.{name}");
        check_name(&key, &name)?;
        Ok((name, at(&key, agent_url(&address))?))
    });
    let nodes: BTreeMap<String, HttpUrl> = nodes.collect::<Checked<_>>()?;
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
    let tokens = tokens(&http)?;
    let shared_tls = SharedTls::new(&tls)?;
    let tls = server_tls(http.tls.as_ref())?;
    if gather.free_sql && tokens.is_empty() {
        let problem = "needs http.token_file or [http.tokens]: not everybody may ask anything";
        return wrong("gather.free_sql", problem);
    }
    let listen = http.listen.as_deref().unwrap_or("127.0.0.1:9470");
    let grace = Duration::from_secs(10);
    Ok(GatherConfig {
        listen: at("http.listen", plimsoll_net::address(listen))?,
        allow: networks("http.allow", http.allow.as_deref())?,
        tokens,
        agents: shared_tls.caller(
            "agents.token_file",
            agents.token_file.as_deref(),
            nodes.values(),
        )?,
        health_tls: tls.is_some().then(|| shared_tls.get()).transpose()?,
        tls,
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

/// URL of an agent, by its host and port or by itself.
fn agent_url(text: &str) -> Result<HttpUrl, String> {
    if !text.contains("://") {
        plimsoll_net::host_port(text)?;
        return http_or_https_url(&format!("http://{text}"));
    }
    http_or_https_url(text).and_then(|url| match &*url.path {
        "/" => Ok(url),
        _ => Err(format!("must be without a path, is {text:?}")),
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

/// Partitions from the `[[partition]]` tables.
fn written(raw: Vec<Partition>, nodes: &BTreeMap<String, HttpUrl>) -> Checked<Vec<Served>> {
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
                return wrong(key, format!("duplicate node {:?}", replica.name));
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

/// Partitions from a map that `plimsoll partition` wrote.
fn mapped(file: &Path, nodes: &BTreeMap<String, HttpUrl>) -> Checked<Vec<Served>> {
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

fn replica(key: &str, name: String, nodes: &BTreeMap<String, HttpUrl>) -> Checked<NodeAddress> {
    match nodes.get(&name) {
        Some(url) => Ok(NodeAddress {
            url: url.clone(),
            name,
        }),
        None => wrong(key, format!("node {name:?} is not in [nodes]")),
    }
}

/// Reference of the configuration.
pub fn reference() -> [TableReference; 8] {
    [
        table::<HttpSection>(),
        table::<TokensSection>(),
        table::<ServerTlsSection>(),
        table::<Agents>(),
        table::<TlsSection>(),
        nodes_reference(),
        table::<Partition>(),
        table::<Gather>(),
    ]
}

/// The names are the operator's.
fn nodes_reference() -> TableReference {
    TableReference {
        header: "[nodes]".to_owned(),
        about: "The agents that are asked, one a node; at least one.".to_owned(),
        keys: vec![KeyReference {
            key: "NAME".to_owned(),
            values: "host:port, or `https://host:port`".to_owned(),
            default: "required".to_owned(),
            meaning: "The node's name, 1 to 128 visible ASCII characters, and the `http.listen` of its agent.".to_owned(),
        }],
    }
}
