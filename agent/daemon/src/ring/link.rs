//! One connection to Redis, and the calls of the function library over it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use plimsoll_core::ring::RingTable;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
};

use super::{
    exchange::{Answer, Dispatcher, Exchanged},
    follow::{Observations, RingNode, RingNodes, RingState},
};

use crate::config::host_port;

/// The function library, loaded where it is missing or older.
const LIBRARY: &str = include_str!("../../../../lua/redis/plimsoll.lua");
/// Its version, as `plimsoll_version` answers.
const LIBRARY_VERSION: i64 = 6;
/// The most a number may be, as in the library.
const MOST: f64 = 1e15;

/// How Redis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// One server, or several addresses of which one is to be written to.
    Single,
    /// The addresses are sentinels.
    Sentinel,
    /// The addresses are seeds of a Redis Cluster.
    Cluster,
}

/// How to reach Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// How it runs.
    pub mode: LinkMode,
    /// `redis://host:port`, `rediss://` for TLS.
    pub urls: Vec<String>,
    /// The name sentinels know it by.
    pub sentinel_master: String,
    /// ACL user.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Certificates that are trusted in place of the system's, PEM.
    pub ca: Option<Vec<u8>>,
    /// For connecting, and for each answer.
    pub timeout: Duration,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What an agent reports.
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
}

/// What a report is answered.
pub struct Reported {
    /// The ring's version, 0 while there is none.
    pub version: u64,
    /// What the proxies saw of this node.
    pub seen: Observations,
    /// The live nodes, where they were asked for.
    pub nodes: Option<RingNodes>,
}

/// A connection of one cluster; its clones share it.
#[derive(Clone)]
pub struct Link {
    connection: Connection,
    keys: [String; 5],
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("keys", &self.keys).finish()
    }
}

impl Link {
    /// Connects to the server that may be written to, and sees to the library.
    pub async fn open(settings: &LinkSettings, cluster: &str) -> anyhow::Result<Self> {
        // One that hangs must not keep the next from being tried.
        let limit = settings.timeout * (settings.urls.len() as u32 + 3);
        let connection = tokio::time::timeout(limit, connect(settings))
            .await
            .with_context(|| format!("no connection in {limit:?}"))??;
        let keys = ["nodes", "ring", "proxies", "shares", "observations"]
            .map(|part| format!("plimsoll:{{{cluster}}}:{part}"));
        let mut link = Link { connection, keys };
        link.load_library().await?;
        Ok(link)
    }

    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> anyhow::Result<T> {
        let value = match &mut self.connection {
            Connection::Single(connection) => connection.req_packed_command(command).await,
            Connection::Cluster(connection) => connection.req_packed_command(command).await,
        };
        let value = value?.extract_error()?;
        Ok(redis::from_redis_value(value)?)
    }

    /// Every command's answer, in one round trip; an error that Redis answers is one of them.
    async fn all(&mut self, commands: &Pipeline) -> anyhow::Result<Vec<Value>> {
        let count = commands.len();
        let answers = match &mut self.connection {
            Connection::Single(connection) => connection.req_packed_commands(commands, 0, count),
            Connection::Cluster(connection) => connection.req_packed_commands(commands, 0, count),
        };
        let answers = answers.await?;
        if answers.len() != count {
            bail!("{} answers to {count} calls", answers.len());
        }
        Ok(answers)
    }

    async fn load_library(&mut self) -> anyhow::Result<()> {
        let mut asked = redis::cmd("FCALL");
        asked.arg("plimsoll_version").arg(1).arg(&self.keys[0]);
        let there = match self.query::<Value>(&asked).await {
            Ok(Value::Int(version)) => version,
            Ok(_) => bail!(
                "its function plimsoll_version answers no number: another library has that name; see FUNCTION LIST"
            ),
            Err(error) if format!("{error:#}").contains("Function not found") => 0,
            Err(error) => return Err(error.context("asking for the function library")),
        };
        if there > LIBRARY_VERSION {
            bail!(
                "its library is of version {there}, this agent knows {LIBRARY_VERSION}: upgrade the agent"
            );
        }
        if there < LIBRARY_VERSION {
            let mut load = redis::cmd("FUNCTION");
            load.arg("LOAD").arg("REPLACE").arg(LIBRARY);
            self.query::<Value>(&load).await.map_err(|error| {
                // Redis takes one function of a name, whatever its library.
                let hint = match format!("{error:#}").contains("already exists") {
                    true => " (another library has a function of that name; see FUNCTION LIST)",
                    false => "",
                };
                error.context(format!("loading the function library{hint}"))
            })?;
        }
        Ok(())
    }

    /// The key that holds the ring.
    pub fn ring_key(&self) -> &str {
        &self.keys[1]
    }

    fn call(&self, function: &str) -> Cmd {
        let mut command = redis::cmd("FCALL");
        command.arg(function).arg(self.keys.len()).arg(&self.keys);
        command
    }

    /// Reports, and reads the live nodes where they are asked for.
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
            .arg(report.address.unwrap_or_default());
        let mut commands = redis::pipe();
        commands.add_command(command);
        if with_nodes {
            commands.add_command(self.call("plimsoll_nodes"));
        }
        let mut answers = self
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

    /// Hands the dispatchers' words to the library, and reads the live nodes. Where it refuses a call
    /// that is this dispatcher's answer; any other error is everybody's.
    pub async fn exchange(&mut self, dispatchers: &[Dispatcher]) -> anyhow::Result<Exchanged> {
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
        commands.add_command(self.call("plimsoll_nodes"));
        let mut answers = self.all(&commands).await.context("plimsoll_observe")?;
        let nodes = answers.pop().context("no answer")?;
        let mut answered = BTreeMap::new();
        for (dispatcher, answer) in dispatchers.iter().zip(answers) {
            let answer = match answer {
                Value::ServerError(error) => match refusal(&error) {
                    Some(problem) => Answer::Refused { problem },
                    None => return Err(redis::RedisError::from(error)).context("plimsoll_observe"),
                },
                answer => parse_shares(answer).context("plimsoll_observe")?,
            };
            answered.insert(dispatcher.name.clone(), answer);
        }
        let (version, nodes) = parse_nodes(nodes).context("plimsoll_nodes")?;
        Ok(Exchanged {
            version,
            nodes: Arc::new(nodes),
            dispatchers: answered,
        })
    }

    /// The ring, if there is one that holds together.
    pub async fn ring(&mut self) -> anyhow::Result<Option<RingState>> {
        let answer: Vec<Value> = self
            .query(&self.call("plimsoll_ring"))
            .await
            .context("plimsoll_ring")?;
        Ok(parse_ring(answer).ok())
    }

    /// Gives a Redis that lost its ring the last one known, under this version.
    pub async fn restore(
        &mut self,
        version: u64,
        ring: &RingState,
        settle: Duration,
    ) -> anyhow::Result<()> {
        let mut command = self.call("plimsoll_restore");
        command
            .arg(version)
            .arg(ring.table.slots())
            .arg(ring.names.join("\n"))
            .arg(ring.table.owners())
            .arg(settle.as_millis() as u64);
        self.query::<Value>(&command)
            .await
            .context("plimsoll_restore")?;
        Ok(())
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// A list that begins with the ring's version.
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

/// What the library itself says against a call.
fn refusal(error: &redis::ServerError) -> Option<String> {
    let said = error.details()?.strip_prefix("plimsoll: ")?;
    Some(said.to_owned())
}

fn parse_shares(answer: Value) -> anyhow::Result<Answer> {
    let (_, list) = parse_list(Some(answer))?;
    let Some((Value::Int(count), list)) = list.split_first() else {
        bail!("an answer that cannot be read");
    };
    let shares = list.chunks_exact(6);
    let granted = shares.filter_map(|words| Some((text(&words[0]), amount(&words[1])?)));
    Ok(Answer::Shares {
        count: u64::try_from(*count).unwrap_or(0),
        granted: granted.collect(),
    })
}

/// Leaves out what cannot be read.
fn parse_nodes(answer: Value) -> anyhow::Result<(u64, RingNodes)> {
    let (version, list) = parse_list(Some(answer))?;
    let mut nodes = BTreeMap::new();
    for words in list.chunks_exact(7) {
        let numbers: Vec<f64> = words[2..].iter().filter_map(amount).collect();
        if let [bound, bound_jobs, mean_cost, jobs, load] = numbers[..] {
            let node = RingNode {
                // Others build host lists and headers of it.
                address: host_port(&text(&words[1])).ok(),
                bound,
                bound_jobs,
                mean_cost,
                jobs,
                load,
            };
            nodes.insert(text(&words[0]), node);
        }
    }
    Ok((version, nodes))
}

fn amount(value: &Value) -> Option<f64> {
    let amount: f64 = text(value).parse().ok()?;
    (0.0..=MOST).contains(&amount).then_some(amount)
}

fn parse_ring(answer: Vec<Value>) -> anyhow::Result<RingState> {
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
    Ok(RingState { table, names })
}

fn login(settings: &LinkSettings) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = &settings.user {
        login = login.set_username(user);
    }
    if let Some(password) = &settings.password {
        login = login.set_password(password);
    }
    login
}

async fn connect(settings: &LinkSettings) -> anyhow::Result<Connection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.timeout))
        .set_response_timeout(Some(settings.timeout));
    if settings.mode == LinkMode::Cluster {
        return Ok(Connection::Cluster(cluster(settings).await?));
    }
    let mut problems = Vec::new();
    for url in &settings.urls {
        let address = url.as_str().into_connection_info()?;
        let opened = match settings.mode {
            LinkMode::Sentinel => through_sentinel(settings, address, &config).await,
            _ => writable(settings, address, &config).await,
        };
        match opened {
            Ok(connection) => return Ok(Connection::Single(connection)),
            Err(problem) => problems.push(format!("{url}: {}", chain(&problem))),
        }
    }
    bail!("{}", problems.join("; "))
}

/// What went wrong, each part once, and what can be done about it.
pub fn told(problem: &anyhow::Error) -> String {
    let text = chain(problem);
    let hint = HINTS.iter().find(|(sign, _)| text.contains(sign));
    hint.map_or(text.clone(), |(_, hint)| format!("{text} ({hint})"))
}

/// Redis' errors have themselves as their source.
fn chain(problem: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in problem.chain().map(ToString::to_string) {
        if !text.contains(&part) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = text + separator + &part;
        }
    }
    text
}

/// By what Redis or TLS say.
const HINTS: [(&str, &str); 7] = [
    (
        "UnknownIssuer",
        "its certificate is of no trusted authority, see redis.ca_file",
    ),
    (
        "AuthenticationFailed",
        "see redis.user and redis.password_file",
    ),
    ("NOAUTH", "see redis.password_file"),
    ("NoPerm", RIGHTS),
    ("can't run this command", RIGHTS),
    ("can't publish", RIGHTS),
    ("OOM", "Redis is full, see its maxmemory"),
];
const RIGHTS: &str = "the user lacks a right, docs/redis.md has the rule";

fn certificates(settings: &LinkSettings) -> TlsCertificates {
    TlsCertificates {
        client_tls: None,
        root_cert: settings.ca.clone(),
    }
}

async fn cluster(settings: &LinkSettings) -> anyhow::Result<ClusterConnection> {
    let seeds: Result<Vec<ConnectionInfo>, _> = settings
        .urls
        .iter()
        .map(|url| url.as_str().into_connection_info())
        .collect();
    let seeds = seeds?
        .into_iter()
        .map(|seed| seed.set_redis_settings(login(settings)));
    let mut client = ClusterClient::builder(seeds)
        .connection_timeout(settings.timeout)
        .response_timeout(settings.timeout)
        .retries(1);
    if settings.ca.is_some() {
        client = client.certs(certificates(settings));
    }
    Ok(client.build()?.get_async_connection().await?)
}

async fn open(
    settings: &LinkSettings,
    address: ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> anyhow::Result<MultiplexedConnection> {
    let client = match address.addr() {
        ConnectionAddr::TcpTls { .. } => Client::build_with_tls(address, certificates(settings))?,
        _ => Client::open(address)?,
    };
    Ok(client
        .get_multiplexed_async_connection_with_config(config)
        .await?)
}

/// Asks a sentinel for the master. Its word is checked: it may be behind.
async fn through_sentinel(
    settings: &LinkSettings,
    sentinel: ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> anyhow::Result<MultiplexedConnection> {
    let name = &settings.sentinel_master;
    let scheme = match sentinel.addr() {
        ConnectionAddr::TcpTls { .. } => "rediss",
        _ => "redis",
    };
    let mut asked = redis::cmd("SENTINEL");
    asked.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let mut connection = open(settings, sentinel, config).await?;
    let master: Option<(String, u16)> = asked.query_async(&mut connection).await?;
    let Some((host, port)) = master else {
        bail!("the sentinel knows no master {name:?}, see redis.sentinel_master");
    };
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host,
    };
    let master = format!("{scheme}://{host}:{port}");
    let address = master.as_str().into_connection_info()?;
    writable(settings, address, config)
        .await
        .with_context(|| format!("its master {master}"))
}

/// Refuses a replica: it would take the connection and refuse the writes.
async fn writable(
    settings: &LinkSettings,
    address: ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> anyhow::Result<MultiplexedConnection> {
    let address = address.set_redis_settings(login(settings));
    let mut connection = open(settings, address, config).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(connection),
        Some(Value::BulkString(role)) if role == b"sentinel" => {
            bail!("is a sentinel: set redis.mode = \"sentinel\"")
        }
        _ => bail!("is a replica, which takes no writes: name the master, or its sentinels"),
    }
}
