//! One cluster's state in one worker: its dispatcher, and the requests and attempts in flight.

use std::borrow::Cow;

use plimsoll_core::{
    dispatch::{Class, Costs, DispatchCounts, Dispatcher, Held, Pulse, Verdict},
    ring::key_hash,
};
use plimsoll_wire::Ring;

use crate::{
    config::Settings,
    part::{Part, parsed},
    random::Random,
    told::Shares,
};

/// Upper limit on the number of dispatchers; a larger count from an agent is cut to it.
const MAX_COUNT: usize = 1 << 20;

/// Identifies a request, so that the filter of its attempts can find it. A ticket is valid until [`Engine::end`]; the
/// generation tells a reused slot from the request that held it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// The encoding kept with the stream: three little-endian words. `engine` is the number of the cluster.
    pub fn to_bytes(self, engine: u32) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&engine.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The number of the cluster and the ticket; `None` unless `bytes` has the 12 bytes of [`Ticket::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<(u32, Ticket)> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.len() != 12 {
            return None;
        }
        let (index, generation) = (word(4)?, word(8)?);
        Some((word(0)?, Ticket { index, generation }))
    }
}

/// A request from its admission to its end.
#[derive(Debug)]
struct Request {
    cost: f64,
    route: Option<String>,
    /// The reservation made at admission; the first attempt takes it. `None` for a request without a placement.
    reserved: Option<Held>,
    attempted: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    request: Option<Request>,
    /// Attempts in flight; they may end after the request.
    attempts: u32,
    client_left: bool,
}

/// Result of [`Engine::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request is admitted; [`Engine::host`] and [`Engine::hosts`] give its placement.
    Pass(Ticket),
    /// No node may take the request: answer with 503.
    Full,
}

/// One attempt of a request at a host, from [`Engine::attempt`] to [`Engine::attempt_ended`].
#[derive(Debug)]
pub struct Attempt {
    ticket: Ticket,
    held: Option<Held>,
    place: Option<usize>,
    cost: f64,
    route: Option<String>,
    started: f64,
    answered: bool,
}

impl Attempt {
    /// True once the response headers have arrived.
    pub fn is_answered(&self) -> bool {
        self.answered
    }
}

/// Admits and places one cluster's requests in one worker, and accounts for what is in flight.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    dispatcher: Dispatcher,
    costs: Costs,
    slots: Vec<Slot>,
    free: Vec<u32>,
    random: Random,
    pulse: Pulse,
    /// Time of the last [`Engine::on_time`], seconds: precise enough to judge how old shares and reports are.
    now: f64,
}

impl Engine {
    /// `seed` starts the random numbers; each worker needs its own, or all would choose alike.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Engine {
            dispatcher: Dispatcher::new(settings.dispatch),
            costs: costs_of(&settings),
            settings,
            slots: Vec::new(),
            free: Vec::new(),
            random: Random::new(seed),
            pulse: Pulse::default(),
            now: 0.0,
        }
    }

    /// Advances the clock to `now`, seconds. To be called several times a second.
    pub fn on_time(&mut self, now: f64) {
        self.now = now;
        self.beat(now);
        self.dispatcher.on_time(now);
    }

    /// Lets the shares lapse if the process was stopped for so long that others may have them.
    fn beat(&mut self, now: f64) {
        let lease = self.settings.dispatch.lease;
        if let Some(since) = self.pulse.beat(now, lease) {
            self.dispatcher.lapse(since, now);
        }
    }

    /// Replaces the settings; requests in flight stay counted.
    pub fn set(&mut self, settings: Settings) {
        if settings != self.settings {
            self.dispatcher.set(settings.dispatch);
            self.costs = costs_of(&settings);
            self.settings = settings;
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Puts the shares granted by the agents into force. Returns true if the worker gives up so much of its share that
    /// it should report before the period is over.
    pub fn take_shares(&mut self, now: f64, shares: Shares) -> bool {
        self.beat(now);
        let lease = self.settings.dispatch.lease;
        if !self.pulse.granted(shares.asked_at, now, lease) {
            return false;
        }
        let count = usize::try_from(shares.count).unwrap_or(usize::MAX);
        let count = count.min(MAX_COUNT);
        self.dispatcher.on_shares(now, count, &shares.nodes())
    }

    /// Puts a ring into force.
    pub fn take_ring(&mut self, ring: &Ring) {
        self.dispatcher
            .on_ring(ring.table.clone(), ring.names.clone());
    }

    /// The dispatcher, for reports and the version of the ring.
    pub fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }

    /// Decides at `now`, seconds, whether a request may go on, and reserves its cost at a node if it is placed. `path`
    /// is its `:path`, with the query; `header` looks up a request header by name. The caller ends an admitted request
    /// with [`Engine::end`].
    pub fn admit<'a>(
        &mut self,
        now: f64,
        path: &'a [u8],
        header: impl Fn(&str) -> Option<Cow<'a, [u8]>>,
    ) -> Admission {
        self.beat(now);
        let settings = &self.settings;
        let part = |part: &Option<Part>| part.as_ref()?.of(path, &header);
        let hash = part(&settings.key).map(|key| key_hash(&key));
        let class = part(&settings.class).map_or(Class::HIGHEST, |class| class_in(&class));
        let told = part(&settings.cost).and_then(|cost| parsed(&cost));
        let (route, cost) = match told {
            Some(cost) => (None, self.costs.told(cost)),
            None => {
                let route = part(&settings.route);
                let route = route.and_then(|route| String::from_utf8(route.into_owned()).ok());
                let cost = route.as_deref().map(|route| self.costs.expected(route));
                (route, cost.unwrap_or(settings.default_cost))
            }
        };
        let random = &mut self.random;
        let verdict = self
            .dispatcher
            .admit(now, hash, cost, class, &mut || random.bits());
        let reserved = match verdict {
            Verdict::Full => return Admission::Full,
            Verdict::Unknown => None,
            Verdict::Placed(held) => Some(held),
        };
        let request = Request {
            cost,
            route,
            reserved,
            attempted: false,
        };
        Admission::Pass(self.keep(request))
    }

    /// Address of the host reserved for a request that has not been attempted yet. `None` if the request is not placed
    /// or the host's address is unknown: then the proxy chooses.
    pub fn host(&self, ticket: Ticket) -> Option<&str> {
        let address = self.dispatcher.address(self.reserved(ticket)?.place());
        (!address.is_empty()).then_some(address)
    }

    /// Comma-separated addresses of the reserved host and of hosts for retries, best first. Empty if the request is not
    /// placed or no address is known: then the proxy chooses.
    pub fn hosts(&self, ticket: Ticket) -> String {
        let Some(held) = self.reserved(ticket) else {
            return String::new();
        };
        let count = self.settings.alternatives;
        let others = self.dispatcher.alternatives(held, count);
        let places = std::iter::once(held.place()).chain(others.iter().copied());
        let addresses = places.map(|place| self.dispatcher.address(place));
        let known = addresses.filter(|address| !address.is_empty());
        // Repeated to the full length: past the end of the list the fallback policy chooses, even a drained node.
        let all: Vec<&str> = known.cycle().take(count + 1).collect();
        all.join(",")
    }

    /// Rank of a host for a retry or for a request that is not placed; lower is better. `None` if the host takes no
    /// work.
    pub fn fallback(&self, address: &str) -> Option<f64> {
        let place = self.dispatcher.place_of_address(address);
        let cost = self.settings.default_cost;
        self.dispatcher.fallback(place, self.now, cost)
    }

    /// True if the request has not ended and none of its attempts has started.
    pub fn is_unattempted(&mut self, ticket: Ticket) -> bool {
        self.request(ticket)
            .is_some_and(|request| !request.attempted)
    }

    fn reserved(&self, ticket: Ticket) -> Option<&Held> {
        let slot = self.slots.get(ticket.index as usize)?;
        let request = slot.request.as_ref();
        request
            .filter(|_| slot.generation == ticket.generation)?
            .reserved
            .as_ref()
    }

    fn keep(&mut self, request: Request) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.request = Some(request);
        slot.client_left = false;
        Ticket {
            index,
            generation: slot.generation,
        }
    }

    fn request(&mut self, ticket: Ticket) -> Option<&mut Request> {
        let slot = self.slots.get_mut(ticket.index as usize)?;
        slot.request
            .as_mut()
            .filter(|_| slot.generation == ticket.generation)
    }

    /// Records that a request's client left, so that attempts which end later do not count as failures of their hosts.
    /// To be called before [`Engine::end`].
    pub fn client_left(&mut self, ticket: Ticket) {
        if self.request(ticket).is_some() {
            self.slots[ticket.index as usize].client_left = true;
        }
    }

    /// Ends a request, whatever its outcome, and releases a reservation that no attempt took. Further calls do nothing.
    pub fn end(&mut self, ticket: Ticket) {
        if self.request(ticket).is_none() {
            return;
        }
        let ended = self.slots[ticket.index as usize].request.take();
        self.free(ticket.index);
        if let Some(held) = ended.and_then(|request| request.reserved) {
            self.dispatcher.release(held);
        }
    }

    /// Recycles a slot once its request and all of that request's attempts have ended.
    fn free(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        if slot.request.is_none() && slot.attempts == 0 {
            self.free.push(index);
        }
    }

    /// Starts an attempt of a request at the host with this address, at `now`, seconds. The first attempt takes the
    /// request's reservation. `None` if the request has ended.
    pub fn attempt(&mut self, ticket: Ticket, address: &str, now: f64) -> Option<Attempt> {
        let named = self.reserved(ticket).map(Held::place);
        let named = named.filter(|place| !self.dispatcher.address(*place).is_empty());
        let taken = named.filter(|place| self.dispatcher.address(*place) == address);
        let place = taken.or_else(|| self.dispatcher.place_of_address(address));
        if let Some(named) = named.filter(|named| Some(*named) != place) {
            self.dispatcher.passed_over(named, now);
        }
        let request = self.request(ticket)?;
        let (cost, route) = (request.cost, request.route.clone());
        let reserved = request.reserved.take();
        request.attempted = true;
        let held = self.dispatcher.attempt(reserved, place, cost);
        let cost = held.as_ref().map_or(cost, Held::cost);
        self.slots[ticket.index as usize].attempts += 1;
        Some(Attempt {
            ticket,
            held,
            place,
            cost,
            route,
            started: now,
            answered: false,
        })
    }

    /// Reads status, delay and the configured headers of a host's response; `header` looks up a response header by
    /// name.
    pub fn on_response<H: AsRef<[u8]>>(
        &mut self,
        attempt: &mut Attempt,
        now: f64,
        header: impl Fn(&str) -> Option<H>,
    ) {
        let number =
            |name: &Option<String>| -> Option<f64> { parsed(header(name.as_deref()?)?.as_ref()) };
        let status = header(":status").and_then(|status| parsed(status.as_ref()));
        let settings = &self.settings;
        let items = number(&settings.items_header);
        let (jobs, load) = (number(&settings.jobs_header), number(&settings.load_header));
        self.answered(attempt, now, status.unwrap_or(0), items);
        if jobs.is_some() || load.is_some() {
            self.told(attempt, now, jobs, load);
        }
    }

    /// Records the status and delay of a host's response; later calls for the same attempt do nothing. `items` is the
    /// request's true cost in items, 0 to `MAX_COST`; any other value is ignored.
    pub fn answered(&mut self, attempt: &mut Attempt, now: f64, status: u16, items: Option<f64>) {
        if attempt.answered {
            return;
        }
        attempt.answered = true;
        let items = items.filter(|items| (0.0..=plimsoll_core::dispatch::MAX_COST).contains(items));
        if let Some(place) = attempt.place {
            let cost = items.unwrap_or(attempt.cost);
            self.dispatcher
                .answered(place, now - attempt.started, status, cost);
        }
        if let Some(items) = items.filter(|_| status < 500) {
            self.costs.learn(attempt.route.as_deref(), items);
        }
    }

    /// Records the number of jobs and the load that a host's response reported. Values outside 0 to `MAX_COST` are
    /// ignored.
    pub fn told(&mut self, attempt: &Attempt, now: f64, jobs: Option<f64>, load: Option<f64>) {
        let good = |value: &f64| (0.0..=plimsoll_core::dispatch::MAX_COST).contains(value);
        if let Some(place) = attempt.place {
            self.dispatcher
                .accessed(place, now, jobs.filter(good), load.filter(good));
        }
    }

    /// Ends an attempt, whatever its outcome, and releases its cost. An attempt without a response counts as a failure
    /// of the host unless the client left, by `client_left` or [`Engine::client_left`]. Only then is the clock, `now`,
    /// read.
    pub fn attempt_ended(
        &mut self,
        attempt: Attempt,
        now: impl FnOnce() -> f64,
        client_left: bool,
    ) {
        let index = attempt.ticket.index;
        let slot = &mut self.slots[index as usize];
        slot.attempts -= 1;
        let client_left = client_left || slot.client_left;
        self.free(index);
        match attempt.place.filter(|_| !attempt.answered) {
            Some(place) if client_left => self.dispatcher.left(place, now() - attempt.started),
            Some(place) => self.dispatcher.unanswered(place, now()),
            None => {}
        }
        if let Some(held) = attempt.held {
            self.dispatcher.release(held);
        }
    }

    /// Cost in flight, items, and number of requests in flight, over all nodes.
    pub fn in_flight(&self) -> (f64, u64) {
        let usage = self.dispatcher.usage();
        usage.fold((0.0, 0), |(cost, requests), (_, _, c, r)| {
            (cost + c, requests + r)
        })
    }

    /// Counters since the engine was made.
    pub fn counts(&self) -> DispatchCounts {
        self.dispatcher.counts()
    }
}

/// A class that is no number is the lowest one.
fn class_in(bytes: &[u8]) -> Class {
    parsed(bytes).map_or(Class::LOWEST, Class::new)
}

fn costs_of(settings: &Settings) -> Costs {
    Costs::new(settings.default_cost, settings.routes, settings.max_cost)
}
