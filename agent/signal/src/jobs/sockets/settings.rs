//! `[service.jobs]` of kinds `sockets` and `backlog`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, MILLI, duration, only_for, section, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// Interval between samples, unless it is configured.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Sampling of the established connections to a port.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketsConfig {
    /// Local port, 1 to 65535.
    pub port: u16,
    /// Interval between samples.
    pub sample_interval: Duration,
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

/// Addresses of the service in other tables of the file.
pub struct Listens<'a> {
    /// `service.address`.
    pub address: Option<&'a str>,
    /// `service.health.address`, or host and port of its `url`.
    pub probed: Option<String>,
}

/// Connections, counted by the kernel: the established ones, or those waiting to be accepted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.jobs] kind = \"sockets\" or \"backlog\"")]
pub struct Section {
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
}

/// Checks the keys of `sockets`; `path` prefixes them in errors.
pub fn check(path: &str, keys: toml::Table) -> Checked<SocketsConfig> {
    let raw: Section = section(path, keys)?;
    only_for(path, "sockets", &[("unix", raw.unix.is_some())])?;
    match raw.port {
        Some(port) => Ok(SocketsConfig {
            port: above_0(path, port)?,
            sample_interval: sample_interval(path, &raw)?,
        }),
        None => wrong(format!("{path}.port"), "is required for kind = \"sockets\""),
    }
}

/// Checks the keys of `backlog`. `path` prefixes them in errors; `scraped` is the URL of the delay source.
pub fn backlog(path: &str, keys: toml::Table, scraped: &HttpUrl) -> Checked<BacklogConfig> {
    let raw: Section = section(path, keys)?;
    let socket = match (raw.port, &raw.unix) {
        (Some(port), None) => ListenSocket::Ports(vec![above_0(path, port)?]),
        (None, Some(file)) if file.is_absolute() => ListenSocket::Unix(file.clone()),
        (None, Some(file)) => {
            let problem = format!(
                "must be an absolute path, is {:?}",
                file.display().to_string()
            );
            return wrong(format!("{path}.unix"), problem);
        }
        _ => {
            let problem = "or unix, one of them, is required for kind = \"backlog\"";
            return wrong(format!("{path}.port"), problem);
        }
    };
    Ok(BacklogConfig {
        has_scrapes: has_scrapes(&socket, scraped),
        socket,
        sample_interval: sample_interval(path, &raw)?,
        is_asked: true,
    })
}

/// The listen queue of a service that is not configured to be looked at, if its port is known.
pub fn own_backlog(listens: &Listens<'_>, scraped: &HttpUrl) -> Option<BacklogConfig> {
    let ports = own_ports(listens, scraped);
    let socket = (!ports.is_empty()).then_some(ListenSocket::Ports(ports))?;
    Some(BacklogConfig {
        has_scrapes: has_scrapes(&socket, scraped),
        socket,
        sample_interval: SAMPLE_INTERVAL,
        is_asked: false,
    })
}

fn has_scrapes(socket: &ListenSocket, scraped: &HttpUrl) -> bool {
    let own = port_of(&scraped.connect);
    matches!((socket, own), (ListenSocket::Ports(it), Some(own)) if *it == [own])
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

fn sample_interval(path: &str, raw: &Section) -> Checked<Duration> {
    let key = format!("{path}.sample_interval");
    duration(&key, raw.sample_interval, SAMPLE_INTERVAL, 10 * MILLI)
}
