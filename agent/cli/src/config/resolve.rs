//! Fills in defaults and rejects invalid combinations.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use plimsoll_node::{
    control_loop::{self, ServiceConfig},
    placement::placement,
    ring::redis,
};
use plimsoll_outputs::{agent_check, envoy::envoy};
use plimsoll_settings::{
    Checked, MILLI, SharedTls, at, duration, log_format, log_level, networks, number, server_tls,
    tokens, wrong,
};
use plimsoll_signal::sources::LogListen;

use super::{Config, partitions, raw};

pub fn resolve(file: raw::File) -> Checked<Config> {
    let raw::File {
        agent,
        http,
        agent_check: raw_agent_check,
        control,
        tls,
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
    let http_listen = http.listen.as_deref().unwrap_or("127.0.0.1:9464");
    let http_tokens = tokens(&http)?;
    let tls = SharedTls::new(&tls)?;
    let has_token = !http_tokens.is_empty();
    let mut config = Config {
        period,
        jitter: number("agent.jitter", agent.jitter.unwrap_or(0.05), 0.0..=0.5)?,
        log_level: log_level("agent.log_level", agent.log_level.as_deref())?,
        log_format: log_format("agent.log_format", agent.log_format.as_deref())?,
        state_directory: agent.state_directory,
        http_listen: at("http.listen", plimsoll_net::address(http_listen))?,
        http_allow: networks("http.allow", http.allow.as_deref())?,
        http_tokens,
        http_tls: server_tls(http.tls.as_ref())?,
        agent_check: agent_check::agent_check(&raw_agent_check)?,
        control_socket: control.socket,
        redis: raw_redis.as_ref().map(redis).transpose()?,
        placement: raw_placement.as_ref().map(placement).transpose()?,
        envoy: envoy(&raw_envoy, period, &tls)?,
        services: Vec::new(),
        partitions: plimsoll_scatter::partition::partitions(partition, has_token, &tls)?,
    };
    if service.is_empty() {
        return wrong("service", "at least one [[service]] is required");
    }
    let has_peers = !config.envoy.peers.is_empty();
    for (index, raw) in service.into_iter().enumerate() {
        config.services.push(control_loop::service(
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

/// A ring needs Redis, and each of its nodes belongs to a single service.
fn rings(config: &Config) -> Checked<()> {
    let mut seen = BTreeMap::new();
    for (index, service) in config.services.iter().enumerate() {
        let Some(ring) = &service.ring else {
            if service.source.needs_ring() {
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

fn unique_identities(services: &[ServiceConfig]) -> Checked<()> {
    let mut seen = BTreeMap::new();
    for (index, service) in services.iter().enumerate() {
        let name = (format!("service[{index}].name"), &service.name);
        let others = service.identities.iter().enumerate();
        let others = others.map(|(i, name)| (format!("service[{index}].identities[{i}]"), name));
        for (key, name) in std::iter::once(name).chain(others) {
            if let Some(first) = seen.get(name) {
                return wrong(key, format!("{name:?} is already used by {first}"));
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
        config.agent_check.listen,
    )?;
    if let Some(address) = config.envoy.orca_listen {
        claim(&mut tcp, "envoy.orca_listen".into(), address)?;
    }
    if let Some(socket) = &config.control_socket {
        paths.insert(socket, "control.socket".to_owned());
    }
    for (index, service) in config.services.iter().enumerate() {
        let Some(listen) = service.source.log_listen() else {
            continue;
        };
        let key = format!("service[{index}].source.listen");
        match listen {
            LogListen::Tcp(address) => claim(&mut tcp, key, *address)?,
            LogListen::Udp(address) => claim(&mut udp, key, *address)?,
            LogListen::Unix(path) => {
                if let Some(first) = paths.get(path) {
                    return wrong(
                        key,
                        format!("{} is already used by {first}", path.display()),
                    );
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
        return wrong(key, format!("{address} conflicts with {first} ({other})"));
    }
    taken.push((key, address));
    Ok(())
}

/// The keeper learns its nodes from the ring.
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
