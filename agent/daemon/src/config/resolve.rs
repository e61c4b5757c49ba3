//! Fills in defaults and refuses what cannot be.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use plimsoll_core::{BoundLimits, Cost, Law, PiForm, PiGains, Rules, Seconds, Settings, Sla};
use plimsoll_net::HttpUrl;
use plimsoll_settings::{
    Checked, MAX_NAME, MILLI, Wrong, at, duration, log_format, log_level, networks, number,
    only_for, required, secret, token, word, wrong,
};

use super::{
    Config, HealthConfig, HealthTarget, LogListen, PrometheusConfig, ServiceConfig, SourceConfig,
    jobs, load, partitions,
    placement::{has_ring, placement},
    raw, role, updates, values,
};
use crate::{
    agent_check::{OnShutdown, SendWords},
    envoy::{EnvoySettings, MAX_PEERS},
    ring::{LinkMode, LinkSettings, RingSettings},
};

/// Of the function library.
const MIN_RING_LEASE: Duration = Duration::from_millis(100);
/// How long reading metrics may take, unless the period is shorter.
pub(super) const READ_TIMEOUT: Duration = Duration::from_millis(500);
pub fn resolve(file: raw::File) -> Checked<Config> {
    let raw::File {
        agent,
        http,
        agent_check,
        control,
        redis: raw_redis,
        placement: raw_placement,
        envoy: raw_envoy,
        service,
        partition,
    } = file;
    let period = duration(
        "agent.period",
        agent.period,
        Duration::from_secs(1),
        10 * MILLI,
    )?;
    let listen =
        |key, text: Option<&str>, default| at(key, plimsoll_net::address(text.unwrap_or(default)));
    let max_connections = agent_check.max_connections.unwrap_or(256);
    if !(1..=65_536).contains(&max_connections) {
        return wrong(
            "agent_check.max_connections",
            format!("must be from 1 to 65536, is {max_connections}"),
        );
    }
    let max_proxies_per_address = agent_check.max_proxies_per_address.unwrap_or(8);
    if !(1..=64).contains(&max_proxies_per_address) {
        return wrong(
            "agent_check.max_proxies_per_address",
            format!("must be from 1 to 64, is {max_proxies_per_address}"),
        );
    }
    let has_token = http.token_file.is_some();
    let mut config = Config {
        period,
        jitter: number("agent.jitter", agent.jitter.unwrap_or(0.05), 0.0..=0.5)?,
        log_level: log_level("agent.log_level", agent.log_level.as_deref())?,
        log_format: log_format("agent.log_format", agent.log_format.as_deref())?,
        state_directory: agent.state_directory,
        http_listen: listen("http.listen", http.listen.as_deref(), "127.0.0.1:9464")?,
        http_allow: networks("http.allow", http.allow.as_deref())?,
        http_token: token("http.token_file", http.token_file.as_deref())?,
        agent_check_listen: listen(
            "agent_check.listen",
            agent_check.listen.as_deref(),
            "127.0.0.1:9101",
        )?,
        agent_check_allow: networks("agent_check.allow", agent_check.allow.as_deref())?,
        max_proxies_per_address,
        max_connections,
        identity_wait: duration(
            "agent_check.identity_wait",
            agent_check.identity_wait,
            30 * MILLI,
            MILLI,
        )?,
        proxy_lease: duration(
            "agent_check.proxy_lease",
            agent_check.proxy_lease,
            Duration::from_secs(10),
            100 * MILLI,
        )?,
        on_shutdown: word(
            "agent_check.on_shutdown",
            agent_check.on_shutdown.as_deref(),
            OnShutdown::Drain,
            &[("drain", OnShutdown::Drain), ("hold", OnShutdown::Hold)],
        )?,
        shutdown_grace: duration(
            "agent_check.shutdown_grace",
            agent_check.shutdown_grace,
            Duration::from_secs(3),
            Duration::ZERO,
        )?,
        control_socket: control.socket,
        redis: raw_redis.as_ref().map(redis).transpose()?,
        placement: raw_placement.as_ref().map(placement).transpose()?,
        envoy: envoy(&raw_envoy, period)?,
        services: Vec::new(),
        partitions: partitions::partitions(partition, has_token)?,
    };
    if service.is_empty() {
        return wrong("service", "at least one [[service]] is required");
    }
    let has_peers = !config.envoy.peers.is_empty();
    for (index, raw) in service.into_iter().enumerate() {
        config.services.push(resolve_service(
            &format!("service[{index}]"),
            raw,
            period,
            has_peers,
        )?);
    }
    rings(&config)?;
    has_ring(&config)?;
    partitions::services(&config)?;
    partitions::elsewhere(&config)?;
    unique_identities(&config.services)?;
    unique_addresses(&config)?;
    Ok(config)
}

fn resolve_service(
    path: &str,
    raw: raw::Service,
    period: Duration,
    has_peers: bool,
) -> Checked<ServiceConfig> {
    for (key, name) in std::iter::once(("name".to_owned(), &raw.name)).chain(
        raw.identities
            .iter()
            .enumerate()
            .map(|(i, name)| (format!("identities[{i}]"), name)),
    ) {
        let fine = !name.is_empty()
            && name.len() <= MAX_NAME
            && name.bytes().all(|b| b.is_ascii_graphic());
        if !fine {
            return wrong(
                format!("{path}.{key}"),
                format!(
                    "must be 1 to {MAX_NAME} printable ASCII characters without blanks, is {name:?}"
                ),
            );
        }
    }
    let settings = settings(path, &raw)?;
    let twice_nominal = settings.limits.nominal.map(|nominal| 2.0 * nominal.get());
    let by_law = twice_nominal.filter(|_| settings.law != Law::LoadLine);
    let full_weight_bound = raw.output.full_weight_bound.or(by_law);
    if let Some(full) = full_weight_bound
        && !(full.is_finite() && full > 0.0)
    {
        return wrong(
            format!("{path}.output.full_weight_bound"),
            format!("must be above 0, is {full}"),
        );
    }
    let source = source(&format!("{path}.source"), &raw.source, period)?;
    Ok(ServiceConfig {
        settings,
        full_weight_bound: full_weight_bound.map(Cost),
        weight_dead_band: number(
            &format!("{path}.output.weight_dead_band"),
            raw.output.weight_dead_band.unwrap_or(0.05),
            0.0..=0.5,
        )?,
        send: word(
            &format!("{path}.output.send"),
            raw.output.send.as_deref(),
            SendWords::Both,
            &[
                ("both", SendWords::Both),
                ("weight", SendWords::Weight),
                ("maxconn", SendWords::Maxconn),
            ],
        )?,
        jobs: jobs::jobs(&format!("{path}.jobs"), &raw.jobs, &source, period)?,
        backlog: jobs::backlog(&format!("{path}.jobs"), &raw, &source)?,
        source,
        load: load::load(&format!("{path}.load"), &raw.load)?,
        health: raw
            .health
            .as_ref()
            .map(|h| health(&format!("{path}.health"), h))
            .transpose()?,
        ring: raw
            .ring
            .as_ref()
            .map(|r| ring(&format!("{path}.ring"), r, period))
            .transpose()?,
        updates: raw
            .updates
            .as_ref()
            .map(|u| updates::updates(&format!("{path}.updates"), u, period))
            .transpose()?,
        role: raw
            .role
            .as_ref()
            .map(|r| role::role(&format!("{path}.role"), r, period, has_peers))
            .transpose()?,
        address: raw
            .address
            .as_deref()
            .map(|address| at(&format!("{path}.address"), plimsoll_net::host_port(address)))
            .transpose()?,
        name: raw.name,
        identities: raw.identities,
    })
}

fn redis(raw: &raw::Redis) -> Checked<LinkSettings> {
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
    let ca = raw.ca_file.as_deref().map(certificates).transpose()?;
    if ca.is_some() && !raw.urls.iter().all(|url| url.starts_with("rediss://")) {
        return wrong(
            "redis.ca_file",
            "needs rediss:// in every one of redis.urls",
        );
    }
    Ok(LinkSettings {
        mode,
        urls: raw.urls.clone(),
        sentinel_master: raw
            .sentinel_master
            .clone()
            .unwrap_or_else(|| "mymaster".into()),
        user: raw.user.clone(),
        password,
        ca,
        timeout: duration(
            "redis.timeout",
            raw.timeout,
            Duration::from_millis(500),
            MILLI,
        )?,
    })
}

/// A PEM file with certificates in it, so that a mistake is told at the start.
fn certificates(file: &Path) -> Checked<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let told = |problem: String| wrong("redis.ca_file", format!("{}: {problem}", file.display()));
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) => return told(error.to_string()),
    };
    let mut trusted = rustls::RootCertStore::empty();
    for found in CertificateDer::pem_slice_iter(&text) {
        let added = found
            .map_err(|error| error.to_string())
            .and_then(|found| trusted.add(found).map_err(|error| error.to_string()));
        if let Err(problem) = added {
            return told(problem);
        }
    }
    if trusted.is_empty() {
        return told("holds no PEM certificate".into());
    }
    Ok(text)
}

/// What Redis takes as a name.
pub(super) fn ring_name(key: String, name: &str) -> Checked<String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"._:/-".contains(&b);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fine) {
        return wrong(
            key,
            format!("must be 1 to {MAX_NAME} of A-Z a-z 0-9 . _ : / -, is {name:?}"),
        );
    }
    Ok(name.to_owned())
}

fn ring(path: &str, raw: &raw::Ring, period: Duration) -> Checked<RingSettings> {
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
    let default = (3 * period).max(MIN_RING_LEASE);
    let lease = duration(
        &format!("{path}.lease"),
        raw.lease,
        default,
        (2 * period).max(MIN_RING_LEASE),
    )?;
    if lease > Duration::from_secs(3600) {
        return wrong(format!("{path}.lease"), "must be at most 1hour");
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

fn envoy(raw: &raw::Envoy, period: Duration) -> Checked<EnvoySettings> {
    if raw.peers.len() > MAX_PEERS {
        return wrong(
            "envoy.peers",
            format!("may name {MAX_PEERS} agents, names {}", raw.peers.len()),
        );
    }
    let mut peers: Vec<HttpUrl> = Vec::new();
    for (index, peer) in raw.peers.iter().enumerate() {
        let key = format!("envoy.peers[{index}]");
        let url = plimsoll_net::http_url(peer).ok();
        let Some(mut url) = url.filter(|url| url.path == "/") else {
            return wrong(
                key,
                format!(
                    "must be an agent's http.listen such as \"http://192.0.2.12:9464\", is {peer:?}"
                ),
            );
        };
        url.path = "/v1/node".into();
        if peers.contains(&url) {
            return wrong(key, format!("{peer:?} is there twice"));
        }
        peers.push(url);
    }
    let lease = duration("envoy.lease", raw.lease, 3 * period, 2 * period)?;
    if lease > Duration::from_secs(3600) {
        return wrong("envoy.lease", "must be at most 1hour");
    }
    let orca_listen = raw.orca_listen.as_deref();
    let orca_listen = orca_listen.map(|text| at("envoy.orca_listen", plimsoll_net::address(text)));
    Ok(EnvoySettings {
        peers,
        lease,
        orca_listen: orca_listen.transpose()?,
    })
}

/// A ring needs Redis, and a node of it one service.
fn rings(config: &Config) -> Checked<()> {
    let mut seen = BTreeMap::new();
    for (index, service) in config.services.iter().enumerate() {
        let Some(ring) = &service.ring else {
            if service.source == SourceConfig::Proxies {
                return wrong(
                    format!("service[{index}].source.kind"),
                    "\"proxies\" needs [service.ring]",
                );
            }
            continue;
        };
        if config.redis.is_none() {
            return wrong(format!("service[{index}].ring"), "needs [redis]");
        }
        if let Some(other) = seen.insert((&ring.cluster, &ring.node), index) {
            return wrong(
                format!("service[{index}].ring.node"),
                format!("is the same as service[{other}].ring.node"),
            );
        }
    }
    Ok(())
}

fn settings(path: &str, raw: &raw::Service) -> Checked<Settings> {
    let delay = raw.sla.delay.as_secs_f64();
    let objective = raw.sla.objective.as_deref().unwrap_or("p95");
    let controller = &raw.controller;
    let gains = PiGains::default();
    let kind = controller.kind.as_deref().unwrap_or("load-line");
    let table = format!("{path}.controller");
    let pi_keys = [
        ("gains", controller.gains.is_some()),
        ("kp", controller.kp.is_some()),
        ("ki", controller.ki.is_some()),
        ("form", controller.form.is_some()),
    ];
    let is_pi = matches!(kind, "pi" | "parabola");
    if !is_pi {
        only_for(&table, kind, &pi_keys)?;
    }
    if kind != "proportional" {
        only_for(&table, kind, &[("gain", controller.gain.is_some())])?;
    }
    let law = match kind {
        "pi" | "parabola" => Law::Pi {
            gains: PiGains {
                kp: controller.kp.unwrap_or(gains.kp),
                ki: controller.ki.unwrap_or(gains.ki),
            },
            form: word(
                &format!("{table}.form"),
                controller.form.as_deref(),
                PiForm::Velocity,
                &[
                    ("velocity", PiForm::Velocity),
                    ("double-integrating", PiForm::DoubleIntegrating),
                ],
            )?,
        },
        "load-line" => Law::LoadLine,
        "inverse-delay" => Law::InverseDelay,
        "proportional" => Law::Proportional {
            gain: controller.gain.unwrap_or(0.5),
        },
        "fixed" => Law::Fixed,
        other => {
            return wrong(
                format!("{table}.kind"),
                format!(
                    "must be one of \"load-line\", \"pi\", \"parabola\", \"inverse-delay\", \"proportional\", \"fixed\", is {other:?}"
                ),
            );
        }
    };
    let self_tuned = word(
        &format!("{table}.gains"),
        controller.gains.as_deref(),
        false,
        &[("fixed", false), ("auto", true)],
    )?;
    let rules = Rules::default();
    let settings = Settings {
        sla: Sla {
            delay: Seconds(delay),
            settling: Seconds(raw.sla.settling.map_or(10.0, |d| d.as_secs_f64())),
            objective: at(
                &format!("{path}.sla.objective"),
                values::objective(objective),
            )?,
            set_point: raw.sla.set_point.unwrap_or(0.9),
        },
        limits: limits(&raw.bound, &law),
        law,
        mpl: kind == "parabola",
        self_tuned,
        rules: Rules {
            min_samples: raw.rules.min_samples.unwrap_or(rules.min_samples),
            window_periods: raw.rules.window_periods.unwrap_or(rules.window_periods),
            light_load: raw.rules.light_load.unwrap_or(rules.light_load),
            headroom: raw.rules.headroom.unwrap_or(rules.headroom),
            empty_hold_periods: raw
                .rules
                .empty_hold_periods
                .unwrap_or(rules.empty_hold_periods),
            max_failed: raw.rules.max_failed.unwrap_or(rules.max_failed),
        },
    };
    if let Some(nominal) = raw.bound.nominal
        && !(nominal.is_finite() && nominal > 0.0)
    {
        return wrong(
            format!("{path}.bound.nominal"),
            format!("must be above 0, is {nominal}"),
        );
    }
    settings.validate().map_err(|error| Wrong {
        key: format!("{path}.{}", error.key),
        problem: error.problem,
    })?;
    Ok(settings)
}

fn limits(raw: &raw::Bound, law: &Law) -> BoundLimits {
    let free = BoundLimits::default();
    // The papers' laws move about the nominal bound.
    let around = raw.nominal.filter(|_| *law != Law::LoadLine);
    let least = around.map_or(free.min.get(), |nominal| {
        (nominal / 32.0).max(1.0).min(nominal)
    });
    let most = around.map_or(free.max.get(), |nominal| nominal * 1024.0);
    BoundLimits {
        min: Cost(raw.min.unwrap_or(least)),
        max: Cost(raw.max.unwrap_or(most)),
        nominal: raw.nominal.map(Cost),
    }
}

fn source(path: &str, raw: &raw::Source, period: Duration) -> Checked<SourceConfig> {
    match raw.kind.as_str() {
        "prometheus" => {
            only_for(
                path,
                "prometheus",
                &[
                    ("listen", raw.listen.is_some()),
                    ("node", raw.node.is_some()),
                ],
            )?;
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
            Ok(SourceConfig::Prometheus(PrometheusConfig {
                url: at(&format!("{path}.url"), plimsoll_net::http_url(url))?,
                histogram: histogram.clone(),
                labels: raw.labels.clone().unwrap_or_default(),
                failed: raw.failed.clone(),
                cost: raw.cost.clone(),
                oldest_age: raw.oldest_age.clone(),
                timeout,
                max_body,
            }))
        }
        "haproxy-log" => {
            only_for(
                path,
                "haproxy-log",
                &[
                    ("url", raw.url.is_some()),
                    ("histogram", raw.histogram.is_some()),
                    ("labels", raw.labels.is_some()),
                    ("failed", raw.failed.is_some()),
                    ("cost", raw.cost.is_some()),
                    ("oldest_age", raw.oldest_age.is_some()),
                    ("timeout", raw.timeout.is_some()),
                    ("max_body", raw.max_body.is_some()),
                ],
            )?;
            let listen = required(format!("{path}.listen"), raw.listen.as_ref(), "haproxy-log")?;
            let node = required(format!("{path}.node"), raw.node.as_ref(), "haproxy-log")?;
            let parts: Vec<_> = node.split('/').collect();
            if parts.len() != 2
                || parts.iter().any(|p| p.is_empty())
                || node.contains(char::is_whitespace)
            {
                return wrong(
                    format!("{path}.node"),
                    format!("must be \"backend/server\", is {node:?}"),
                );
            }
            Ok(SourceConfig::HaproxyLog {
                listen: at(&format!("{path}.listen"), values::log_listen(listen))?,
                node: node.clone(),
            })
        }
        kind @ ("proxies" | "partitions") => {
            only_for(
                path,
                kind,
                &[
                    ("url", raw.url.is_some()),
                    ("histogram", raw.histogram.is_some()),
                    ("labels", raw.labels.is_some()),
                    ("failed", raw.failed.is_some()),
                    ("cost", raw.cost.is_some()),
                    ("oldest_age", raw.oldest_age.is_some()),
                    ("timeout", raw.timeout.is_some()),
                    ("max_body", raw.max_body.is_some()),
                    ("listen", raw.listen.is_some()),
                    ("node", raw.node.is_some()),
                ],
            )?;
            Ok(match kind {
                "proxies" => SourceConfig::Proxies,
                _ => SourceConfig::Partitions,
            })
        }
        other => wrong(
            format!("{path}.kind"),
            format!(
                "must be one of \"prometheus\", \"haproxy-log\", \"proxies\", \"partitions\", is {other:?}"
            ),
        ),
    }
}

pub(super) fn metric_name(key: &str, name: &str) -> Checked<()> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b':';
    if name.is_empty() || !name.bytes().all(fine) || name.as_bytes()[0].is_ascii_digit() {
        return wrong(key, format!("must be a metric name, is {name:?}"));
    }
    Ok(())
}

fn health(path: &str, raw: &raw::Health) -> Checked<HealthConfig> {
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

fn unique_identities(services: &[ServiceConfig]) -> Checked<()> {
    let mut seen = BTreeMap::new();
    for (index, service) in services.iter().enumerate() {
        let name = (format!("service[{index}].name"), &service.name);
        let others = service.identities.iter().enumerate();
        let others = others.map(|(i, name)| (format!("service[{index}].identities[{i}]"), name));
        for (key, name) in std::iter::once(name).chain(others) {
            if let Some(first) = seen.get(name) {
                return wrong(key, format!("{name:?} is taken by {first}"));
            }
            seen.insert(name, key);
        }
    }
    Ok(())
}

fn unique_addresses(config: &Config) -> Checked<()> {
    let mut tcp = vec![("http.listen".to_owned(), config.http_listen)];
    let mut udp: Vec<(String, SocketAddr)> = Vec::new();
    let mut paths = BTreeMap::new();
    claim(
        &mut tcp,
        "agent_check.listen".into(),
        config.agent_check_listen,
    )?;
    if let Some(address) = config.envoy.orca_listen {
        claim(&mut tcp, "envoy.orca_listen".into(), address)?;
    }
    if let Some(socket) = &config.control_socket {
        paths.insert(socket, "control.socket".to_owned());
    }
    for (index, service) in config.services.iter().enumerate() {
        let SourceConfig::HaproxyLog { listen, .. } = &service.source else {
            continue;
        };
        let key = format!("service[{index}].source.listen");
        match listen {
            LogListen::Tcp(address) => claim(&mut tcp, key, *address)?,
            LogListen::Udp(address) => claim(&mut udp, key, *address)?,
            LogListen::Unix(path) => {
                if let Some(first) = paths.get(path) {
                    return wrong(key, format!("{} is taken by {first}", path.display()));
                }
                paths.insert(path, key);
            }
        }
    }
    Ok(())
}

fn claim(taken: &mut Vec<(String, SocketAddr)>, key: String, address: SocketAddr) -> Checked<()> {
    let clash = |other: &SocketAddr| {
        let (a, b) = (address.ip(), other.ip());
        address.port() != 0
            && address.port() == other.port()
            && (a == b || a.is_unspecified() || b.is_unspecified())
    };
    if let Some((first, other)) = taken.iter().find(|(_, other)| clash(other)) {
        return wrong(key, format!("{address} clashes with {first} ({other})"));
    }
    taken.push((key, address));
    Ok(())
}
