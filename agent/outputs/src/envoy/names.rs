//! Resolves "host:port" to an IP address, since Envoy's endpoint discovery accepts no names.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tracing::warn;

/// Age after which a name is resolved again.
const FRESH: Duration = Duration::from_secs(30);
/// Timeout of a lookup.
const LOOKUP: Duration = Duration::from_millis(250);
/// Maximum number of cached names.
const MAX_NAMES: usize = 1024;

/// Last known address of each name.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<String, (Option<SocketAddr>, Instant)>,
}

impl Names {
    /// Resolves a name; of several addresses the lowest, so that all agents choose the same. Keeps the last known
    /// address while the name server is unavailable.
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
                "cannot be resolved: {}",
                match before {
                    Some(_) => "keeping its last address",
                    None => "the node is left out of Envoy's endpoints",
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
