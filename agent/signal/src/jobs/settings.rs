//! `[service.jobs]`: the source of the number of jobs.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use plimsoll_exposition::{Labels, Selector};
use plimsoll_net::{DatabaseAddress, HttpUrl};
use plimsoll_settings::{
    Checked, MAX_NAME, MILLI, READ_TIMEOUT, Secret, at, duration, metric_name, only_for, required,
    secret, wrong,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Source of the number of jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum JobsConfig {
    /// No source: the number is unknown.
    None,
    /// A Prometheus gauge.
    Prometheus {
        /// Metric name.
        gauge: String,
        /// Labels that its series must have.
        labels: Labels,
        /// URL of the gauge; `None` if it is in the scrape of the delay source.
        url: Option<HttpUrl>,
        /// Timeout of a scrape of `url`.
        timeout: Duration,
    },
    /// Established TCP connections to a local port.
    Sockets {
        /// Local port, 1 to 65535.
        port: u16,
        /// Interval between samples.
        sample_interval: Duration,
    },
    /// Number of active clients of a database.
    Database(DatabaseConfig),
}

impl JobsConfig {
    /// Selector of the gauge in the scrape of the delay source, if it is there.
    pub fn in_scrape(&self) -> Option<Selector> {
        match self {
            JobsConfig::Prometheus {
                gauge,
                labels,
                url: None,
                ..
            } => Some(Selector::new(gauge, labels)),
            _ => None,
        }
    }
}

/// Sampling of the connections that wait to be accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct BacklogConfig {
    /// The listening socket.
    pub socket: ListenSocket,
    /// Interval between samples.
    pub sample_interval: Duration,
    /// True if `service.jobs` configures it. Otherwise the agent derived the port, and failures are not counted.
    pub is_asked: bool,
    /// True if the agent's own scrapes pass through the same listen queue.
    pub has_scrapes: bool,
}

/// The socket that a service listens on.
#[derive(Clone, Debug, PartialEq)]
pub enum ListenSocket {
    /// The first of these TCP ports that has a listener.
    Ports(Vec<u16>),
    /// The unix socket at this absolute path.
    Unix(PathBuf),
}

/// A database to query for its number of active clients, or for its role.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseConfig {
    /// Configuration table it belongs to, `jobs` or `role`; also the kind of its errors.
    pub table: &'static str,
    /// Protocol of the database.
    pub kind: DatabaseKind,
    /// TCP address or unix socket.
    pub address: DatabaseAddress,
    /// User to log in as.
    pub user: String,
    /// Password of `user`.
    pub password: Option<Secret>,
    /// Timeout of each query.
    pub timeout: Duration,
}

/// Supported database protocols.
#[derive(Clone, Debug, PartialEq)]
pub enum DatabaseKind {
    /// MySQL or MariaDB.
    MySql,
    /// PostgreSQL.
    PostgreSql {
        /// Database to connect to. Clients of all databases of the server count.
        database: String,
    },
}

impl std::fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DatabaseKind::MySql => "mysql",
            DatabaseKind::PostgreSql { .. } => "postgresql",
        })
    }
}

/// Source of the number of jobs in the node.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.jobs]")]
pub struct JobsSection {
    /// A gauge, connections waiting to be accepted, established connections, the active clients of a database, or
    /// unknown: docs/load-and-jobs.md.
    #[schemars(extend("x-values" = "`prometheus`, `backlog`, `sockets`, `mysql`, `postgresql`, `none`", "x-default" = "if the source is `prometheus` and the port is known `\"backlog\"`, otherwise `\"none\"`"))]
    kind: Option<String>,
    /// Name of the gauge. All matching series are summed.
    #[schemars(extend("x-values" = "metric name", "x-default" = "required for `prometheus`"))]
    gauge: Option<String>,
    /// Labels that the series must have.
    #[schemars(extend("x-values" = "table", "x-default" = "`{}`"))]
    labels: Option<BTreeMap<String, String>>,
    /// URL of the gauge.
    #[schemars(extend("x-values" = "`http://host[:port]/path`", "x-default" = "the source's"))]
    url: Option<String>,
    /// Local port; all its listeners count together. With `sockets`, idle keep-alive connections count, too.
    #[schemars(extend("x-values" = "1 to 65535", "x-default" = "required for `sockets`; for `backlog` this or `unix`"))]
    port: Option<u16>,
    /// With `backlog`: the Unix socket that the service listens on, such as PHP-FPM's.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    unix: Option<PathBuf>,
    /// Sampling interval, which determines how well the peak is known. Each sample is followed by a pause of at least
    /// 332 times its duration, up to 1 s, which limits sampling to 0.3 % of a core.
    #[schemars(with = "String", extend("x-values" = "duration, 10ms to 1day", "x-default" = "`\"100ms\"`"))]
    #[serde(default, with = "humantime_serde")]
    sample_interval: Option<Duration>,
    /// Address of the database (MySQL, MariaDB; PostgreSQL); no TLS. A path is that of the socket itself, such as
    /// `unix:///run/postgresql/.s.PGSQL.5432`.
    #[schemars(extend("x-values" = "host:port, `unix:///path`", "x-default" = "required for `mysql`, `postgresql`"))]
    address: Option<String>,
    /// Database user for one query per period. In MySQL it needs no privilege except to log in, in PostgreSQL the
    /// role `pg_monitor` or `pg_read_all_stats`.
    #[schemars(extend("x-values" = "1 to 120 bytes", "x-default" = "required for `mysql`, `postgresql`"))]
    user: Option<String>,
    /// File with the password, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    password_file: Option<PathBuf>,
    /// With `postgresql`: the database to connect to. Active clients of all databases count.
    #[schemars(extend("x-values" = "1 to 120 bytes", "x-default" = "`\"postgres\"`"))]
    database: Option<String>,
}

/// Properties of the delay source that the job source depends on.
pub struct DelaySource<'a> {
    /// URL of the service's own metrics, if the source is a scrape.
    pub scraped: Option<&'a HttpUrl>,
    /// True if the source counts jobs itself.
    pub counts_jobs: bool,
}

/// Addresses of the service in other tables of the file.
pub struct Listens<'a> {
    /// `service.address`.
    pub address: Option<&'a str>,
    /// `service.health.address`, or host and port of its `url`.
    pub probed: Option<String>,
}

/// Checks `[service.jobs]`. `path` prefixes the keys in errors; `period` caps the timeouts.
pub fn jobs(
    path: &str,
    raw: &JobsSection,
    source: &DelaySource<'_>,
    period: Duration,
) -> Checked<JobsConfig> {
    let kind = raw.kind.as_deref().unwrap_or("none");
    if source.counts_jobs && kind != "none" {
        let problem = "does not apply to source.kind = \"partitions\", which counts its own";
        return wrong(format!("{path}.kind"), problem);
    }
    let of_gauge = [
        ("gauge", raw.gauge.is_some()),
        ("labels", raw.labels.is_some()),
        ("url", raw.url.is_some()),
    ];
    let of_sockets = [
        ("port", raw.port.is_some()),
        ("sample_interval", raw.sample_interval.is_some()),
    ];
    let of_backlog = [("unix", raw.unix.is_some())];
    let of_databases = [
        ("address", raw.address.is_some()),
        ("user", raw.user.is_some()),
        ("password_file", raw.password_file.is_some()),
    ];
    let of_postgresql = [("database", raw.database.is_some())];
    if !matches!(kind, "mysql" | "postgresql") {
        only_for(path, kind, &of_databases)?;
    }
    if kind != "postgresql" {
        only_for(path, kind, &of_postgresql)?;
    }
    if kind != "backlog" {
        only_for(path, kind, &of_backlog)?;
    }
    match kind {
        // Jobs inside the application are derived from its delays.
        "backlog" => only_for(path, kind, &of_gauge).map(|()| JobsConfig::None),
        "none" => {
            only_for(path, kind, &of_gauge)?;
            only_for(path, kind, &of_sockets)?;
            Ok(JobsConfig::None)
        }
        "prometheus" => {
            only_for(path, kind, &of_sockets)?;
            let gauge = required(format!("{path}.gauge"), raw.gauge.as_ref(), kind)?;
            metric_name(&format!("{path}.gauge"), gauge)?;
            let url = raw
                .url
                .as_deref()
                .map(|url| at(&format!("{path}.url"), plimsoll_net::http_url(url)))
                .transpose()?;
            let url = match source.scraped {
                // One scrape serves both.
                Some(scraped) => url.filter(|url| url != scraped),
                None if url.is_none() => {
                    return wrong(
                        format!("{path}.url"),
                        "is required where the source is not a scrape",
                    );
                }
                None => url,
            };
            Ok(JobsConfig::Prometheus {
                gauge: gauge.clone(),
                labels: raw.labels.clone().unwrap_or_default(),
                url,
                timeout: period.min(READ_TIMEOUT),
            })
        }
        "sockets" => {
            only_for(path, kind, &of_gauge)?;
            match raw.port {
                Some(port) => Ok(JobsConfig::Sockets {
                    port: above_0(path, port)?,
                    sample_interval: sample_interval(path, raw)?,
                }),
                None => wrong(format!("{path}.port"), "is required for kind = \"sockets\""),
            }
        }
        "mysql" | "postgresql" => {
            only_for(path, kind, &of_gauge)?;
            only_for(path, kind, &of_sockets)?;
            let login = Login {
                table: "jobs",
                kind,
                address: raw.address.as_ref(),
                user: raw.user.as_ref(),
                password_file: raw.password_file.as_deref(),
                database: raw.database.as_deref(),
            };
            database(path, login, period).map(JobsConfig::Database)
        }
        other => wrong(
            format!("{path}.kind"),
            format!(
                "must be one of \"prometheus\", \"backlog\", \"sockets\", \"mysql\", \"postgresql\", \"none\", is {other:?}"
            ),
        ),
    }
}

/// The listen queue of a service whose own histogram is the source: requests there are missing from that
/// histogram. `None` for other sources, for jobs counted otherwise, and if no port is known.
pub fn backlog(
    path: &str,
    raw: &JobsSection,
    listens: &Listens<'_>,
    source: &DelaySource<'_>,
) -> Checked<Option<BacklogConfig>> {
    let Some(scraped) = source.scraped else {
        if raw.kind.as_deref() == Some("backlog") {
            let problem = "\"backlog\" is for source.kind = \"prometheus\": what a proxy sees contains the wait";
            return wrong(format!("{path}.kind"), problem);
        }
        return Ok(None);
    };
    let is_asked = raw.kind.as_deref() == Some("backlog");
    let socket = match (raw.kind.as_deref(), raw.port, &raw.unix) {
        (Some("backlog"), Some(port), None) => ListenSocket::Ports(vec![above_0(path, port)?]),
        (Some("backlog"), None, Some(file)) if file.is_absolute() => {
            ListenSocket::Unix(file.clone())
        }
        (Some("backlog"), None, Some(file)) => {
            let problem = format!(
                "must be an absolute path, is {:?}",
                file.display().to_string()
            );
            return wrong(format!("{path}.unix"), problem);
        }
        (Some("backlog"), ..) => {
            let problem = "or unix, one of them, is required for kind = \"backlog\"";
            return wrong(format!("{path}.port"), problem);
        }
        (None | Some("prometheus"), ..) => match own_ports(listens, scraped) {
            ports if ports.is_empty() => return Ok(None),
            ports => ListenSocket::Ports(ports),
        },
        _ => return Ok(None),
    };
    let own = port_of(&scraped.connect);
    Ok(Some(BacklogConfig {
        has_scrapes: matches!((&socket, own), (ListenSocket::Ports(it), Some(own)) if *it == [own]),
        socket,
        sample_interval: sample_interval(path, raw)?,
        is_asked,
    }))
}

/// Ports that the service may listen on, most likely first. The metrics port is last: it may be a separate one.
fn own_ports(listens: &Listens<'_>, scraped: &HttpUrl) -> Vec<u16> {
    let mut ports = Vec::new();
    ports.extend(listens.address.and_then(port_of));
    let probed = listens.probed.as_deref().filter(|it| is_loopback(it));
    ports.extend(probed.and_then(port_of));
    if is_loopback(&scraped.connect) {
        ports.extend(port_of(&scraped.connect));
    }
    let mut seen = Vec::new();
    ports.retain(|port| {
        let is_new = !seen.contains(port);
        seen.push(*port);
        is_new
    });
    ports
}

fn port_of(address: &str) -> Option<u16> {
    let (_, port) = address.rsplit_once(':')?;
    port.parse().ok().filter(|port| *port > 0)
}

fn is_loopback(address: &str) -> bool {
    let host = plimsoll_net::host_of(address);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn above_0(path: &str, port: u16) -> Checked<u16> {
    match port {
        0 => wrong(format!("{path}.port"), "must be from 1 to 65535, is 0"),
        port => Ok(port),
    }
}

fn sample_interval(path: &str, raw: &JobsSection) -> Checked<Duration> {
    let key = format!("{path}.sample_interval");
    duration(&key, raw.sample_interval, 100 * MILLI, 10 * MILLI)
}

/// Unchecked keys of a database to query.
pub struct Login<'a> {
    /// Configuration table, `jobs` or `role`.
    pub table: &'static str,
    /// `mysql` or `postgresql`.
    pub kind: &'a str,
    /// `address` key.
    pub address: Option<&'a String>,
    /// `user` key.
    pub user: Option<&'a String>,
    /// `password_file` key: file with the password.
    pub password_file: Option<&'a Path>,
    /// `database` key, PostgreSQL only.
    pub database: Option<&'a str>,
}

/// Checks the keys of a database and reads its password file.
pub fn database(path: &str, raw: Login<'_>, period: Duration) -> Checked<DatabaseConfig> {
    let kind = raw.kind;
    let text = |key: &str, text: &str| {
        // Both protocols terminate it with a zero byte.
        if text.is_empty() || text.len() > MAX_NAME || text.contains('\0') {
            let problem = format!("must have 1 to {MAX_NAME} bytes, none of them zero");
            return wrong(format!("{path}.{key}"), problem);
        }
        Ok(text.to_owned())
    };
    let address = required(format!("{path}.address"), raw.address, kind)?;
    let user = required(format!("{path}.user"), raw.user, kind)?;
    let password = raw.password_file;
    let password = password.map(|file| secret(&format!("{path}.password_file"), file));
    Ok(DatabaseConfig {
        table: raw.table,
        kind: match kind {
            "mysql" => DatabaseKind::MySql,
            _ => DatabaseKind::PostgreSql {
                database: text("database", raw.database.unwrap_or("postgres"))?,
            },
        },
        address: at(
            &format!("{path}.address"),
            plimsoll_net::database_address(address),
        )?,
        user: text("user", user)?,
        password: password.transpose()?.map(Secret::new),
        timeout: period.min(READ_TIMEOUT),
    })
}
