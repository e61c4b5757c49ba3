//! Clients, proxies and nodes in one clock.

mod changes;
mod endings;

use plimsoll_core::{DelayHistogram, dispatch::Held, ring::key_hash};
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    clients::Crowd,
    events::{Event, Events, Time},
    measure::{Outcome, Recorder},
    node::{Health, Node, Offer},
    policy::{self, Ask, Placed, Policy},
    scenario::{DelayFrom, Scenario, ScenarioError},
};

/// Interval of health checks in seconds; the second failure counts (haproxy/examples).
const HEALTH_CHECK: f64 = 0.5;
/// Linux before 3.1: the SYN is resent after 3 s, then after twice as long each time, five times.
const SYN_RETRY: f64 = 3.0;
const SYN_RETRIES: u8 = 5;
/// Minimum time before a client sends again, in seconds: otherwise a client that is refused at once and does not think
/// would stop the clock.
const MIN_PAUSE: f64 = 0.001;
/// Time that an error takes at a node.
const ERROR_SECONDS: f64 = 0.001;
/// Interval at which a proxy reconsiders a held request, in seconds.
const HELD_SECONDS: f64 = 0.01;
/// Time after which a dispatcher that gives up much of a share reports, in seconds.
const EARLY_SECONDS: f64 = 0.1;
/// Maximum relative jitter of periods, so that agents do not act in step.
const JITTER: f64 = 0.05;
/// Times per period that an agent checks whether to end it early.
const LOOKS: f64 = 4.0;

/// Request in flight.
#[derive(Debug, Default)]
struct Request {
    client: u32,
    /// Number of this use of the slot.
    turn: u32,
    key: u32,
    items: f64,
    /// Whether it is a transaction that runs at a node.
    writes: bool,
    /// Time since which its proxy holds it back.
    held_since: Option<Time>,
    sent: Time,
    accepted: Time,
    /// Retries of the client after failures.
    tries: u32,
    /// SYN retries of the kernel.
    syns: u8,
    redispatched: bool,
    /// Requests in the node when it arrived.
    found: usize,
    node: Option<u32>,
    held: Option<Held>,
    /// Whether its client has left while the node continues to work.
    orphaned: bool,
}

/// One run.
pub struct World<'a> {
    scenario: &'a Scenario,
    events: Events,
    now: Time,
    nodes: Vec<Node>,
    /// End of each agent's period.
    due: Vec<Time>,
    up: Vec<bool>,
    crowd: Crowd,
    hashes: Vec<u32>,
    /// The nodes at which transactions of each key run, one entry each.
    writers: Vec<Vec<u32>>,
    policy: Box<dyn Policy>,
    requests: Vec<Request>,
    free: Vec<u32>,
    chances: Xoshiro256PlusPlus,
    recorder: Recorder,
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario, name: &str, seed: u64) -> Result<Self, ScenarioError> {
        let bounds = DelayHistogram::fine_bounds();
        let mut nodes: Vec<Node> = scenario
            .each_node()
            .zip(0u64..)
            .filter_map(|(settings, place)| {
                let of_node = seed.wrapping_mul(0xd134_2543_de82_ef95) ^ place;
                Node::new(settings.clone(), bounds.clone(), of_node)
            })
            .collect();
        let policy = policy::named(name, scenario).ok_or_else(|| scenario.has_no_policy(name))?;
        if policy.sheds_in_nodes() {
            nodes.iter_mut().for_each(Node::shed_by_age);
        }
        if let Some(updates) = &scenario.updates {
            let cores = updates.load().per_second * updates.update_seconds;
            for node in &mut nodes {
                node.update(Time::default(), cores);
            }
        }
        let capacity = nodes.iter().map(Node::capacity).sum();
        let hashes =
            (0..scenario.clients.keys).map(|key| key_hash(format!("S{key:04}").as_bytes()));
        let mut world = World {
            events: Events::default(),
            now: Time::default(),
            due: vec![Time::default(); nodes.len()],
            up: vec![true; nodes.len()],
            crowd: Crowd::new(&scenario.clients, capacity, seed),
            hashes: hashes.collect(),
            writers: match scenario.writes {
                Some(_) => vec![Vec::new(); scenario.clients.keys as usize],
                None => Vec::new(),
            },
            policy,
            requests: Vec::new(),
            free: Vec::new(),
            chances: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5851_f42d_4c95_7f2d),
            recorder: Recorder::new(
                name,
                scenario.sla_seconds,
                scenario.measured_from,
                scenario.seconds,
                nodes.len(),
            ),
            nodes,
            scenario,
        };
        world.begin();
        Ok(world)
    }

    fn begin(&mut self) {
        for client in 0..self.crowd.count() {
            let at = Time::seconds(self.crowd.first(client));
            self.events.put(at, Event::Send(client));
        }
        let period = self.scenario.period;
        for node in 0..self.nodes.len() as u32 {
            let at = Time::seconds(period * self.chances.random::<f64>());
            self.events.put(at, Event::Period(node));
            self.events.put(at, Event::Look(node));
        }
        for proxy in 0..self.scenario.proxies {
            let at = Time::seconds(0.1 * period * self.chances.random::<f64>());
            self.events.put(at, Event::Exchange(proxy));
        }
        for (i, change) in self.scenario.changes.iter().enumerate() {
            self.events
                .put(Time::seconds(change.at), Event::Change(i as u32));
        }
    }

    /// Runs to the end of the scenario.
    pub fn run(mut self) -> Outcome {
        let end = Time::seconds(self.scenario.seconds);
        let mut second = 0;
        while let Some((at, event)) = self.events.next() {
            while at.get() >= f64::from(second) {
                let capacity = self.nodes.iter().map(Node::capacity).sum();
                self.recorder
                    .nodes(f64::from(second), capacity, self.policy.bounds());
                if let Some(updates) = &self.scenario.updates {
                    let nodes = 0..self.nodes.len();
                    let fixed = updates.load();
                    let loads = nodes.map(|node| self.policy.updates(node).unwrap_or(fixed));
                    self.recorder.updates(f64::from(second), loads);
                }
                second += 1;
            }
            if at >= end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        let hits = self.nodes.iter().map(|node| node.cache_hits).sum();
        let misses: u64 = self.nodes.iter().map(|node| node.cache_misses).sum();
        let moved = self.policy.slots_moved();
        self.recorder.done((hits, hits + misses), moved)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Send(client) => self.send(client),
            Event::Arrive(request) => self.arrive(request),
            Event::Finish { node, version } => {
                if self.nodes[node as usize].version == version {
                    self.finish(node);
                }
            }
            Event::GiveUp { request, turn } => {
                if self.requests[request as usize].turn == turn {
                    self.give_up(request);
                }
            }
            Event::Fail { request, turn } => {
                let known = &self.requests[request as usize];
                match (known.turn == turn, known.orphaned) {
                    (true, false) => self.fail(request, false),
                    (true, true) => self.release_slot(request),
                    (false, _) => {}
                }
            }
            Event::Period(node) => {
                if self.now >= self.due[node as usize] {
                    self.period(node);
                }
            }
            Event::Look(node) => self.look(node),
            Event::Exchange(proxy) => {
                let early = self
                    .policy
                    .exchange(self.now.get(), proxy as usize, &self.up);
                let wait = if early {
                    EARLY_SECONDS
                } else {
                    self.jittered()
                };
                self.events
                    .put(self.now.after(wait), Event::Exchange(proxy));
            }
            Event::Change(change) => self.change(change),
            Event::Health { node, up } => {
                if (self.nodes[node as usize].health != Health::Down) == up {
                    self.up[node as usize] = up;
                    // Every proxy reacts at once.
                    for proxy in 0..self.scenario.proxies as usize {
                        self.policy.exchange(self.now.get(), proxy, &self.up);
                    }
                }
            }
        }
    }

    fn jittered(&mut self) -> f64 {
        self.scenario.period * (1.0 + JITTER * (2.0 * self.chances.random::<f64>() - 1.0))
    }

    fn send(&mut self, client: u32) {
        let now = self.now.get();
        if self.scenario.clients.count == 0 {
            let next = self.now.after(self.crowd.pause(client, now));
            self.events.put(next, Event::Send(client));
            if !self.crowd.sends(now) {
                return;
            }
        }
        let wish = self.crowd.wish(client);
        let writes = !wish.query && self.scenario.writes.is_some();
        if !wish.query && !writes {
            let answered = self.now.after(self.scenario.clients.transaction_seconds);
            let pause = self.crowd.pause(client, answered.get());
            self.events.put(answered.after(pause), Event::Send(client));
            return;
        }
        let slot = self.free_slot();
        let request = &mut self.requests[slot as usize];
        *request = Request {
            client,
            turn: request.turn.wrapping_add(1),
            key: wish.key,
            items: wish.items,
            writes,
            sent: self.now,
            ..Request::default()
        };
        self.recorder.sent(now, wish.items);
        self.wait_for(slot);
        self.arrive(slot);
    }

    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::default());
            self.requests.len() as u32 - 1
        })
    }

    /// Starts the client's timeout.
    fn wait_for(&mut self, slot: u32) {
        if let Some(patience) = self.scenario.clients.patience {
            let turn = self.requests[slot as usize].turn;
            let event = Event::GiveUp {
                request: slot,
                turn,
            };
            self.events.put(self.now.after(patience), event);
        }
    }

    fn proxy(&self, slot: u32) -> usize {
        let request = &self.requests[slot as usize];
        let proxies = self.scenario.proxies;
        if self.scenario.clients.count > 0 {
            return (request.client % proxies) as usize;
        }
        // All requests of an open stream belong to one client: each goes to any proxy, whatever its key.
        let each = u64::from(request.turn) << 32 | u64::from(slot);
        let mixed = each.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((mixed * u64::from(proxies)) >> 32) as usize
    }

    fn arrive(&mut self, slot: u32) {
        let now = self.now;
        let request = &self.requests[slot as usize];
        if request.orphaned {
            return self.release_slot(slot);
        }
        // The kernel retries at the same node.
        if let Some(node) = request.node {
            return self.connect(slot, node);
        }
        let ask = Ask {
            now: now.get(),
            proxy: self.proxy(slot),
            key: request.key,
            hash: self.hashes[request.key as usize],
            items: request.items,
            held: request.held_since.map(|since| now.get() - since.get()),
            up: &self.up,
            nodes: &self.nodes,
        };
        let chances = &mut self.chances;
        match self.policy.place(&ask, &mut || chances.next_u32()) {
            Placed::Node { node, held } => {
                let request = &mut self.requests[slot as usize];
                request.node = Some(node as u32);
                request.held = held;
                self.connect(slot, node as u32);
            }
            Placed::Refused => self.refuse(slot),
            Placed::Later => {
                self.requests[slot as usize].held_since.get_or_insert(now);
                let later = self.now.after(HELD_SECONDS);
                self.events.put(later, Event::Arrive(slot));
            }
        }
    }

    fn connect(&mut self, slot: u32, node: u32) {
        let chance = self.chances.random::<f64>();
        let request = &mut self.requests[slot as usize];
        let (key, items) = (request.key, request.items);
        request.found = self.nodes[node as usize].jobs();
        match self.nodes[node as usize].offer(self.now, slot, key, items, chance) {
            Offer::Taken => {
                request.accepted = self.now;
                if request.writes {
                    let running = &mut self.writers[key as usize];
                    if running.iter().any(|other| *other != node) {
                        self.recorder.two_primaries();
                    }
                    running.push(node);
                }
                self.plan(node);
            }
            Offer::Swallowed => request.accepted = self.now,
            Offer::NoRoom => {
                request.syns += 1;
                let wait = SYN_RETRY * f64::from(1u32 << (request.syns - 1));
                let event = if request.syns > SYN_RETRIES {
                    Event::Fail {
                        request: slot,
                        turn: request.turn,
                    }
                } else {
                    Event::Arrive(slot)
                };
                self.events.put(self.now.after(wait), event);
            }
            Offer::Error => {
                let event = Event::Fail {
                    request: slot,
                    turn: request.turn,
                };
                self.events.put(self.now.after(ERROR_SECONDS), event);
            }
            Offer::Refused => self.fail(slot, true),
        }
    }

    fn plan(&mut self, node: u32) {
        if let Some((at, version)) = self.nodes[node as usize].plan(self.now) {
            self.events.put(at, Event::Finish { node, version });
        }
    }

    fn finish(&mut self, node: u32) {
        let finished = self.nodes[node as usize].finish(self.now);
        for dropped in self.nodes[node as usize].take_dropped() {
            self.wrote(dropped, node, false);
            if self.requests[dropped as usize].orphaned {
                self.release_slot(dropped);
            } else {
                self.tell(dropped, Some(503));
                self.refuse(dropped);
            }
        }
        self.plan(node);
        let Some(slot) = finished else { return };
        self.wrote(slot, node, true);
        let now = self.now.get();
        let request = &self.requests[slot as usize];
        if request.orphaned {
            return self.release_slot(slot);
        }
        let from = match self.scenario.clients.delay_from {
            DelayFrom::Sent => request.sent,
            DelayFrom::Accepted => request.accepted,
        };
        let (sent, items) = (request.sent.get(), request.items);
        self.recorder
            .answered(now, sent, now - from.get(), items, node as usize);
        self.tell(slot, Some(200));
        self.next_request(slot);
    }

    fn period(&mut self, node: u32) {
        let place = node as usize;
        let seen = self.nodes[place].observe(self.now);
        // A node that is down has no reporting agent either.
        if self.nodes[place].health != Health::Down
            && let Some(seen) = seen
        {
            self.policy.observed(self.now.get(), place, &seen);
        }
        if let Some(updates) = &self.scenario.updates
            && let Some(load) = self.policy.updates(place)
        {
            let cores = load.per_second * updates.update_seconds;
            self.nodes[place].update(self.now, cores);
            self.plan(node);
        }
        let wait = self.jittered();
        self.due[place] = self.now.after(wait);
        self.events.put(self.due[place], Event::Period(node));
    }

    /// Ends a node's period early if its agent requests it.
    fn look(&mut self, node: u32) {
        let between = self.scenario.period / LOOKS;
        if self.policy.hurries(node as usize)
            && self.now.after(between / 2.0) < self.due[node as usize]
        {
            self.period(node);
        }
        self.events.put(self.now.after(between), Event::Look(node));
    }
}
