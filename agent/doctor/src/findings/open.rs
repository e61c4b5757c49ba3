//! Findings about ports that are open to everybody.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{Code, Finding, snapshot::Snapshot};

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut open = |at: &str, problem: String, fix: &str| {
        found.push(Finding::new(Code::OpenToEverybody, at, problem, fix));
    };
    for haproxy in &seen.haproxys {
        for (address, level) in &haproxy.open_sockets {
            if is_public(address) {
                let problem = format!("stats socket {address}, level {level}, in {}", haproxy.at);
                let fix = "bind it to a unix socket with mode 660, or to a private address";
                open(address, problem, fix);
            }
        }
    }
    for envoy in &seen.envoys {
        if let Some(admin) = envoy.admin.as_ref().filter(|it| is_public(it)) {
            let problem = format!("admin on {admin}");
            open(
                &envoy.at,
                problem,
                "bind admin to 127.0.0.1 or to a unix socket",
            );
        }
    }
    for agent in &seen.agents {
        for (key, address) in agent.unlimited.iter().filter(|(_, it)| is_public(it)) {
            let section = key.trim_end_matches(".listen");
            let at = format!("{} {key}", agent.at);
            let problem = format!("{key} is {address}, and {section}.allow is not set");
            let tokens = if section == "http" {
                ", or set [http.tokens]"
            } else {
                ""
            };
            let fix = format!(
                "listen on a private address, or name the proxies' networks in {section}.allow{tokens}"
            );
            open(&at, problem, &fix);
        }
    }
    for redis in seen.redis.iter() {
        let Some(bind) = redis.bind.as_ref().filter(|_| redis.is_without_password) else {
            continue;
        };
        let addresses = || bind.split_whitespace().map(|it| it.trim_start_matches('-'));
        let is_open = |it: &str| it == "*" || it == "::*" || is_public(&format!("{it}:0"));
        if bind.trim().is_empty() || addresses().any(is_open) {
            let problem = format!("bind \"{bind}\", protected-mode no, and no password");
            let fix =
                "bind to a private address, and set passwords for the users: docs/redis.md#users";
            open(&redis.at, problem, fix);
        }
    }
    found
}

/// True for the wildcard address and for publicly routed addresses; false for an address that cannot be parsed.
fn is_public(address: &str) -> bool {
    let address = address.rsplit_once('@').map_or(address, |(_, it)| it);
    let ip = match address.parse::<SocketAddr>() {
        Ok(found) => found.ip(),
        Err(_) => {
            let Some((host, _)) = address.rsplit_once(':') else {
                return false;
            };
            match host.trim_matches(['[', ']']) {
                "*" | "" => return true,
                host => match host.parse() {
                    Ok(ip) => ip,
                    Err(_) => return false,
                },
            }
        }
    };
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip == Ipv4Addr::UNSPECIFIED
                || !(ip.is_loopback()
                    || ip.is_private()
                    || ip.is_link_local()
                    || ip.is_documentation()
                    || is_shared)
        }
        IpAddr::V6(ip) => {
            let is_documentation = ip.segments()[..2] == [0x2001, 0xdb8];
            ip.is_unspecified()
                || !(ip.is_loopback()
                    || ip.is_unique_local()
                    || ip.is_unicast_link_local()
                    || is_documentation)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Redis;

    #[test]
    fn addresses() {
        for address in [
            "0.0.0.0:9464",
            "[::]:9464",
            "ipv4@0.0.0.0:9999",
            "ipv6@:::9999",
            "ipv6@[::]:9999",
            "8.8.8.8:1",
            "[2a00::1]:1",
            "*:9999",
            "[::ffff:8.8.8.8]:1",
        ] {
            assert!(is_public(address), "{address}");
        }
        for address in [
            "127.0.0.1:1",
            "ipv4@10.1.2.3:1",
            "192.168.0.1:1",
            "192.0.2.11:1",
            "100.64.0.1:1",
            "[::1]:1",
            "[fd00::1]:1",
            "[fe80::1]:1",
            "[2001:db8::1]:1",
            "unix@/run/haproxy/admin.sock",
            "/run/haproxy/admin.sock",
            "",
            "what:is",
        ] {
            assert!(!is_public(address), "{address}");
        }
    }

    #[test]
    fn a_redis_is_open_without_password_and_protection() {
        let found = |bind: Option<&str>, is_without_password| {
            let redis = Redis {
                bind: bind.map(str::to_owned),
                is_without_password,
                ..Redis::default()
            };
            let seen = Snapshot {
                redis: Some(redis),
                ..Snapshot::default()
            };
            findings(&seen).len()
        };
        assert_eq!(found(Some("* -::*"), true), 1);
        assert_eq!(found(Some("0.0.0.0"), true), 1);
        assert_eq!(found(Some(""), true), 1);
        assert_eq!(found(Some("127.0.0.1 -::1"), true), 0);
        assert_eq!(found(Some("*"), false), 0);
        assert_eq!(found(None, true), 0);
    }
}
