//! Which proxies poll, and the share of the bound each of them gets.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// Most proxies a service is shared by. More would mean a client that makes names up.
const MAX_PROXIES: usize = 64;

/// One proxy's server line for one service. HAProxy's `maxconn` is per process and per backend, so
/// the same process asking under two identities counts twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyId {
    /// Service of this node.
    pub service: String,
    /// Identity it asked under.
    pub identity: String,
    /// Its name by `agent-send`, else its address.
    pub proxy: String,
}

/// A proxy's place among those that share a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How many share.
    pub proxies: u32,
    /// Which of them it is, from 0.
    pub index: u32,
}

/// A proxy as `/v1/node` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ProxyView {
    /// Identity it asks under.
    pub identity: String,
    /// Its name, else its address.
    pub proxy: String,
    /// Where it last came from.
    pub address: IpAddr,
    /// Seconds since it last asked.
    pub polled_seconds_ago: f64,
    /// Its part of the bound in jobs.
    pub share_jobs: u32,
    /// The line it was told last.
    pub told: String,
}

#[derive(Debug)]
struct Seen {
    polled: Instant,
    address: IpAddr,
    told: String,
    told_drain: bool,
}

/// The proxies that poll, with leases.
#[derive(Debug, Default)]
pub struct Proxies {
    seen: Mutex<BTreeMap<ProxyId, Seen>>,
}

impl Proxies {
    /// Notes a poll and gives the proxy's share; `None` when too many ask already.
    pub fn poll(
        &self,
        id: &ProxyId,
        address: IpAddr,
        now: Instant,
        lease: Duration,
    ) -> Option<Share> {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        if let Some(known) = seen.get_mut(id) {
            known.polled = now;
            known.address = address;
        } else {
            if seen
                .keys()
                .filter(|other| other.service == id.service)
                .count()
                >= MAX_PROXIES
            {
                return None;
            }
            let new = Seen {
                polled: now,
                address,
                told: String::new(),
                told_drain: false,
            };
            seen.insert(id.clone(), new);
        }
        let mut share = Share {
            proxies: 0,
            index: 0,
        };
        for other in seen.keys().filter(|other| other.service == id.service) {
            share.index += u32::from(other < id);
            share.proxies += 1;
        }
        Some(share)
    }

    /// Notes what a proxy was told, once it is written.
    pub fn told(&self, id: &ProxyId, line: &str, drain: bool) {
        if let Some(known) = self.lock().get_mut(id) {
            known.told.clear();
            known.told.push_str(line.trim_end());
            known.told_drain = drain;
        }
    }

    /// Whether every proxy with a lease was told to drain last.
    pub fn all_told_drain(&self, now: Instant, lease: Duration) -> bool {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        seen.values().all(|known| known.told_drain)
    }

    /// The proxies of a service that hold a lease.
    pub fn ids(&self, service: &str, now: Instant, lease: Duration) -> Vec<ProxyId> {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        seen.keys()
            .filter(|id| id.service == service)
            .cloned()
            .collect()
    }

    /// The proxies of a service with their shares of `jobs`.
    pub fn view(&self, service: &str, jobs: f64, now: Instant, lease: Duration) -> Vec<ProxyView> {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        let of_service: Vec<_> = seen
            .iter()
            .filter(|(id, _)| id.service == service)
            .collect();
        let count = of_service.len() as u32;
        let view = |(index, (id, known)): (u32, &(&ProxyId, &Seen))| ProxyView {
            identity: id.identity.clone(),
            proxy: id.proxy.clone(),
            address: known.address,
            polled_seconds_ago: now.saturating_duration_since(known.polled).as_secs_f64(),
            share_jobs: plimsoll_core::share_of_jobs(jobs, count, index),
            told: known.told.clone(),
        };
        (0..count).zip(&of_service).map(view).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ProxyId, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expire(seen: &mut BTreeMap<ProxyId, Seen>, now: Instant, lease: Duration) {
    seen.retain(|_, known| now.saturating_duration_since(known.polled) <= lease);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn id(service: &str, proxy: &str) -> ProxyId {
        ProxyId {
            service: service.into(),
            identity: service.into(),
            proxy: proxy.into(),
        }
    }

    #[test]
    fn shares_follow_who_polls() {
        let proxies = Proxies::default();
        let start = Instant::now();
        let poll =
            |id: &ProxyId, after| proxies.poll(id, HERE, start + Duration::from_secs(after), LEASE);
        let (a, b) = (id("stocks", "a"), id("stocks", "b"));
        assert_eq!(
            poll(&b, 0),
            Some(Share {
                proxies: 1,
                index: 0
            })
        );
        assert_eq!(
            poll(&a, 1),
            Some(Share {
                proxies: 2,
                index: 0
            })
        );
        assert_eq!(
            poll(&b, 2),
            Some(Share {
                proxies: 2,
                index: 1
            })
        );
        assert_eq!(
            poll(&id("orders", "a"), 2),
            Some(Share {
                proxies: 1,
                index: 0
            })
        );
        assert_eq!(
            poll(&b, 12),
            Some(Share {
                proxies: 1,
                index: 0
            }),
            "a's lease is over"
        );
    }

    #[test]
    fn made_up_names_cannot_take_all_shares() {
        let proxies = Proxies::default();
        let now = Instant::now();
        let known = id("stocks", "lb");
        assert!(proxies.poll(&known, HERE, now, LEASE).is_some());
        for n in 0..1000 {
            proxies.poll(&id("stocks", &format!("x{n}")), HERE, now, LEASE);
        }
        let share = proxies.poll(&known, HERE, now, LEASE);
        assert_eq!(share.map(|s| s.proxies), Some(MAX_PROXIES as u32));
        assert!(
            proxies
                .poll(&id("orders", "lb"), HERE, now, LEASE)
                .is_some()
        );
    }

    #[test]
    fn drained_when_each_live_proxy_was_told_so() {
        let proxies = Proxies::default();
        let now = Instant::now();
        assert!(proxies.all_told_drain(now, LEASE), "nobody to tell");
        let (a, b) = (id("stocks", "a"), id("stocks", "b"));
        proxies.poll(&a, HERE, now, LEASE);
        proxies.poll(&b, HERE, now + LEASE, LEASE);
        proxies.told(&b, "drain up\n", true);
        assert!(!proxies.all_told_drain(now + LEASE, LEASE));
        assert!(
            proxies.all_told_drain(now + LEASE + Duration::from_secs(1), LEASE),
            "a is gone"
        );
    }
}
