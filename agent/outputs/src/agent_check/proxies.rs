//! Proxies that poll, and their shares of the bound.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_node::overrides::ProxyId;
use plimsoll_wire::ProxyView;

/// Maximum number of proxies that share a service's bound. More suggest a client that invents names.
const MAX_PROXIES: usize = 64;

/// Limits for proxies.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time without a poll after which a proxy is gone.
    pub lease: Duration,
    /// Maximum number of proxies of one address that share a service's bound.
    pub per_address: usize,
}

/// Position of a proxy among those that share a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of proxies that share.
    pub proxies: u32,
    /// Position of this proxy, from 0.
    pub index: u32,
}

#[derive(Debug)]
struct Seen {
    polled: Instant,
    address: IpAddr,
    /// Whether it sent an identity: `agent-send` does, a port probe does not.
    named: bool,
    /// Whether it has polled more than once; otherwise it gets no share.
    asked_again: bool,
    told: String,
    told_drain: bool,
}

/// Proxies that poll, with their leases.
#[derive(Debug, Default)]
pub struct Proxies {
    seen: Mutex<BTreeMap<ProxyId, Seen>>,
}

impl Proxies {
    /// Records a poll and returns the proxy's share, among those that have polled twice; `None` if there are too
    /// many. If any of them is `named`, proxies without a name get no share.
    pub fn poll(
        &self,
        id: &ProxyId,
        named: bool,
        address: IpAddr,
        now: Instant,
        limits: Limits,
    ) -> Option<Share> {
        let mut seen = self.lock();
        expire(&mut seen, now, limits.lease);
        if let Some(known) = seen.get_mut(id) {
            known.polled = now;
            known.address = address;
            known.named |= named;
            known.asked_again = true;
        } else {
            make_room(&mut seen, &id.service, named, address, limits.per_address)?;
            let new = Seen {
                polled: now,
                address,
                named,
                asked_again: false,
                told: String::new(),
                told_drain: false,
            };
            seen.insert(id.clone(), new);
        }
        Some(share_of(&seen, id))
    }

    /// The share that a proxy would get, without recording a poll.
    pub fn look(&self, id: &ProxyId, now: Instant, lease: Duration) -> Share {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        share_of(&seen, id)
    }

    /// Records the answer a proxy received, once it is written.
    pub fn told(&self, id: &ProxyId, line: &str, drain: bool) {
        if let Some(known) = self.lock().get_mut(id) {
            known.told.clear();
            known.told.push_str(line.trim_end());
            known.told_drain = drain;
        }
    }

    /// Whether the last answer to every proxy with a lease on these services was a drain.
    pub fn all_told_drain(&self, now: Instant, lease: Duration, of: impl Fn(&str) -> bool) -> bool {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        let mut proxies = seen.iter().filter(|(id, known)| {
            of(&id.service) && (known.named || !has_named(&seen, &id.service))
        });
        proxies.all(|(_, known)| known.told_drain)
    }

    /// Number of proxies that share a service's bound.
    pub fn sharing(&self, service: &str, now: Instant, lease: Duration) -> usize {
        self.view(service, 0.0, now, lease).len()
    }

    /// Proxies of a service that hold a lease.
    pub fn ids(&self, service: &str, now: Instant, lease: Duration) -> Vec<ProxyId> {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        seen.keys()
            .filter(|id| id.service == service)
            .cloned()
            .collect()
    }

    /// Proxies of a service with their shares of `jobs`.
    pub fn view(&self, service: &str, jobs: f64, now: Instant, lease: Duration) -> Vec<ProxyView> {
        let mut seen = self.lock();
        expire(&mut seen, now, lease);
        let of_service: Vec<_> = sharing(&seen, service).collect();
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

/// Whether any proxy of the service that has polled twice is named.
fn has_named(seen: &BTreeMap<ProxyId, Seen>, service: &str) -> bool {
    seen.iter()
        .any(|(id, known)| id.service == service && known.named && known.asked_again)
}

/// Proxies that share a service's bound.
fn sharing<'a>(
    seen: &'a BTreeMap<ProxyId, Seen>,
    service: &'a str,
) -> impl Iterator<Item = (&'a ProxyId, &'a Seen)> {
    let has_named = has_named(seen, service);
    seen.iter().filter(move |(id, known)| {
        id.service == service && known.asked_again && (known.named || !has_named)
    })
}

/// Share of a polling proxy: its own, or that of one more proxy.
fn share_of(seen: &BTreeMap<ProxyId, Seen>, id: &ProxyId) -> Share {
    let mut share = Share {
        proxies: 1,
        index: 0,
    };
    for (other, _) in sharing(seen, &id.service).filter(|(other, _)| *other != id) {
        share.index += u32::from(other < id);
        share.proxies += 1;
    }
    share
}

/// If there are too many proxies, evicts one that has polled only once, or, for a `named` proxy, one without a name;
/// the one with the oldest poll first. Fails if there is none.
fn make_room(
    seen: &mut BTreeMap<ProxyId, Seen>,
    service: &str,
    named: bool,
    address: IpAddr,
    per_address: usize,
) -> Option<()> {
    let of_service = seen.iter().filter(|(id, _)| id.service == service);
    let of_address = of_service.clone().filter(|(_, it)| it.address == address);
    let is_address_full = of_address.clone().count() >= per_address;
    if !is_address_full && of_service.clone().count() < MAX_PROXIES {
        return Some(());
    }
    let weak = of_service.filter(|(_, it)| {
        (!it.asked_again || named && !it.named) && (!is_address_full || it.address == address)
    });
    let (oldest, _) = weak.min_by_key(|(_, it)| it.polled)?;
    let oldest = oldest.clone();
    seen.remove(&oldest);
    Some(())
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

    const LIMITS: Limits = Limits {
        lease: LEASE,
        per_address: 8,
    };

    #[test]
    fn shares_follow_who_polls() {
        let proxies = Proxies::default();
        let start = Instant::now();
        let poll = |id: &ProxyId, after| {
            let now = start + Duration::from_secs(after);
            let share = proxies.poll(id, true, HERE, now, LIMITS)?;
            Some((share.proxies, share.index))
        };
        let (a, b) = (id("stocks", "a"), id("stocks", "b"));
        assert_eq!(poll(&b, 0), Some((1, 0)));
        assert_eq!(poll(&b, 1), Some((1, 0)));
        assert_eq!(poll(&a, 1), Some((2, 0)));
        assert_eq!(poll(&b, 2), Some((1, 0)), "a asked once");
        assert_eq!(poll(&a, 2), Some((2, 0)));
        assert_eq!(poll(&b, 3), Some((2, 1)));
        assert_eq!(poll(&id("orders", "a"), 3), Some((1, 0)));
        assert_eq!(poll(&b, 13), Some((1, 0)), "a's lease is over");
    }

    #[test]
    fn made_up_names_take_no_share_and_one_address_few() {
        let proxies = Proxies::default();
        let now = Instant::now();
        let ask = |name: &str, from: u8| {
            let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, from));
            let share = proxies.poll(&id("stocks", name), true, address, now, LIMITS);
            share.map(|share| share.proxies)
        };
        ask("lb", 1);
        ask("lb", 1);
        for n in 0..1000 {
            assert_eq!(ask(&format!("x{n}"), 2), Some(2));
        }
        assert_eq!(ask("lb", 1), Some(1));
        for n in 0..1000 {
            let name = format!("y{n}");
            assert_eq!(ask(&name, 2).is_some(), n < 8, "{n}");
            ask(&name, 2);
        }
        assert_eq!(ask("lb", 1), Some(9));
        assert_eq!(
            ask("lb2", 1),
            Some(10),
            "another address has room of its own"
        );
        for n in 0..100 {
            let from = 10 + n / 8;
            for _ in 0..2 {
                ask(&format!("z{n}"), from);
            }
        }
        assert_eq!(ask("lb", 1), Some(MAX_PROXIES as u32));
    }

    #[test]
    fn drained_when_each_live_proxy_was_told_so() {
        let proxies = Proxies::default();
        let now = Instant::now();
        assert!(
            proxies.all_told_drain(now, LEASE, |_| true),
            "nobody to tell"
        );
        let (a, b) = (id("stocks", "a"), id("stocks", "b"));
        proxies.poll(&a, true, HERE, now, LIMITS);
        proxies.poll(&b, true, HERE, now + LEASE, LIMITS);
        proxies.told(&b, "drain up\n", true);
        assert!(!proxies.all_told_drain(now + LEASE, LEASE, |_| true));
        assert!(
            proxies.all_told_drain(now + LEASE + Duration::from_secs(1), LEASE, |_| true),
            "a is gone"
        );
        proxies.poll(&id("observed", "a"), true, HERE, now, LIMITS);
        let drained = |of: &str| proxies.all_told_drain(now, LEASE, |service| service == of);
        assert_eq!((drained("observed"), drained("orders")), (false, true));
    }

    #[test]
    fn unnamed_proxies_count_only_if_none_is_named() {
        let proxies = Proxies::default();
        let now = Instant::now();
        let limits = LIMITS;
        let ask = |name: &str, named| {
            let share = proxies.poll(&id("stocks", name), named, HERE, now, limits);
            share.map(|share| (share.proxies, share.index))
        };
        // HAProxys without `agent-send`, of two hosts.
        for _ in 0..2 {
            ask("192.0.2.1", false);
            ask("192.0.2.2", false);
        }
        assert_eq!(ask("192.0.2.1", false), Some((2, 0)));
        assert_eq!(proxies.sharing("stocks", now, LEASE), 2);
        // One names itself.
        assert_eq!(ask("lb", true), Some((3, 2)), "asked once");
        assert_eq!(ask("lb", true), Some((1, 0)));
        assert_eq!(
            ask("192.0.2.1", false),
            Some((2, 0)),
            "as if it were one more"
        );
        assert_eq!(ask("lb", true), Some((1, 0)));
        let view = proxies.view("stocks", 40.0, now, LEASE);
        assert_eq!((view.len(), view[0].share_jobs), (1, 40));
        // Nor does it hold up a drain, nor keep a proxy out.
        proxies.told(&id("stocks", "lb"), "drain up\n", true);
        assert!(proxies.all_told_drain(now, LEASE, |_| true));
        for n in 3..9 {
            ask(&format!("192.0.2.{n}"), false);
            ask(&format!("192.0.2.{n}"), false);
        }
        assert_eq!(ask("lb2", true), Some((2, 1)));
        let later = now + LEASE + Duration::from_secs(1);
        let alone = proxies.poll(&id("stocks", "192.0.2.1"), false, HERE, later, limits);
        assert_eq!(alone.map(|share| share.proxies), Some(1));
    }

    #[test]
    fn to_look_is_not_to_ask() {
        let proxies = Proxies::default();
        let now = Instant::now();
        let lb = id("stocks", "lb");
        for _ in 0..3 {
            let share = proxies.look(&id("stocks", "probe"), now, LEASE);
            assert!(share.proxies <= 2);
            let polled = proxies.poll(&lb, true, HERE, now, LIMITS);
            assert_eq!(polled.map(|share| share.proxies), Some(1));
        }
        assert_eq!(proxies.ids("stocks", now, LEASE), [lb]);
    }
}
