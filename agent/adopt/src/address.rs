//! Server addresses, parsed like HAProxy's `str2sa_range`.

use std::net::IpAddr;

/// Host of a server, in the form for a `log` line and an agent's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name that HAProxy resolves.
    Name(String),
    /// HAProxy's own host, for a Unix socket.
    Unix,
}

/// Parses a server's address into its host and, if given, its port. The error is the reason for which no agent can be
/// queried there.
pub fn parse(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Host, Option<u16>), String> {
    let text = expand(text, variable)?;
    let (family, rest) = match text.split_once('@') {
        Some((family, rest)) => (family, rest),
        None if text.starts_with('/') => ("unix", text.as_str()),
        None => ("", text.as_str()),
    };
    let family = family.strip_prefix("stream+").unwrap_or(family);
    match family {
        "unix" => return Ok((Host::Unix, None)),
        "" | "ipv4" | "ipv6" | "tcp" | "tcp4" | "tcp6" | "mptcp" | "mptcp4" | "mptcp6" => {}
        other => {
            return Err(format!(
                "\"{other}@\" has no host whose agent could be polled"
            ));
        }
    }
    // The last colon precedes the port, also after an IPv6 address.
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (rest, ""),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok();
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err(ANYWHERE.to_owned()),
        Ok(ip) => Ok((Host::Ip(ip), port)),
        Err(_) if matches!(host, "" | "*") => Err(ANYWHERE.to_owned()),
        Err(_)
            if host
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it)) =>
        {
            Ok((Host::Name(host.to_owned()), port))
        }
        Err(_) => Err(format!("\"{host}\" is neither an address nor a host name")),
    }
}

const ANYWHERE: &str = "its address is the one the client asked for, so there is no single node whose agent could be polled";

/// Expands `$NAME` and `${NAME}`, which HAProxy does in addresses even without quotes.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, left) = match after.strip_prefix('{') {
            Some(braced) => braced
                .split_once('}')
                .ok_or_else(|| format!("\"{text}\" has no closing brace"))?,
            None => {
                let end = after.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
                after.split_at(end.unwrap_or(after.len()))
            }
        };
        out.push_str(&variable(name).ok_or_else(|| unset(name))?);
        rest = left;
    }
    out.push_str(rest);
    Ok(out)
}

/// Message for a variable that is not set here.
pub fn unset(name: &str) -> String {
    format!(
        "${name} is not set here: run this with HAProxy's environment (EnvironmentFile of its unit, often \
         /etc/default/haproxy)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_like_haproxy() {
        let variable = |name: &str| (name == "A").then(|| "192.0.2.1".to_owned());
        let ip = |text: &str| text.parse().map(Host::Ip).map_err(|_| String::new());
        for (text, host, port) in [
            ("192.0.2.1:80", ip("192.0.2.1"), Some(80)),
            ("192.0.2.1", ip("192.0.2.1"), None),
            ("ipv4@192.0.2.1:+80", ip("192.0.2.1"), Some(80)),
            ("2001:db8::1:80", ip("2001:db8::1"), Some(80)),
            ("ipv6@[2001:db8::1]:80", ip("2001:db8::1"), Some(80)),
            ("[2001:db8::1]", ip("2001:db8::1"), None),
            (
                "app_1.internal:80",
                Ok(Host::Name("app_1.internal".to_owned())),
                Some(80),
            ),
            (
                "_http._tcp.app",
                Ok(Host::Name("_http._tcp.app".to_owned())),
                None,
            ),
            ("${A}:80", ip("192.0.2.1"), Some(80)),
            ("$A:80", ip("192.0.2.1"), Some(80)),
            ("/run/app.sock", Ok(Host::Unix), None),
            ("unix@app.sock", Ok(Host::Unix), None),
        ] {
            assert_eq!(
                parse(text, &variable),
                host.map(|host| (host, port)),
                "{text}"
            );
        }
    }

    #[test]
    fn addresses_without_an_agent_are_refused() {
        for text in [
            "*:80",
            ":80",
            "0.0.0.0:80",
            "abns@x",
            "fd@3",
            "rhttp@x",
            "quic4@192.0.2.1:1",
            "$B:1",
            "${B",
            "a b:1",
        ] {
            assert!(parse(text, &|_| None).is_err(), "{text}");
        }
    }
}
