//! From "host:port" to an IP address, which is all that Envoy's endpoint discovery takes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tracing::warn;

/// A name is looked up again after this long.
const FRESH: Duration = Duration::from_secs(30);
/// A name server that is slower counts as away.
const LOOKUP: Duration = Duration::from_millis(250);
/// Names remembered.
const MAX_NAMES: usize = 1024;

/// The last address of each name.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<String, (Option<SocketAddr>, Instant)>,
}

impl Names {
    /// The address; of several the lowest, so that all agents take the same. The last good one stays
    /// while a name server is away.
    pub async fn find(&mut self, host_port: &str) -> Option<SocketAddr> {
        if let Ok(address) = host_port.parse() {
            return Some(address);
        }
        let known = self.known.get(host_port).copied();
        if let Some((found, at)) = known
            && at.elapsed() < FRESH
        {
            return found;
        }
        let before = known.and_then(|(found, _)| found);
        let looked = tokio::time::timeout(LOOKUP, tokio::net::lookup_host(host_port)).await;
        let found = match looked {
            Ok(Ok(addresses)) => addresses.min(),
            _ => None,
        };
        if found.is_none() && known.is_none_or(|(found, _)| found.is_some()) {
            warn!(
                address = host_port,
                "cannot be looked up: {}",
                match before {
                    Some(_) => "its last address stays",
                    None => "Envoy is not told of this node",
                }
            );
        }
        let found = found.or(before);
        if self.known.len() >= MAX_NAMES {
            self.known.clear();
        }
        self.known
            .insert(host_port.to_owned(), (found, Instant::now()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_taken_as_they_are_and_names_are_looked_up() {
        let mut names = Names::default();
        let found = names.find("[2001:db8::1]:80").await;
        assert_eq!(
            found.map(|at| at.to_string()),
            Some("[2001:db8::1]:80".into())
        );
        let found = names.find("localhost:80").await;
        assert!(found.is_some_and(|at| at.ip().is_loopback() && at.port() == 80));
        assert_eq!(names.find("no-such-name.invalid:80").await, None);
    }
}
