//! Fills in defaults and refuses what cannot be.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use plimsoll_core::{Cost, Law};
use plimsoll_settings::{
    Checked, MAX_NAME, MILLI, at, duration, log_format, log_level, networks, number, token, word,
    wrong,
};

use super::{Config, ServiceConfig, partitions, raw};
use crate::{
    agent_check::{OnShutdown, SendWords},
    control_loop::{ControlSections, settings},
    envoy::envoy,
    health_probe::health,
    host_load::load,
    jobs::{Listens, backlog, jobs},
    partition,
    placement::placement,
    ring::{redis, ring},
    role::role,
    sources::{LogListen, SourceConfig, source},
    updates::updates,
};

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
        partitions: partition::partitions(partition, has_token)?,
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
    let settings = settings(
        path,
        &ControlSections {
            sla: &raw.sla,
            bound: &raw.bound,
            controller: &raw.controller,
            rules: &raw.rules,
        },
    )?;
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
        jobs: jobs(&format!("{path}.jobs"), &raw.jobs, &source, period)?,
        backlog: backlog(&format!("{path}.jobs"), &raw.jobs, &listens(&raw), &source)?,
        source,
        load: load(&format!("{path}.load"), &raw.load)?,
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
            .map(|u| updates(&format!("{path}.updates"), u, period))
            .transpose()?,
        role: raw
            .role
            .as_ref()
            .map(|r| role(&format!("{path}.role"), r, period, has_peers))
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

/// Where a service may listen besides.
fn listens(raw: &raw::Service) -> Listens<'_> {
    let url = |url: &String| plimsoll_net::http_url(url).ok().map(|url| url.connect);
    let probed = raw.health.as_ref();
    Listens {
        address: raw.address.as_deref(),
        probed: probed.and_then(|it| it.url.as_ref().and_then(url).or_else(|| it.address.clone())),
    }
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

/// The keeper knows nodes from the ring.
fn has_ring(config: &Config) -> Checked<()> {
    let Some(placement) = &config.placement else {
        return Ok(());
    };
    if config.redis.is_none() {
        return wrong("placement", "needs [redis]");
    }
    let mut rings = config.services.iter().filter_map(|it| it.ring.as_ref());
    match rings.any(|ring| ring.cluster == placement.cluster) {
        true => Ok(()),
        false => wrong(
            "placement.cluster",
            format!(
                "no [service.ring] of this agent has the cluster {:?}",
                placement.cluster
            ),
        ),
    }
}
