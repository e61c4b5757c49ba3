//! `[service.source]` of kind `haproxy-log`.

use std::{net::SocketAddr, path::PathBuf};

use plimsoll_net::address;
use plimsoll_settings::{Checked, at, required, section, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// HAProxy's log as a source.
#[derive(Clone, Debug, PartialEq)]
pub struct HaproxyLogConfig {
    /// Socket to receive lines on.
    pub listen: LogListen,
    /// `backend/server` of this node.
    pub node: String,
}

/// HAProxy's log lines.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.source] kind = \"haproxy-log\"")]
pub struct Section {
    /// Address that receives log lines: one per datagram, or separated by newlines. Lines over 8192 bytes are dropped
    /// and counted; of more than 64 connections, the idlest is closed and counted. The Unix socket takes datagrams
    /// and has mode 0666, like `/dev/log`. Anyone who can write to it can fake delays, so put it in a directory that
    /// only HAProxy can enter.
    #[schemars(extend("x-values" = "`udp://IP:port`, `tcp://IP:port`, `unix:///path`", "x-default" = "required"))]
    listen: Option<String>,
    /// Server whose lines count; others are ignored.
    #[schemars(extend("x-values" = "`backend/server`", "x-default" = "required"))]
    node: Option<String>,
}

/// Socket to receive HAProxy's log lines on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogListen {
    /// One line per datagram.
    Udp(SocketAddr),
    /// Lines terminated by a newline.
    Tcp(SocketAddr),
    /// A unix datagram socket at this absolute path, one line per datagram.
    Unix(PathBuf),
}

impl std::fmt::Display for LogListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogListen::Udp(address) => write!(f, "udp://{address}"),
            LogListen::Tcp(address) => write!(f, "tcp://{address}"),
            LogListen::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Parses `udp://IP:PORT`, `tcp://IP:PORT` or `unix:///PATH`.
fn log_listen(text: &str) -> Result<LogListen, String> {
    if let Some(rest) = text.strip_prefix("udp://") {
        return address(rest).map(LogListen::Udp);
    }
    if let Some(rest) = text.strip_prefix("tcp://") {
        return address(rest).map(LogListen::Tcp);
    }
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(LogListen::Unix(path.into())),
        _ => Err(format!(
            "must be \"udp://IP:PORT\", \"tcp://IP:PORT\" or \"unix:///PATH\", is {text:?}"
        )),
    }
}

/// Checks the keys; `path` prefixes them in errors.
pub fn check(path: &str, keys: toml::Table) -> Checked<HaproxyLogConfig> {
    let raw: Section = section(path, keys)?;
    let listen = required(format!("{path}.listen"), raw.listen.as_ref(), "haproxy-log")?;
    let node = required(format!("{path}.node"), raw.node.as_ref(), "haproxy-log")?;
    let parts: Vec<_> = node.split('/').collect();
    if parts.len() != 2 || parts.iter().any(|p| p.is_empty()) || node.contains(char::is_whitespace)
    {
        return wrong(
            format!("{path}.node"),
            format!("must be \"backend/server\", is {node:?}"),
        );
    }
    Ok(HaproxyLogConfig {
        listen: at(&format!("{path}.listen"), log_listen(listen))?,
        node: node.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_listeners() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 81));
        assert_eq!(
            log_listen("udp://localhost:81"),
            Ok(LogListen::Udp(loopback))
        );
        assert_eq!(
            log_listen("tcp://localhost:81"),
            Ok(LogListen::Tcp(loopback))
        );
        assert!(log_listen("udp://a:1").is_err() && log_listen("unix://x").is_err());
    }
}
