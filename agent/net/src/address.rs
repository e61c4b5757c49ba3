//! Parses addresses.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use ipnet::IpNet;

/// A parsed `http://` or `https://` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// Whether it is `https://`.
    pub is_tls: bool,
    /// Host and port to connect to.
    pub connect: String,
    /// Value of the `host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl std::fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl std::str::FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        http_or_https_url(text)
    }
}

/// The address of a database.
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

/// Parses `host:port` or `unix:///path`.
pub fn database_address(text: &str) -> Result<DatabaseAddress, String> {
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(DatabaseAddress::Unix(path.into())),
        Some(_) => Err(format!("must be \"unix:///PATH\", is {text:?}")),
        None => host_port(text).map(DatabaseAddress::Tcp),
    }
}

/// Parses an address to listen on: IP and port. `localhost` is 127.0.0.1.
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

/// Parses a network such as `192.0.2.0/24`, or one address.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().ok();
    let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    // An IPv4-mapped network would match no client, as addresses are compared as IPv4.
    let mapped = |it: &IpNet| matches!(it, IpNet::V6(it) if it.addr().to_ipv4_mapped().is_some());
    network.filter(|it| !mapped(it)).ok_or_else(|| {
        format!("must be a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", is {text:?}")
    })
}

/// The address without its user and password, safe to show.
pub fn without_user(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{host}")
        }
        None => text.to_owned(),
    }
}

/// Checks host and port to connect to; the host is an IP address (IPv6 in brackets) or a name.
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

/// The host of `host:port`; IPv6 without its brackets.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// Parses `http://host[:port]/path`.
pub fn http_url(text: &str) -> Result<HttpUrl, String> {
    let url = parsed_url(text).filter(|url| !url.is_tls);
    url.ok_or_else(|| {
        format!(
            "must be an address such as \"http://127.0.0.1:8001/metrics\" (no TLS, no user), is {:?}",
            without_user(text)
        )
    })
}

/// Parses `http://host[:port]/path`, or the same with `https://`.
pub fn http_or_https_url(text: &str) -> Result<HttpUrl, String> {
    parsed_url(text).ok_or_else(|| {
        format!(
            "must be an address such as \"http://192.0.2.11:9464\", or with https:// (no user), is {:?}",
            without_user(text)
        )
    })
}

fn parsed_url(text: &str) -> Option<HttpUrl> {
    let uri: hyper::Uri = text.parse().ok()?;
    let authority = uri.authority()?;
    let is_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return None,
    };
    if authority.as_str().contains('@') {
        return None;
    }
    let port = match (authority.port(), authority.as_str().rsplit_once(':')) {
        (Some(_), _) => authority.port_u16()?,
        (None, Some((_, after))) if !after.ends_with(']') => return None,
        (None, _) if is_tls => 443,
        (None, _) => 80,
    };
    Some(HttpUrl {
        is_tls,
        connect: format!("{}:{port}", authority.host()),
        authority: authority.to_string(),
        path: uri.path_and_query().map_or("/".into(), |p| p.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn addresses() {
        let connect = |text| http_url(text).map(|url| url.connect);
        assert_eq!(
            connect("http://localhost/metrics"),
            Ok("localhost:80".into())
        );
        assert_eq!(connect("http://[::1]:81/x?y"), Ok("[::1]:81".into()));
        let both =
            ["http://a", "https://a"].map(|text| http_or_https_url(text).map(|it| it.connect));
        assert_eq!(both, [Ok("a:80".into()), Ok("a:443".into())]);
        for text in [
            "https://a/",
            "http://u@a/",
            "a:1/metrics",
            "http://a:99999/",
            "http:///x",
        ] {
            assert!(http_url(text).is_err(), "{text}");
        }
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
    fn localhost_is_accepted_for_all_addresses() {
        let loopback = "127.0.0.1:81".parse();
        assert_eq!(address("localhost:81").ok(), loopback.ok());
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
