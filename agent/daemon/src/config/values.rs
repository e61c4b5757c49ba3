//! Values with a syntax of their own.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use ipnet::IpNet;
use plimsoll_core::Objective;

/// Least severe level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub tracing::Level);

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// A plain `http://` address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// Host and port to connect to.
    pub connect: String,
    /// For the `host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl std::fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl std::str::FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        http_url(text)
    }
}

/// Where a database listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseAddress {
    /// Host and port.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl std::fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatabaseAddress::Tcp(address) => f.write_str(address),
            DatabaseAddress::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// `host:port` or `unix:///path`.
pub fn database_address(text: &str) -> Result<DatabaseAddress, String> {
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(DatabaseAddress::Unix(path.into())),
        Some(_) => Err(format!("must be \"unix:///PATH\", is {text:?}")),
        None => host_port(text).map(DatabaseAddress::Tcp),
    }
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps it.
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    /// The text, for whom it is meant.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Where HAProxy's log lines arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogListen {
    /// One line a datagram.
    Udp(SocketAddr),
    /// Lines that end in a newline.
    Tcp(SocketAddr),
    /// A datagram socket in the file system.
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

/// "mean" or "p" and a percentage between 0 and 100, both exclusive.
pub fn objective(text: &str) -> Result<Objective, String> {
    if text == "mean" {
        return Ok(Objective::Mean);
    }
    text.strip_prefix('p')
        .filter(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        .and_then(|rest| rest.parse::<f64>().ok())
        .filter(|percent| *percent > 0.0 && *percent < 100.0)
        .map(|percent| Objective::Quantile(percent / 100.0))
        .ok_or_else(|| format!("must be \"mean\" or \"p50\" to \"p99.9\", is {text:?}"))
}

/// A number of bytes, with B, KiB, MiB or none.
pub fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "B" => Some(1),
        "KiB" => Some(1usize << 10),
        "MiB" => Some(1 << 20),
        _ => None,
    };
    let value = number.parse::<usize>().ok().zip(factor);
    value
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| format!("must be bytes such as \"512KiB\" or \"4MiB\", is {text:?}"))
}

/// Where to listen: IP and port. `localhost` is 127.0.0.1.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse().ok(),
        None => text.parse().ok(),
    };
    let address = address.filter(|address: &SocketAddr| address.port() != 0);
    address.ok_or_else(|| {
        format!(
            "must be an IP address, or localhost, and a port such as \"127.0.0.1:9464\", is {text:?}"
        )
    })
}

/// `192.0.2.0/24`, or one address.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().ok();
    let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    // A mapped one would match nobody: addresses are compared as IPv4.
    let mapped = |it: &IpNet| matches!(it, IpNet::V6(it) if it.addr().to_ipv4_mapped().is_some());
    network.filter(|it| !mapped(it)).ok_or_else(|| {
        format!("must be a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", is {text:?}")
    })
}

/// An address to be shown: whose user, and with it a password, is left out.
pub fn without_user(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{host}")
        }
        None => text.to_owned(),
    }
}

/// Host and port to connect to; the host is an IP address (IPv6 in brackets) or a name.
pub fn host_port(text: &str) -> Result<String, String> {
    let fits = || {
        let (host, port) = text.rsplit_once(':')?;
        let port_fits = port.bytes().all(|b| b.is_ascii_digit());
        port.parse().ok().filter(|n: &u16| *n > 0 && port_fits)?;
        if let Some(rest) = host.strip_prefix('[') {
            let inside = rest.strip_suffix(']')?;
            return inside.parse::<std::net::Ipv6Addr>().ok().map(drop);
        }
        let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if numeric {
            return host.parse::<std::net::Ipv4Addr>().ok().map(drop);
        }
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let mut labels = host.split('.');
        let fits = labels.all(|l| (1..=63).contains(&l.len()) && l.bytes().all(letter));
        (fits && host.len() <= 253).then_some(())
    };
    match fits() {
        Some(()) => Ok(text.to_owned()),
        None => Err(format!(
            "must be host and port such as \"192.0.2.11:8001\", \"[2001:db8::11]:8001\" or \"node1.example:8001\", is {:?}",
            without_user(text)
        )),
    }
}

/// `http://host[:port]/path`.
pub fn http_url(text: &str) -> Result<HttpUrl, String> {
    let problem = || {
        format!(
            "must be an address such as \"http://127.0.0.1:8001/metrics\" (no TLS, no user), is {:?}",
            without_user(text)
        )
    };
    let uri: axum::http::Uri = text.parse().map_err(|_| problem())?;
    let authority = uri.authority().ok_or_else(problem)?;
    if uri.scheme_str() != Some("http") || authority.as_str().contains('@') {
        return Err(problem());
    }
    let port = match (authority.port(), authority.as_str().rsplit_once(':')) {
        (Some(_), _) => authority.port_u16().ok_or_else(problem)?,
        (None, Some((_, after))) if !after.ends_with(']') => return Err(problem()),
        (None, _) => 80,
    };
    Ok(HttpUrl {
        connect: format!("{}:{port}", authority.host()),
        authority: authority.to_string(),
        path: uri.path_and_query().map_or("/".into(), |p| p.to_string()),
    })
}

/// `udp://ip:port`, `tcp://ip:port` or `unix:///path`.
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

/// One of a few words.
pub fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        format!("must be one of {}, is {text:?}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives() {
        assert_eq!(objective("mean"), Ok(Objective::Mean));
        for (text, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99.9", 0.999)] {
            let Ok(Objective::Quantile(q)) = objective(text) else {
                unreachable!("{text}")
            };
            assert!((q - quantile).abs() < 1e-12, "{text}: {q}");
        }
        for text in [
            "", "p", "p0", "p100", "p-1", "pNaN", "pinf", "p9e1", "95", "median",
        ] {
            assert!(objective(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks() {
        for text in [
            "192.0.2.0/24",
            "192.0.2.7",
            "2001:db8::/32",
            "::1",
            "0.0.0.0/0",
        ] {
            assert!(network(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "a",
            "192.0.2.0/33",
            "192.0.2/24",
            "::ffff:192.0.2.0/120",
        ] {
            assert!(network(text).is_err(), "{text}");
        }
        let holds = |text, address: &str| {
            network(text).map(|it| address.parse().map(|a: IpAddr| it.contains(&a)))
        };
        assert_eq!(holds("192.0.2.7/24", "192.0.2.200"), Ok(Ok(true)));
    }

    #[test]
    fn sizes_and_addresses() {
        assert_eq!(bytes("4MiB"), Ok(4 << 20));
        assert_eq!(bytes("100"), Ok(100));
        assert!(bytes("4MB").is_err() && bytes("").is_err() && bytes("-1").is_err());
        let connect = |text| http_url(text).map(|url| url.connect);
        assert_eq!(
            connect("http://localhost/metrics"),
            Ok("localhost:80".into())
        );
        assert_eq!(connect("http://[::1]:81/x?y"), Ok("[::1]:81".into()));
        for text in [
            "https://a/",
            "http://u@a/",
            "a:1/metrics",
            "http://a:99999/",
            "http:///x",
        ] {
            assert!(http_url(text).is_err(), "{text}");
        }
        assert!(log_listen("udp://a:1").is_err() && log_listen("unix://x").is_err());
        for text in [
            "192.0.2.1:80",
            "[2001:db8::1]:80",
            "node-1.example:80",
            "db_1:1",
        ] {
            assert_eq!(host_port(text), Ok(text.into()));
        }
        for text in [
            "",
            "a",
            ":80",
            "a:",
            "a:0",
            "a:+1",
            "a:65536",
            "::1:80",
            "[::1]80",
            "[a]:80",
            "1.2.3:80",
            "1.2.3.4.5:80",
            "a..b:80",
            "a b:80",
            "http://a:80",
            "a:80/",
        ] {
            assert!(host_port(text).is_err(), "{text}");
        }
        assert!(address("127.0.0.1:1").is_ok() && address("127.0.0.1:0").is_err());
    }

    #[test]
    fn localhost_is_taken_wherever_an_address_is() {
        let loopback = "127.0.0.1:81".parse();
        assert_eq!(address("localhost:81").ok(), loopback.clone().ok());
        assert_eq!(
            log_listen("udp://localhost:81").ok(),
            loopback.clone().ok().map(LogListen::Udp)
        );
        assert_eq!(
            log_listen("tcp://localhost:81").ok(),
            loopback.ok().map(LogListen::Tcp)
        );
        assert!(host_port("localhost:81").is_ok() && database_address("localhost:81").is_ok());
        assert!(http_url("http://localhost:81/").is_ok());
        for text in [
            "localhost",
            "localhost:",
            "localhost:0",
            "localhost:x",
            "a.localhost:81",
        ] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
