//! The open connections of a port, and the eviction of the idlest at the limit.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A connection that has sent no request for this long is evicted before one that was answered; a well-behaved client
/// sends its request sooner.
const NEWCOMER: Duration = Duration::from_millis(500);

/// The connections of one port.
#[derive(Debug)]
pub struct Places {
    most: usize,
    /// Limit for one address.
    most_from_one: usize,
    open: Mutex<Open>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// Sockets that are not closed yet, including those of evicted connections.
    sockets: usize,
    connections: HashMap<u64, Entry>,
    from: HashMap<IpAddr, Origin>,
    all: Idle,
}

#[derive(Debug)]
struct Entry {
    origin: IpAddr,
    /// Since when it waits for its peer; `None` while it waits for us.
    idle: Option<Since>,
    /// Whether it has sent a request.
    proved: bool,
    gives_way: CancellationToken,
}

#[derive(Debug, Default)]
struct Origin {
    open: usize,
    idle: Idle,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    proved: bool,
    at: Instant,
}

/// Connections that wait for their peer, longest first.
#[derive(Debug, Default)]
struct Idle {
    unproved: BTreeSet<(Instant, u64)>,
    proved: BTreeSet<(Instant, u64)>,
}

impl Idle {
    fn of(&mut self, proved: bool) -> &mut BTreeSet<(Instant, u64)> {
        match proved {
            true => &mut self.proved,
            false => &mut self.unproved,
        }
    }

    /// The connection to evict first.
    fn first(&self, now: Instant) -> Option<u64> {
        let unproved = self.unproved.first();
        let late = unproved.filter(|(at, _)| now.saturating_duration_since(*at) >= NEWCOMER);
        let first = late.or(self.proved.first()).or(unproved);
        first.map(|(_, number)| *number)
    }
}

/// Result for a new connection.
#[derive(Debug)]
pub enum Entered {
    /// There was room.
    Free(Place),
    /// Another connection was evicted.
    InPlaceOf(Place),
    /// No place: all connections that could be evicted wait for us.
    Full,
}

/// A connection's place, held until its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    number: u64,
    places: Arc<Places>,
    gives_way: CancellationToken,
}

impl Places {
    /// Allows `most` connections, three quarters of them from one address or one IPv6 /64 network.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Places {
            most,
            most_from_one: most * 3 / 4,
            open: Mutex::default(),
            left: Notify::new(),
        })
    }

    /// Takes a place. If there is none, the idlest connection is evicted; if the address is at its own limit, the
    /// idlest of that address.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Entered {
        let (now, origin) = (Instant::now(), origin(peer));
        let mut open = self.lock();
        let from_one = open.from.get(&origin);
        let first = match from_one.filter(|it| it.open >= self.most_from_one) {
            Some(own) => Some(own.idle.first(now)),
            None if open.connections.len() >= self.most => Some(open.all.first(now)),
            None => None,
        };
        if let Some(first) = first {
            let Some(number) = first else {
                return Entered::Full;
            };
            if let Some(entry) = open.take_out(number) {
                entry.gives_way.cancel();
            }
        }
        let number = open.next;
        open.next += 1;
        open.sockets += 1;
        let gives_way = CancellationToken::new();
        let entry = Entry {
            origin,
            idle: None,
            proved: false,
            gives_way: gives_way.clone(),
        };
        open.connections.insert(number, entry);
        open.from.entry(origin).or_default().open += 1;
        open.set_idle(number, Some(now));
        drop(open);
        let place = Place(Arc::new(Held {
            number,
            places: Arc::clone(self),
            gives_way,
        }));
        match first {
            Some(_) => Entered::InPlaceOf(place),
            None => Entered::Free(place),
        }
    }

    /// Waits until there are no more open sockets than places.
    pub async fn settled(&self) {
        while self.lock().sockets > self.most {
            self.left.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn set_idle(&mut self, number: u64, now: Option<Instant>) {
        let Some(entry) = self.connections.get_mut(&number) else {
            return;
        };
        let Some(origin) = self.from.get_mut(&entry.origin) else {
            return;
        };
        let mut lists = [&mut self.all, &mut origin.idle];
        if let Some(Since { proved, at }) = entry.idle.take() {
            for list in &mut lists {
                list.of(proved).remove(&(at, number));
            }
        }
        if let Some(at) = now {
            let proved = entry.proved;
            for list in &mut lists {
                list.of(proved).insert((at, number));
            }
            entry.idle = Some(Since { proved, at });
        }
    }

    fn take_out(&mut self, number: u64) -> Option<Entry> {
        self.set_idle(number, None);
        let entry = self.connections.remove(&number)?;
        if let Some(origin) = self.from.get_mut(&entry.origin) {
            origin.open -= 1;
            if origin.open == 0 {
                self.from.remove(&entry.origin);
            }
        }
        Some(entry)
    }
}

impl Place {
    /// The peer has sent a request and waits for us, so it is not evicted.
    pub fn waits_for_us(&self) {
        let mut open = self.0.places.lock();
        if let Some(entry) = open.connections.get_mut(&self.0.number) {
            entry.proved = true;
        }
        open.set_idle(self.0.number, None);
    }

    /// The peer has sent a request, and we wait for it: to send the rest, read the answer or send another request.
    pub fn waits_for_peer(&self) {
        let mut open = self.0.places.lock();
        if let Some(entry) = open.connections.get_mut(&self.0.number) {
            entry.proved = true;
        }
        open.set_idle(self.0.number, Some(Instant::now()));
    }

    /// Cancelled when the connection is evicted.
    pub fn gives_way(&self) -> &CancellationToken {
        &self.0.gives_way
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.places.lock();
        open.take_out(self.number);
        open.sockets -= 1;
        drop(open);
        self.places.left.notify_one();
    }
}

/// The address that counts for limits; for IPv6 its /64 network, since a client has all of it.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use std::net::Ipv4Addr;

    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))
    }

    fn free(places: &Arc<Places>, n: u8) -> Place {
        match places.enter(address(n)) {
            Entered::Free(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn is_asked(place: &Place) -> bool {
        place.gives_way().is_cancelled()
    }

    #[test]
    fn idlest_connection_that_waits_for_its_peer_is_evicted() {
        let places = Places::new(4);
        let [waits, answered, again, new] = [1, 2, 3, 4].map(|n| free(&places, n));
        waits.waits_for_us();
        again.waits_for_peer();
        answered.waits_for_peer();
        let Entered::InPlaceOf(next) = places.enter(address(5)) else {
            panic!("it was full");
        };
        let gone = [&waits, &answered, &again, &new].map(is_asked);
        assert_eq!(gone, [false, false, true, false], "answered longest ago");
        std::thread::sleep(NEWCOMER);
        let _last = places.enter(address(6));
        assert!(
            is_asked(&new) && !is_asked(&answered),
            "asked nothing in time"
        );
        drop(next);
        assert!(matches!(places.enter(address(7)), Entered::Free(_)));
    }

    #[test]
    fn one_address_cannot_take_all_places() {
        let places = Places::new(4);
        let all: Vec<_> = (0..3).map(|_| free(&places, 1)).collect();
        all[0].waits_for_us();
        let Entered::InPlaceOf(fourth) = places.enter(address(1)) else {
            panic!("one address may have three");
        };
        assert!(is_asked(&all[1]));
        let other = free(&places, 2);
        for place in [&all[2], &fourth] {
            place.waits_for_us();
        }
        assert!(matches!(places.enter(address(1)), Entered::Full));
        assert!(!is_asked(&other));
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let [one, other, far] =
            ["2001:db8::1", "2001:db8::2:1", "2001:db8:1::1"].map(|text| text.parse().map(origin));
        assert_eq!(one, other);
        assert_ne!(one, far);
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!(origin(mapped.into()), Ipv4Addr::LOCALHOST);
    }
}
