//! `[service.health]`: the local probe.

use std::time::Duration;

use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, MILLI, at, duration, only_for, required, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// Checked configuration of the local probe.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthConfig {
    /// Target of the probe.
    pub target: HealthTarget,
    /// Interval between probes.
    pub interval: Duration,
    /// Timeout of one probe.
    pub timeout: Duration,
    /// Failures in a row until down, 1 to 1000.
    pub fall: u32,
    /// Successes in a row until up, 1 to 1000.
    pub rise: u32,
}

/// Target of a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthTarget {
    /// A TCP connection to this host and port.
    Tcp(String),
    /// A GET of this URL, which must respond with 2xx or 3xx.
    Http(HttpUrl),
}

/// A local probe; without this table the node is always up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.health]")]
pub struct HealthSection {
    /// A TCP connection, or a GET that is answered with 2xx or 3xx.
    #[schemars(extend("x-values" = "`tcp`, `http`", "x-default" = "required"))]
    kind: String,
    /// Address to connect to.
    #[schemars(extend("x-values" = "host:port", "x-default" = "required for `tcp`"))]
    address: Option<String>,
    /// URL to request.
    #[schemars(extend("x-values" = "`http://host[:port]/path`", "x-default" = "required for `http`"))]
    url: Option<String>,
    /// Interval between probes.
    #[schemars(with = "String", extend("x-values" = "duration, 10ms to 1day", "x-default" = "`\"1s\"`"))]
    #[serde(default, with = "humantime_serde")]
    interval: Option<Duration>,
    /// Timeout of a probe.
    #[schemars(with = "String", extend("x-values" = "duration, 1ms to 1day", "x-default" = "`\"500ms\"`"))]
    #[serde(default, with = "humantime_serde")]
    timeout: Option<Duration>,
    /// Consecutive failures until the service is down.
    #[schemars(extend("x-values" = "1 to 1000", "x-default" = "`3`"))]
    fall: Option<u32>,
    /// Consecutive successes until the service is up.
    #[schemars(extend("x-values" = "1 to 1000", "x-default" = "`2`"))]
    rise: Option<u32>,
}

impl HealthSection {
    /// Host and port of the target; `None` if neither `url` nor `address` gives one. Not checked yet.
    pub fn address(&self) -> Option<String> {
        let url = self
            .url
            .as_deref()
            .and_then(|url| plimsoll_net::http_url(url).ok());
        url.map(|url| url.connect).or_else(|| self.address.clone())
    }
}

/// Checks `[service.health]`. `path` prefixes the keys in errors.
pub fn health(path: &str, raw: &HealthSection) -> Checked<HealthConfig> {
    let target = match raw.kind.as_str() {
        "tcp" => {
            only_for(path, "tcp", &[("url", raw.url.is_some())])?;
            let address = required(format!("{path}.address"), raw.address.as_ref(), "tcp")?;
            HealthTarget::Tcp(at(
                &format!("{path}.address"),
                plimsoll_net::host_port(address),
            )?)
        }
        "http" => {
            only_for(path, "http", &[("address", raw.address.is_some())])?;
            let url = required(format!("{path}.url"), raw.url.as_ref(), "http")?;
            HealthTarget::Http(at(&format!("{path}.url"), plimsoll_net::http_url(url))?)
        }
        other => {
            return wrong(
                format!("{path}.kind"),
                format!("must be one of \"tcp\", \"http\", is {other:?}"),
            );
        }
    };
    let times = |key: &str, value: Option<u32>, default| match value.unwrap_or(default) {
        value @ 1..=1000 => Ok(value),
        value => wrong(
            format!("{path}.{key}"),
            format!("must be from 1 to 1000, is {value}"),
        ),
    };
    Ok(HealthConfig {
        target,
        interval: duration(
            &format!("{path}.interval"),
            raw.interval,
            Duration::from_secs(1),
            10 * MILLI,
        )?,
        timeout: duration(
            &format!("{path}.timeout"),
            raw.timeout,
            Duration::from_millis(500),
            MILLI,
        )?,
        fall: times("fall", raw.fall, 3)?,
        rise: times("rise", raw.rise, 2)?,
    })
}
