//! What a worker knows of one cluster: its dispatcher, and the requests that it has under way.

use plimsoll_core::{
    dispatch::{Costs, DispatchCounts, Dispatcher, Held, Verdict},
    ring::key_hash,
};

use crate::config::Settings;

/// Names one request, to the filter in the other position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// As it travels with the stream; `engine` tells a worker's clusters apart.
    pub fn to_bytes(self, engine: u32) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&engine.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The engine, and the ticket.
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
    /// Until its first attempt starts.
    reserved: Option<Held>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    request: Option<Request>,
}

/// What is to be done with a request.
#[derive(Debug, PartialEq)]
pub enum Admission {
    /// Go on; `hosts` are to be named, best first, or none, where the proxy decides by itself.
    Pass {
        /// Names the request.
        ticket: Ticket,
        /// Addresses, comma separated; empty for none.
        hosts: String,
    },
    /// Answer 503.
    Full,
}

/// One attempt of a request at a host.
#[derive(Debug)]
pub struct Attempt {
    held: Option<Held>,
    place: Option<usize>,
    cost: f64,
    route: Option<String>,
    started: f64,
    answered: bool,
}

impl Attempt {
    /// Whether the host's answer has begun.
    pub fn is_answered(&self) -> bool {
        self.answered
    }
}

/// One cluster's state in one worker.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    dispatcher: Dispatcher,
    costs: Costs,
    slots: Vec<Slot>,
    free: Vec<u32>,
    random: u64,
    /// As of the last look: exact enough for the age of news.
    now: f64,
}

impl Engine {
    /// `seed` tells this worker's random numbers from another's.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Engine {
            dispatcher: Dispatcher::new(settings.dispatch),
            costs: costs_of(&settings),
            settings,
            slots: Vec::new(),
            free: Vec::new(),
            random: seed | 1,
            now: 0.0,
        }
    }

    /// Several times a second.
    pub fn on_time(&mut self, now: f64) {
        self.now = now;
        self.dispatcher.on_time(now);
    }

    /// Takes other settings over; what is under way stays counted.
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

    /// The dispatcher.
    pub fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }

    /// A request comes. `path` is its `:path`; `header` gives its headers.
    pub fn admit(&mut self, path: &[u8], header: impl Fn(&str) -> Option<Vec<u8>>) -> Admission {
        let settings = &self.settings;
        let part = |part: &Option<crate::part::Part>| part.as_ref()?.of(path, &header);
        let hash = part(&settings.key).map(|key| key_hash(&key));
        let text = |bytes: std::borrow::Cow<[u8]>| String::from_utf8(bytes.into_owned()).ok();
        let told = part(&settings.cost)
            .and_then(text)
            .and_then(|cost| cost.parse().ok());
        let (route, cost) = match told {
            Some(cost) => (None, self.costs.told(cost)),
            None => {
                let route = part(&settings.route).and_then(text);
                let cost = route.as_deref().map(|route| self.costs.expected(route));
                (route, cost.unwrap_or(settings.default_cost))
            }
        };
        let random = &mut self.random;
        let verdict = self
            .dispatcher
            .admit(self.now, hash, cost, &mut || next_random(random));
        let (reserved, hosts) = match verdict {
            Verdict::Full => return Admission::Full,
            Verdict::Unknown => (None, String::new()),
            Verdict::Placed(held) => {
                let hosts = self.hosts(&held);
                (Some(held), hosts)
            }
        };
        let request = Request {
            cost,
            route,
            reserved,
        };
        let ticket = self.keep(request);
        Admission::Pass { ticket, hosts }
    }

    fn hosts(&self, held: &Held) -> String {
        let count = self.settings.alternatives;
        let others = self.dispatcher.alternatives(held, count);
        let places = std::iter::once(held.place()).chain(others.iter().copied());
        let addresses = places.map(|place| self.dispatcher.address(place));
        let known = addresses.filter(|address| !address.is_empty());
        // Over and over: past the end of the list the fallback policy would choose, also a drained node.
        let all: Vec<&str> = known.cycle().take(count + 1).collect();
        all.join(",")
    }

    fn keep(&mut self, request: Request) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.request = Some(request);
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

    /// A request ended, however it did; what it still holds is given back. Once is enough.
    pub fn end(&mut self, ticket: Ticket) {
        if self.request(ticket).is_none() {
            return;
        }
        let ended = self.slots[ticket.index as usize].request.take();
        self.free.push(ticket.index);
        if let Some(held) = ended.and_then(|request| request.reserved) {
            self.dispatcher.release(held);
        }
    }

    /// An attempt of a request starts at a host.
    pub fn attempt(&mut self, ticket: Ticket, address: &str, now: f64) -> Option<Attempt> {
        let place = self.dispatcher.place_of_address(address);
        let request = self.request(ticket)?;
        let (cost, route) = (request.cost, request.route.clone());
        let reserved = request.reserved.take();
        let held = self.dispatcher.attempt(reserved, place, cost);
        let cost = held.as_ref().map_or(cost, Held::cost);
        Some(Attempt {
            held,
            place,
            cost,
            route,
            started: now,
            answered: false,
        })
    }

    /// The host's answer begins.
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

    /// The answer told of the host's load; what is no number is not told.
    pub fn told(&mut self, attempt: &Attempt, now: f64, jobs: Option<f64>, load: Option<f64>) {
        let good = |value: &f64| (0.0..=plimsoll_core::dispatch::MAX_COST).contains(value);
        if let Some(place) = attempt.place {
            self.dispatcher
                .accessed(place, now, jobs.filter(good), load.filter(good));
        }
    }

    /// An attempt ended, however it did. `client_left`: where there was no answer, whether nobody waited for
    /// it any longer; else the host is to blame.
    pub fn attempt_ended(&mut self, attempt: Attempt, now: f64, client_left: bool) {
        match attempt.place.filter(|_| !attempt.answered) {
            Some(place) if client_left => self.dispatcher.left(place, now - attempt.started),
            Some(place) => self.dispatcher.unanswered(place, now),
            None => {}
        }
        if let Some(held) = attempt.held {
            self.dispatcher.release(held);
        }
    }

    /// Cost and requests in flight, of all nodes.
    pub fn in_flight(&self) -> (f64, u64) {
        let usage = self.dispatcher.usage();
        usage.fold((0.0, 0), |(cost, requests), (_, _, c, r)| {
            (cost + c, requests + r)
        })
    }

    /// Counters since the start.
    pub fn counts(&self) -> DispatchCounts {
        self.dispatcher.counts()
    }
}

fn costs_of(settings: &Settings) -> Costs {
    Costs::new(settings.default_cost, settings.routes, settings.max_cost)
}

/// xorshift64* (Vigna, 2016); its upper half.
fn next_random(state: &mut u64) -> u32 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
}
