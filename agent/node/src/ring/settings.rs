//! `[redis]` and `[service.ring]`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use plimsoll_net::{TextTls, TlsFiles};
use plimsoll_settings::{
    Checked, MILLI, TlsSection, at_file, client_files, duration, number, secret, word, wrong,
};
use plimsoll_wire::{LEASE_SECONDS, MAX_CONFIGURED_NAME_BYTES, is_configured_name};
use schemars::JsonSchema;
use serde::Deserialize;

/// A service's membership in a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct RingSettings {
    /// Name of the cluster, part of every key.
    pub cluster: String,
    /// Name of this node in the ring; must match its server's name in the proxies.
    pub node: String,
    /// Number of slots, `H`.
    pub slots: u32,
    /// Relative change of a share up to which no key moves.
    pub dead_band: f64,
    /// Time without a report after which the node leaves the ring.
    pub lease: Duration,
}

/// Deployment mode of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// One server, or several addresses of which the writable one is used.
    Single,
    /// The addresses are sentinels.
    Sentinel,
    /// The addresses are seeds of a Redis Cluster.
    Cluster,
}

/// Connection settings of Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Deployment mode.
    pub mode: LinkMode,
    /// `redis://host:port`, `rediss://` for TLS.
    pub urls: Vec<String>,
    /// Name of the master at the sentinels.
    pub sentinel_master: String,
    /// ACL user.
    pub user: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// Trusted CA certificates and client certificate for `rediss://`.
    pub tls: Option<TextTls>,
    /// Timeout for connecting, and for each response.
    pub timeout: Duration,
}

/// The rings that this agent belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct RingsConfig {
    /// Connection settings of Redis.
    pub link: Option<LinkSettings>,
    /// Interval between reports.
    pub period: Duration,
    /// Memberships by service.
    pub rings: BTreeMap<String, RingSettings>,
}

/// The Redis (7.0 or later) or Valkey through which proxies share rings. Required for `[service.ring]` and
/// `[placement]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[redis]")]
pub struct RedisSection {
    /// Servers; the first writable one is used.
    #[schemars(extend("x-values" = "1 to 16 of `redis://host:port`, `rediss://` for TLS", "x-default" = "required"))]
    urls: Vec<String>,
    /// Whether the URLs are servers, sentinels, or seeds of a Redis Cluster.
    #[schemars(extend("x-values" = "`single`, `sentinel`, `cluster`", "x-default" = "`\"single\"`"))]
    mode: Option<String>,
    /// Name of the master at the sentinels.
    #[schemars(extend("x-values" = "name", "x-default" = "`\"mymaster\"`"))]
    sentinel_master: Option<String>,
    /// ACL user; needs `password_file`.
    #[schemars(extend("x-values" = "name", "x-default" = "none"))]
    user: Option<String>,
    /// File with the password, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    password_file: Option<PathBuf>,
    /// PEM file with the CA certificates trusted for `rediss://`, instead of the system's; read at start and reload,
    /// and again for new connections after it has changed.
    #[schemars(extend("x-values" = "path", "x-default" = "the system's"))]
    ca_file: Option<PathBuf>,
    /// PEM file with the client certificate for Redis and sentinels over `rediss://`; needs `key_file`. Read like
    /// `ca_file`.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    certificate_file: Option<PathBuf>,
    /// PEM file with the certificate's private key; needs `certificate_file`.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    key_file: Option<PathBuf>,
    /// Timeout for connecting, and for each response.
    #[schemars(with = "String", extend("x-values" = "duration, 1ms to 1day", "x-default" = "`\"500ms\"`"))]
    #[serde(default, with = "humantime_serde")]
    timeout: Option<Duration>,
}

/// Membership of this node in a ring that proxies share through Redis.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.ring]")]
pub struct RingSection {
    /// Name shared by the nodes and proxies of one ring; part of every key in Redis.
    #[schemars(extend("x-values" = "1 to 120 of `A-Za-z0-9._:/-`", "x-default" = "required"))]
    cluster: String,
    /// Name of this node; must match its server's name in the proxies.
    #[schemars(extend("x-values" = "the same", "x-default" = "required"))]
    node: String,
    /// Number of slots of the hash ring, *H*; must be the same on all nodes.
    #[schemars(extend("x-values" = "1 to 1048576", "x-default" = "`16384`"))]
    slots: Option<u32>,
    /// No key moves while the relative error of every node's share is below this.
    #[schemars(extend("x-values" = "0 to 1", "x-default" = "`0.05`"))]
    dead_band: Option<f64>,
    /// Time without a report after which the node leaves the ring.
    #[schemars(with = "String", extend("x-values" = "duration, 2 periods and 100ms to 1hour", "x-default" = "3 periods, at least 100ms"))]
    #[serde(default, with = "humantime_serde")]
    lease: Option<Duration>,
}

/// Checks `[redis]`.
pub fn redis(raw: &RedisSection) -> Checked<LinkSettings> {
    if raw.urls.is_empty() || raw.urls.len() > 16 {
        return wrong(
            "redis.urls",
            format!("must name 1 to 16 servers, names {}", raw.urls.len()),
        );
    }
    for (index, url) in raw.urls.iter().enumerate() {
        let rest = url
            .strip_prefix("redis://")
            .or_else(|| url.strip_prefix("rediss://"));
        if rest.is_none_or(|rest| rest.contains('@') || rest.contains('/') || !rest.contains(':')) {
            return wrong(
                format!("redis.urls[{index}]"),
                format!(
                    "must be redis://host:port or rediss://host:port (TLS), is {:?}; a user goes into redis.user",
                    plimsoll_net::without_user(url)
                ),
            );
        }
    }
    let mode = word(
        "redis.mode",
        raw.mode.as_deref(),
        LinkMode::Single,
        &[
            ("single", LinkMode::Single),
            ("sentinel", LinkMode::Sentinel),
            ("cluster", LinkMode::Cluster),
        ],
    )?;
    if mode != LinkMode::Sentinel && raw.sentinel_master.is_some() {
        return wrong(
            "redis.sentinel_master",
            "applies to mode = \"sentinel\" only",
        );
    }
    let password = raw.password_file.as_deref();
    let password = password.map(|file| secret("redis.password_file", file));
    let password = password.transpose()?;
    if raw.user.is_some() && password.is_none() {
        return wrong("redis.user", "needs redis.password_file");
    }
    let tls = tls(raw)?;
    Ok(LinkSettings {
        mode,
        urls: raw.urls.clone(),
        sentinel_master: raw
            .sentinel_master
            .clone()
            .unwrap_or_else(|| "mymaster".into()),
        user: raw.user.clone(),
        password,
        tls,
        timeout: duration(
            "redis.timeout",
            raw.timeout,
            Duration::from_millis(500),
            MILLI,
        )?,
    })
}

/// Reads and checks the TLS files, so that mistakes are reported at startup.
fn tls(raw: &RedisSection) -> Checked<Option<TextTls>> {
    let files = TlsSection {
        ca_file: raw.ca_file.clone(),
        certificate_file: raw.certificate_file.clone(),
        key_file: raw.key_file.clone(),
    };
    let files = client_files("redis", &files)?;
    if files == TlsFiles::default() {
        return Ok(None);
    }
    if !raw.urls.iter().all(|url| url.starts_with("rediss://")) {
        let key = match files.own {
            Some(_) => "redis.certificate_file",
            None => "redis.ca_file",
        };
        return wrong(key, "needs rediss:// in every one of redis.urls");
    }
    let tls = TextTls::new(files);
    tls.map(Some)
        .map_err(|problem| at_file("redis", "ca_file", problem))
}

/// Checks the name of a cluster or a node.
pub fn ring_name(key: String, name: &str) -> Checked<String> {
    if !is_configured_name(name) {
        return wrong(
            key,
            format!(
                "must be 1 to {MAX_CONFIGURED_NAME_BYTES} of A-Z a-z 0-9 . _ : / -, is {name:?}"
            ),
        );
    }
    Ok(name.to_owned())
}

/// Checks `[service.ring]`. `path` prefixes the keys in errors.
pub fn ring(path: &str, raw: &RingSection, period: Duration) -> Checked<RingSettings> {
    let slots = raw.slots.unwrap_or(plimsoll_core::ring::DEFAULT_SLOTS);
    if !(1..=plimsoll_core::ring::MAX_SLOTS).contains(&slots) {
        return wrong(
            format!("{path}.slots"),
            format!(
                "must be from 1 to {}, is {slots}",
                plimsoll_core::ring::MAX_SLOTS
            ),
        );
    }
    let limits = [LEASE_SECONDS.start(), LEASE_SECONDS.end()];
    let [least, most] = limits.map(|seconds| Duration::from_secs_f64(*seconds));
    let lease = duration(
        &format!("{path}.lease"),
        raw.lease,
        (3 * period).max(least),
        (2 * period).max(least),
    )?;
    if lease > most {
        let most = humantime::format_duration(most);
        return wrong(format!("{path}.lease"), format!("must be at most {most}"));
    }
    Ok(RingSettings {
        cluster: ring_name(format!("{path}.cluster"), &raw.cluster)?,
        node: ring_name(format!("{path}.node"), &raw.node)?,
        slots,
        dead_band: number(
            &format!("{path}.dead_band"),
            raw.dead_band.unwrap_or(0.05),
            0.0..=1.0,
        )?,
        lease,
    })
}
