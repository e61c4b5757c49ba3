//! One connection to Redis, and the calls of the function library over it.

use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll_core::ring::RingTable;
use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, TlsMode, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};

use super::follow::{Observations, RingState};

/// The function library, loaded where it is missing or older.
const LIBRARY: &str = include_str!("../../../../lua/redis/plimsoll.lua");
/// Its version, as `plimsoll_version` answers.
const LIBRARY_VERSION: i64 = 1;

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
    /// For connecting, and for each answer.
    pub timeout: Duration,
}

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
}

/// A connection of one cluster.
pub struct Link {
    connection: Connection,
    keys: [String; 5],
}

impl Link {
    /// Connects to the server that may be written to, and sees to the library.
    pub async fn open(settings: &LinkSettings, cluster: &str) -> anyhow::Result<Self> {
        let limit = 4 * settings.timeout;
        let connection = tokio::time::timeout(limit, connect(settings))
            .await
            .context("no connection in time")??;
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

    async fn load_library(&mut self) -> anyhow::Result<()> {
        let mut asked = redis::cmd("FCALL");
        asked.arg("plimsoll_version").arg(1).arg(&self.keys[0]);
        let there = match self.query::<i64>(&asked).await {
            Ok(version) => version,
            Err(error) if format!("{error:#}").contains("Function not found") => 0,
            Err(error) => return Err(error),
        };
        if there > LIBRARY_VERSION {
            bail!(
                "its library is of version {there}, this agent knows {LIBRARY_VERSION}: upgrade the agent"
            );
        }
        if there < LIBRARY_VERSION {
            let mut load = redis::cmd("FUNCTION");
            load.arg("LOAD").arg("REPLACE").arg(LIBRARY);
            self.query::<Value>(&load)
                .await
                .context("loading the function library")?;
        }
        Ok(())
    }

    fn call(&self, function: &str) -> Cmd {
        let mut command = redis::cmd("FCALL");
        command.arg(function).arg(self.keys.len()).arg(&self.keys);
        command
    }

    /// Reports; the ring's version, 0 while there is none, and what the proxies saw.
    pub async fn report(&mut self, report: &Report<'_>) -> anyhow::Result<(u64, Observations)> {
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
            .arg(report.settle.as_millis() as u64);
        let answer: Vec<Value> = self.query(&command).await?;
        let Some((Value::Int(version), seen)) = answer.split_first() else {
            bail!("an answer that cannot be read");
        };
        let text = |value: &Value| match value {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        let seen = seen
            .chunks_exact(2)
            .map(|pair| (text(&pair[0]), text(&pair[1])));
        Ok((u64::try_from(*version).unwrap_or(0), seen.collect()))
    }

    /// The ring, if there is one.
    pub async fn ring(&mut self) -> anyhow::Result<Option<RingState>> {
        let answer: Vec<Value> = self.query(&self.call("plimsoll_ring")).await?;
        if answer.is_empty() {
            return Ok(None);
        }
        let [version, _, names, owners]: [Value; 4] = answer
            .try_into()
            .map_err(|_| anyhow::anyhow!("a ring that cannot be read"))?;
        let version: u64 = redis::from_redis_value(version)?;
        let names: String = redis::from_redis_value(names)?;
        let owners: Vec<u8> = redis::from_redis_value(owners)?;
        let names: Vec<String> = names.split('\n').map(str::to_owned).collect();
        let table = RingTable::from_owners(version, names.len(), owners)?;
        Ok(Some(RingState { table, names }))
    }

    /// Gives a Redis that lost its ring the last one known.
    pub async fn restore(&mut self, ring: &RingState, settle: Duration) -> anyhow::Result<()> {
        let mut command = self.call("plimsoll_restore");
        command
            .arg(ring.table.version())
            .arg(ring.table.slots())
            .arg(ring.names.join("\n"))
            .arg(ring.table.owners())
            .arg(settle.as_millis() as u64);
        self.query::<Value>(&command).await?;
        Ok(())
    }
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
    let addresses: Vec<ConnectionInfo> = settings
        .urls
        .iter()
        .map(|url| url.as_str().into_connection_info())
        .collect::<Result<_, _>>()?;
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.timeout))
        .set_response_timeout(Some(settings.timeout));
    match settings.mode {
        LinkMode::Cluster => {
            let seeds = addresses
                .into_iter()
                .map(|seed| seed.set_redis_settings(login(settings)));
            let client = ClusterClient::builder(seeds)
                .connection_timeout(settings.timeout)
                .response_timeout(settings.timeout)
                .retries(1)
                .build()?;
            Ok(Connection::Cluster(client.get_async_connection().await?))
        }
        LinkMode::Sentinel => {
            let tls = addresses
                .iter()
                .any(|a| matches!(a.addr(), ConnectionAddr::TcpTls { .. }));
            let mut node =
                SentinelNodeConnectionInfo::default().set_redis_connection_info(login(settings));
            if tls {
                node = node.set_tls_mode(TlsMode::Secure);
            }
            let mut client = SentinelClient::build(
                addresses,
                settings.sentinel_master.clone(),
                Some(node),
                SentinelServerType::Master,
            )?;
            let connection = client.get_async_connection_with_config(&config).await?;
            Ok(Connection::Single(connection))
        }
        LinkMode::Single => {
            let mut problems = Vec::new();
            for (url, address) in settings.urls.iter().zip(addresses) {
                match writable(address.set_redis_settings(login(settings)), &config).await {
                    Ok(connection) => return Ok(Connection::Single(connection)),
                    Err(problem) => problems.push(format!("{url}: {problem:#}")),
                }
            }
            bail!("{}", problems.join("; "))
        }
    }
}

/// Refuses a replica: it would take the connection and refuse the writes.
async fn writable(
    address: ConnectionInfo,
    config: &redis::AsyncConnectionConfig,
) -> anyhow::Result<MultiplexedConnection> {
    let client = Client::open(address)?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(config)
        .await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(connection),
        _ => bail!("is a replica"),
    }
}
