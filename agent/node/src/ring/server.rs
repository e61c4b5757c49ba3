//! A connection to the writable Redis server, and the libraries it needs.

use super::settings::{LinkMode, LinkSettings};
use crate::functions::Library;
use anyhow::{Context, bail};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo,
    FromRedisValue, IntoConnectionInfo, Pipeline, RedisConnectionInfo, TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};

/// A connection to the server, shared by its clones.
#[derive(Clone)]
pub struct Server(Connection);

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Connects to the writable server.
    pub async fn open(settings: &LinkSettings) -> anyhow::Result<Self> {
        // A server that hangs must not keep the next from being tried.
        let limit = settings.timeout * (settings.urls.len() as u32 + 3);
        let connection = tokio::time::timeout(limit, connect(settings))
            .await
            .with_context(|| format!("no connection in {limit:?}"))??;
        Ok(Server(connection))
    }

    /// Sends one command.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> anyhow::Result<T> {
        let value = match &mut self.0 {
            Connection::Single(connection) => connection.req_packed_command(command).await,
            Connection::Cluster(connection) => connection.req_packed_command(command).await,
        };
        let value = value?.extract_error()?;
        Ok(redis::from_redis_value(value)?)
    }

    /// Sends a command without keys to the writable server that has this key.
    pub async fn query_at<T: FromRedisValue>(
        &mut self,
        command: Cmd,
        key: &str,
    ) -> anyhow::Result<T> {
        let value = match &mut self.0 {
            Connection::Single(connection) => connection.req_packed_command(&command).await,
            Connection::Cluster(connection) => {
                let route = Route::with_key(key, SlotAddr::Master);
                let node = SingleNodeRoutingInfo::SpecificNode(route);
                let routing = RoutingInfo::SingleNode(node);
                connection.route_command(command, routing).await
            }
        };
        let value = value?.extract_error()?;
        Ok(redis::from_redis_value(value)?)
    }

    /// Sends all commands in one round trip; each response may be an error.
    pub async fn all(&mut self, commands: &Pipeline) -> anyhow::Result<Vec<Value>> {
        let count = commands.len();
        let answers = match &mut self.0 {
            Connection::Single(connection) => connection.req_packed_commands(commands, 0, count),
            Connection::Cluster(connection) => connection.req_packed_commands(commands, 0, count),
        };
        let answers = answers.await?;
        if answers.len() != count {
            bail!("{} answers to {count} calls", answers.len());
        }
        Ok(answers)
    }

    /// Loads a library if it is missing or older; `key` is one of the keys it is called with.
    pub async fn load(&mut self, library: &Library, key: &str) -> anyhow::Result<()> {
        let Library {
            text,
            asks,
            version,
        } = *library;
        let mut asked = redis::cmd("FCALL");
        asked.arg(asks).arg(1).arg(key);
        let there = match self.query::<Value>(&asked).await {
            Ok(Value::Int(version)) => version,
            Ok(_) => bail!(
                "its function {asks} does not return a number: another library has that name; see FUNCTION LIST"
            ),
            Err(error) if format!("{error:#}").contains("Function not found") => 0,
            Err(error) => return Err(error.context("querying the function library")),
        };
        if there > version {
            bail!(
                "its library has version {there}, this agent supports {version}: upgrade the agent"
            );
        }
        if there < version {
            let mut load = redis::cmd("FUNCTION");
            load.arg("LOAD").arg("REPLACE").arg(text);
            self.query::<Value>(&load).await.map_err(|error| {
                // A function's name must be unique across all libraries.
                let hint = match format!("{error:#}").contains("already exists") {
                    true => " (another library has a function of that name; see FUNCTION LIST)",
                    false => "",
                };
                error.context(format!("loading the function library{hint}"))
            })?;
        }
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

/// The error with each part once, and a hint for fixing it.
pub fn told(problem: &anyhow::Error) -> String {
    let text = chain(problem);
    let hint = HINTS.iter().find(|(sign, _)| text.contains(sign));
    hint.map_or(text.clone(), |(_, hint)| format!("{text} ({hint})"))
}

/// Redis errors list themselves as their source.
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

/// Hints by messages of Redis or TLS.
const HINTS: [(&str, &str); 9] = [
    (
        "CertificateRequired",
        "it requires a client certificate, see redis.certificate_file",
    ),
    (
        "UnknownIssuer",
        "its certificate is not signed by a trusted CA, see redis.ca_file",
    ),
    (
        "AuthenticationFailed",
        "see redis.user and redis.password_file",
    ),
    ("NOAUTH", "see redis.password_file"),
    ("NoPerm", RIGHTS),
    // Error of a function's own commands, before Redis 7.2 and since.
    ("can't run this command", RIGHTS),
    ("can't publish", RIGHTS),
    ("ACL failure in script", RIGHTS),
    ("OOM", "Redis is full, see its maxmemory"),
];
const RIGHTS: &str = "the user lacks a right, docs/redis.md has the rule";

/// The certificates in force.
fn certificates(settings: &LinkSettings) -> TlsCertificates {
    let texts = settings.tls.as_ref().map(|tls| tls.texts());
    let own = texts.as_ref().and_then(|texts| texts.own.clone());
    TlsCertificates {
        client_tls: own.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: texts.and_then(|texts| texts.authorities.clone()),
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
    if settings.tls.is_some() {
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

/// Asks a sentinel for the master, and verifies its answer, which may be outdated.
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
        bail!("the sentinel does not know master {name:?}, see redis.sentinel_master");
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

/// Rejects a replica, which would accept the connection and reject the writes.
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
        _ => bail!("is a replica, which accepts no writes: name the master, or its sentinels"),
    }
}
