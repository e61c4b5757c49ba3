//! `[service.source]`: the source of delays.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use plimsoll_exposition::Labels;
use plimsoll_net::{HttpUrl, address};
use plimsoll_settings::{
    Checked, MILLI, READ_TIMEOUT, TableReference, at, duration, metric_name, only_for, required,
    wrong,
};
use serde::Deserialize;

/// Source of delays.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// A scrape of the service's own metrics.
    Prometheus(PrometheusConfig),
    /// HAProxy's log lines.
    HaproxyLog {
        /// Socket to receive lines on.
        listen: LogListen,
        /// `backend/server` of this node.
        node: String,
    },
    /// Observations that proxies reported to Redis.
    Proxies,
    /// Queries to the partitions that name the service.
    Partitions,
}

impl SourceConfig {
    /// URL of the service's own metrics, if they are the source.
    pub fn scraped(&self) -> Option<&HttpUrl> {
        match self {
            SourceConfig::Prometheus(scrape) => Some(&scrape.url),
            _ => None,
        }
    }

    /// Socket that the source listens on.
    pub fn log_listen(&self) -> Option<&LogListen> {
        match self {
            SourceConfig::HaproxyLog { listen, .. } => Some(listen),
            _ => None,
        }
    }

    /// Whether what it sees comes through the ring in Redis.
    pub fn needs_ring(&self) -> bool {
        *self == SourceConfig::Proxies
    }

    /// Whether it counts the agent's own partition queries, which nothing else does.
    pub fn counts_queries(&self) -> bool {
        *self == SourceConfig::Partitions
    }
}

/// What is read, for people.
impl std::fmt::Display for SourceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SourceConfig::Prometheus(scrape) => {
                write!(f, "histogram {} at {}", scrape.histogram, scrape.url)
            }
            SourceConfig::HaproxyLog { listen, node } => {
                write!(f, "HAProxy's log of {node} at {listen}")
            }
            SourceConfig::Proxies => f.write_str("what proxies tell Redis"),
            SourceConfig::Partitions => f.write_str("its partitions' queries"),
        }
    }
}

/// Configuration of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusConfig {
    /// URL to scrape.
    pub url: HttpUrl,
    /// Name of the delay histogram without `_bucket`. Its unit is seconds.
    pub histogram: String,
    /// Labels that the series of `histogram`, `failed` and `cost` must have.
    pub labels: Labels,
    /// Name of the counter of failed requests.
    pub failed: Option<String>,
    /// Name of the counter of finished cost, in items.
    pub cost: Option<String>,
    /// Name of the gauge of the oldest unfinished request's age, in seconds.
    pub oldest_age: Option<String>,
    /// Timeout of the whole scrape, at most the period.
    pub timeout: Duration,
    /// Maximum size of the body in bytes, 1 KiB to 64 MiB.
    pub max_body: usize,
}

/// `[service.source]` as in the file, unchecked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSection {
    kind: String,
    url: Option<String>,
    histogram: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    failed: Option<String>,
    cost: Option<String>,
    oldest_age: Option<String>,
    #[serde(default, with = "humantime_serde")]
    timeout: Option<Duration>,
    max_body: Option<String>,
    listen: Option<String>,
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
pub fn log_listen(text: &str) -> Result<LogListen, String> {
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

/// Checks `[service.source]`. `path` prefixes the keys in errors; `period` is the control period.
pub fn source(path: &str, raw: &SourceSection, period: Duration) -> Checked<SourceConfig> {
    match raw.kind.as_str() {
        "prometheus" => prometheus(path, raw, period).map(SourceConfig::Prometheus),
        "haproxy-log" => haproxy_log(path, raw),
        "proxies" => own_keys_only(path, raw).map(|()| SourceConfig::Proxies),
        "partitions" => own_keys_only(path, raw).map(|()| SourceConfig::Partitions),
        other => wrong(
            format!("{path}.kind"),
            format!(
                "must be one of \"prometheus\", \"haproxy-log\", \"proxies\", \"partitions\", is {other:?}"
            ),
        ),
    }
}

/// Rejects keys of other kinds.
fn own_keys_only(path: &str, raw: &SourceSection) -> Checked<()> {
    let keys = [
        ("prometheus", "url", raw.url.is_some()),
        ("prometheus", "histogram", raw.histogram.is_some()),
        ("prometheus", "labels", raw.labels.is_some()),
        ("prometheus", "failed", raw.failed.is_some()),
        ("prometheus", "cost", raw.cost.is_some()),
        ("prometheus", "oldest_age", raw.oldest_age.is_some()),
        ("prometheus", "timeout", raw.timeout.is_some()),
        ("prometheus", "max_body", raw.max_body.is_some()),
        ("haproxy-log", "listen", raw.listen.is_some()),
        ("haproxy-log", "node", raw.node.is_some()),
    ];
    let others = keys.into_iter().filter(|(kind, ..)| *kind != raw.kind);
    let others: Vec<_> = others.map(|(_, key, is_set)| (key, is_set)).collect();
    only_for(path, &raw.kind, &others)
}

fn prometheus(path: &str, raw: &SourceSection, period: Duration) -> Checked<PrometheusConfig> {
    own_keys_only(path, raw)?;
    let url = required(format!("{path}.url"), raw.url.as_ref(), "prometheus")?;
    let histogram = required(
        format!("{path}.histogram"),
        raw.histogram.as_ref(),
        "prometheus",
    )?;
    let names = [
        ("histogram", Some(histogram)),
        ("failed", raw.failed.as_ref()),
        ("cost", raw.cost.as_ref()),
        ("oldest_age", raw.oldest_age.as_ref()),
    ];
    for (key, name) in names {
        if let Some(name) = name {
            metric_name(&format!("{path}.{key}"), name)?;
        }
    }
    for part in ["_bucket", "_sum", "_count"] {
        if let Some(base) = histogram.strip_suffix(part) {
            return wrong(
                format!("{path}.histogram"),
                format!(
                    "must be the histogram's name, {base:?}, not that of its {part} series, {histogram:?}"
                ),
            );
        }
    }
    let key = format!("{path}.timeout");
    let timeout = duration(&key, raw.timeout, period.min(READ_TIMEOUT), MILLI)?;
    if timeout > period {
        let shown = humantime::format_duration;
        return wrong(
            key,
            format!(
                "must not be above agent.period ({}), is {}",
                shown(period),
                shown(timeout)
            ),
        );
    }
    let max_body = at(
        &format!("{path}.max_body"),
        plimsoll_settings::bytes(raw.max_body.as_deref().unwrap_or("4MiB")),
    )?;
    if !(1024..=64 << 20).contains(&max_body) {
        return wrong(
            format!("{path}.max_body"),
            format!("must be from 1KiB to 64MiB, is {max_body} bytes"),
        );
    }
    Ok(PrometheusConfig {
        url: at(&format!("{path}.url"), plimsoll_net::http_url(url))?,
        histogram: histogram.clone(),
        labels: raw.labels.clone().unwrap_or_default(),
        failed: raw.failed.clone(),
        cost: raw.cost.clone(),
        oldest_age: raw.oldest_age.clone(),
        timeout,
        max_body,
    })
}

fn haproxy_log(path: &str, raw: &SourceSection) -> Checked<SourceConfig> {
    own_keys_only(path, raw)?;
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
    Ok(SourceConfig::HaproxyLog {
        listen: at(&format!("{path}.listen"), log_listen(listen))?,
        node: node.clone(),
    })
}

/// Reference of the keys of `[service.source]`.
pub const REFERENCE: TableReference = (
    "[service.source]",
    "Where delays come from. Keys of the other kind are refused.",
    &[
        (
            "kind",
            "`prometheus`, `haproxy-log`, `proxies`, `partitions`",
            "required",
            "A scrape of the service, HAProxy's log lines, what the proxies told Redis (the Lua policies do; needs `[service.ring]`), or the queries in the partitions that name the service (docs/scatter.md).",
        ),
        (
            "url",
            "`http://host[:port]/path`",
            "required for `prometheus`",
            "What is scraped; no TLS.",
        ),
        (
            "histogram",
            "metric name",
            "required for `prometheus`",
            "Delay histogram in seconds, without `_bucket`.",
        ),
        (
            "labels",
            "table",
            "`{}`",
            "Labels that series of `histogram`, `failed` and `cost` must have. All that match are added up.",
        ),
        (
            "failed",
            "metric name",
            "none",
            "Counter of requests that failed.",
        ),
        (
            "cost",
            "metric name",
            "none",
            "Counter of items touched by finished requests.",
        ),
        (
            "oldest_age",
            "metric name",
            "none",
            "Gauge: age of the oldest unfinished request, in seconds.",
        ),
        (
            "timeout",
            "duration, 1ms to `agent.period`",
            "500ms, at most the period",
            "For the whole scrape.",
        ),
        (
            "max_body",
            "bytes, 1KiB to 64MiB",
            "`\"4MiB\"`",
            "Largest body.",
        ),
        (
            "listen",
            "`udp://IP:port`, `tcp://IP:port`, `unix:///path`",
            "required for `haproxy-log`",
            "Where log lines arrive: a line a datagram, or lines that end in a newline. Lines over 8192 bytes are dropped and counted, and so is the idlest of more than 64 connections. The unix socket takes datagrams and has mode 0666, as `/dev/log` has. Who can write there can feign delays, so put it in a directory that only HAProxy can enter.",
        ),
        (
            "node",
            "`backend/server`",
            "required for `haproxy-log`",
            "Only lines of this server count.",
        ),
    ],
);

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
