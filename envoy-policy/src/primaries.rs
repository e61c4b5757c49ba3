//! One worker's view of the primaries of object sets, and its requests that are at a primary or wait for one. The rules
//! are those of `plimsoll_core::placement`; there is no I/O here.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::placement::{
    Delta, Follower, Gap, NameError, NodeId, ObjectSet, RESTS, Route, State, Table, Ticket,
    check_name, rest_of,
};
use plimsoll_wire::{
    MAX_MESSAGE_SETS, PlacementAnswer, PlacementMessage, PlacementOperation, is_name,
};

pub use crate::outcome::{Outcome, PrimaryCounts, Reason};

use crate::config::PrimarySettings;

/// Most names of nodes that are kept; far more than a cluster has.
const MAX_NODES: usize = 65_536;
/// Loads in one report that are names within a rest.
const MAX_SHARING: usize = 64;
/// Most names within rests whose loads are kept apart between two reports; further names count in their rest alone.
const MAX_COUNTED: usize = 4096;
/// Limits on the wait before the next attempt to join, seconds.
const MIN_WAIT: f64 = 0.05;
const MAX_WAIT: f64 = 5.0;
/// Upper limit on an agent's durations, milliseconds; longer ones are cut to it.
const MAX_MS: u64 = 3_600_000;

#[derive(Debug)]
enum Stream {
    Placed(Ticket),
    Waits { name: String, cost: f64, until: f64 },
}

/// The terms that an agent set when the dispatcher joined.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    /// How long the table may be used after the last answered message was sent, seconds; only if `holds`.
    lease: f64,
    /// How long a node may still be working on a request that ended in doubt, seconds.
    request_limit: f64,
    /// True if the table is suspended once the lease is over; else it stays in force.
    holds: bool,
}

/// Places one cluster's requests at the primaries of their object sets, in one worker.
#[derive(Debug)]
pub struct Primaries {
    settings: PrimarySettings,
    /// Name of this dispatcher: the part of its ids before `#`.
    name: String,
    instance: String,
    joins: u64,
    id: Option<String>,
    follower: Follower,
    generation: String,
    terms: Terms,
    /// Send time of the last message that an agent answered with a table or with `ok`, seconds; the lease runs from it.
    heard: f64,
    numbers: HashMap<String, NodeId>,
    names: Vec<String>,
    streams: HashMap<u32, Stream>,
    /// Ended requests on which their nodes may still be working: for each set and node the latest ticket, and the time
    /// at which the doubt ends, seconds.
    doubts: BTreeMap<(ObjectSet, NodeId), (f64, Ticket)>,
    /// Cost placed since the last report, items.
    loads: BTreeMap<ObjectSet, f64>,
    /// Cost placed since the last report for names within a rest, items.
    sharing: HashMap<String, f64>,
    /// True if a report is to be sent at once.
    due: bool,
    counts: PrimaryCounts,
}

impl Primaries {
    /// The pair of `name` and `instance` must be unique over all runs of all proxies.
    pub fn new(settings: PrimarySettings, name: String, instance: String) -> Self {
        Primaries {
            settings,
            name,
            instance,
            joins: 0,
            id: None,
            follower: Follower::default(),
            generation: String::new(),
            terms: Terms::default(),
            heard: 0.0,
            numbers: HashMap::new(),
            names: Vec::new(),
            streams: HashMap::new(),
            doubts: BTreeMap::new(),
            loads: BTreeMap::new(),
            sharing: HashMap::new(),
            due: false,
            counts: PrimaryCounts::default(),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &PrimarySettings {
        &self.settings
    }

    /// Replaces the settings; requests in flight and waiting ones stay.
    pub fn set(&mut self, settings: PrimarySettings) {
        self.settings = settings;
    }

    /// Numbers of requests since the start.
    pub fn counts(&self) -> PrimaryCounts {
        self.counts
    }

    /// Decides on a new request. `stream` identifies it until [`Primaries::ended`]; `name` is its object set, `cost` is
    /// in items, `now` in seconds.
    pub fn begin(&mut self, stream: u32, name: Option<&[u8]>, cost: f64, now: f64) -> Outcome {
        self.ended(stream, now, true);
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|name| check_name(name).is_ok()) else {
            return self.refuse(Reason::Name);
        };
        match self.route(name, cost, now) {
            Ok(Some(ticket)) => self.place(stream, ticket),
            Ok(None) if self.settings.wait > 0.0 => {
                self.counts.waited += 1;
                let waits = Stream::Waits {
                    name: name.to_owned(),
                    cost,
                    until: now + self.settings.wait,
                };
                self.streams.insert(stream, waits);
                Outcome::Wait
            }
            Ok(None) => self.refuse(self.why()),
            Err(_) => self.refuse(Reason::Name),
        }
    }

    fn why(&self) -> Reason {
        match self.follower.version() {
            Some(_) => Reason::Moving,
            None => Reason::Suspended,
        }
    }

    fn refuse(&mut self, reason: Reason) -> Outcome {
        self.counts.refused += 1;
        Outcome::Refuse(reason)
    }

    fn place(&mut self, stream: u32, ticket: Ticket) -> Outcome {
        self.counts.placed += 1;
        let node = self.names.get(ticket.node() as usize);
        let node = node.cloned().unwrap_or_default();
        let version = self.follower.version().unwrap_or(0);
        let fence = format!("{} {version:016}", self.generation);
        self.streams.insert(stream, Stream::Placed(ticket));
        Outcome::Go { node, fence }
    }

    fn route(&mut self, name: &str, cost: f64, now: f64) -> Result<Option<Ticket>, NameError> {
        if self.terms.holds && now - self.heard > self.terms.lease {
            self.follower.suspend();
        }
        let Route::Go(ticket) = self.follower.route(name)? else {
            return Ok(None);
        };
        match ticket.set() {
            ObjectSet::Rest(_)
                if self.sharing.len() < MAX_COUNTED || self.sharing.contains_key(name) =>
            {
                *self.sharing.entry(name.to_owned()).or_default() += cost;
            }
            set => *self.loads.entry(set.clone()).or_default() += cost,
        }
        Ok(Some(ticket))
    }

    /// Decides on the waiting requests, in the order of their deadlines, and returns the outcomes of those that wait no
    /// more.
    pub fn again(&mut self, now: f64) -> Vec<(u32, Outcome)> {
        let waits = self.streams.iter().filter_map(|(id, stream)| match stream {
            Stream::Waits { until, .. } => Some((*until, *id)),
            Stream::Placed(_) => None,
        });
        let mut waits: Vec<(f64, u32)> = waits.collect();
        waits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut outcomes = Vec::new();
        for (until, id) in waits {
            let Some(Stream::Waits { name, cost, .. }) = self.streams.remove(&id) else {
                continue;
            };
            let outcome = match self.route(&name, cost, now) {
                Ok(Some(ticket)) => self.place(id, ticket),
                Ok(None) if now < until => {
                    let waits = Stream::Waits { name, cost, until };
                    self.streams.insert(id, waits);
                    continue;
                }
                Ok(None) => self.refuse(self.why()),
                Err(_) => self.refuse(Reason::Name),
            };
            outcomes.push((id, outcome));
        }
        outcomes
    }

    /// Ends a request; further calls do nothing. `is_through` is true if its node has answered or was never reached;
    /// else the node may still be working on it, and the request stays in doubt for the request limit that the agent
    /// set.
    pub fn ended(&mut self, stream: u32, now: f64, is_through: bool) {
        let Some(Stream::Placed(ticket)) = self.streams.remove(&stream) else {
            return;
        };
        if is_through {
            return self.over(ticket);
        }
        self.counts.doubted += 1;
        let until = now + self.terms.request_limit;
        let key = (ticket.set().clone(), ticket.node());
        // The follower counts it as in flight until the doubt ends.
        if let Some((_, before)) = self.doubts.insert(key, (until, ticket)) {
            self.over(before);
        }
    }

    fn over(&mut self, ticket: Ticket) {
        self.due |= self.follower.is_leaving(ticket.set());
        self.follower.answered(ticket);
    }

    fn end_doubts(&mut self, now: f64) {
        let over = self.doubts.iter().filter(|(_, (until, _))| *until <= now);
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        for key in over {
            if let Some((_, ticket)) = self.doubts.remove(&key) {
                self.over(ticket);
            }
        }
    }

    /// True if a report is to be sent before the period is over.
    pub fn is_due(&mut self, now: f64) -> bool {
        self.end_doubts(now);
        self.due
    }

    /// The next message to an agent, JSON: a report, or a request to join if no table is in force.
    pub fn message(&mut self, now: f64) -> Vec<u8> {
        self.end_doubts(now);
        self.due = false;
        let report = self.id.clone().zip(self.follower.report());
        let mut message = match report {
            Some((id, (version, busy))) => PlacementMessage {
                id,
                generation: self.generation.clone(),
                version,
                busy: busy.iter().map(ObjectSet::to_string).collect(),
                loads: take_loads(&mut self.loads, &mut self.sharing),
                ..PlacementMessage::new(PlacementOperation::Report)
            },
            None => {
                self.joins += 1;
                // Each join has a new id, since the answer to an earlier one may be lost.
                let id = format!("{}#{}.{}", self.name, self.instance, self.joins);
                PlacementMessage {
                    id: self.id.insert(id).clone(),
                    ..PlacementMessage::new(PlacementOperation::Join)
                }
            }
        };
        message.cluster = Some(self.settings.cluster.clone());
        serde_json::to_vec(&message).unwrap_or_default()
    }

    /// Takes an agent's answer to the message that was sent at `sent`, seconds. Returns the time at which the next
    /// message is due, seconds.
    ///
    /// # Errors
    ///
    /// Describes what is wrong with the answer.
    pub fn on_answer(&mut self, body: &[u8], sent: f64, now: f64) -> Result<f64, String> {
        let bad = |problem| format!("an agent's answer about primaries: {problem}");
        let answer = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
        let next = now + self.settings.period;
        match answer {
            PlacementAnswer::Open {
                generation,
                version,
                lease_ms,
                request_limit_ms,
                when_lost,
                entries,
            } if self.follower.version().is_none() => {
                check_name(&generation).map_err(|_| bad(format!("generation {generation:?}")))?;
                let terms = Terms {
                    lease: seconds(lease_ms),
                    request_limit: seconds(request_limit_ms),
                    holds: when_lost == "hold",
                };
                let table = self.table(version, &entries).map_err(bad)?;
                self.follower.joined(table);
                (self.generation, self.terms, self.heard) = (generation, terms, sent);
                self.loads.clear();
                self.sharing.clear();
                // Sets that are leaving have to be reported.
                Ok(now)
            }
            PlacementAnswer::Wait { wait_ms } if self.follower.version().is_none() => {
                Ok(now + seconds(wait_ms).clamp(MIN_WAIT, MAX_WAIT))
            }
            PlacementAnswer::Ok { deltas, .. } => {
                self.heard = sent;
                for text in &deltas {
                    let delta = self.delta(text).map_err(bad)?;
                    match self.follower.on_delta(&delta) {
                        Ok(()) => self.due |= leaves(&delta),
                        Err(Gap::Late) => {}
                        Err(gap) => return Err(bad(format!("a change that is {gap:?}"))),
                    }
                }
                Ok(next)
            }
            PlacementAnswer::Table {
                generation,
                version,
                entries,
            } if generation == self.generation => {
                self.heard = sent;
                let table = self.table(version, &entries).map_err(bad)?;
                self.follower.on_table(table);
                Ok(now)
            }
            PlacementAnswer::Unknown | PlacementAnswer::Table { .. } => {
                self.forget();
                Ok(now)
            }
            PlacementAnswer::Open { .. } | PlacementAnswer::Wait { .. } => {
                Err(bad("an answer to join, which was not asked for".to_owned()))
            }
        }
    }

    fn forget(&mut self) {
        self.follower.suspend();
        self.id = None;
    }

    fn node(&mut self, name: &str) -> Result<NodeId, String> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if !is_name(name) || self.names.len() >= MAX_NODES {
            return Err(format!("{name:?} is no node"));
        }
        let number = self.names.len() as NodeId;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    fn state(&mut self, word: &str) -> Result<State, String> {
        match word.strip_prefix('>') {
            Some(node) => Ok(State::Leaving(self.node(node)?)),
            None => Ok(State::Settled(self.node(word)?)),
        }
    }

    fn table(&mut self, version: u64, told: &[(String, String)]) -> Result<Table, String> {
        let mut entries = Vec::new();
        for (set, state) in told {
            let set: ObjectSet = set.parse().map_err(|_| format!("{set:?} is no set"))?;
            entries.push((set, self.state(state)?));
        }
        if entries.len() > 2 * plimsoll_core::placement::MAX_NAMED + usize::from(RESTS) {
            return Err("too many entries".to_owned());
        }
        Table::from_entries(version, entries).map_err(|_| "not a whole table".to_owned())
    }

    fn delta(&mut self, text: &str) -> Result<Delta, String> {
        let mut words = text.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok();
        let (Some(from), Some(to)) = (number(), number()) else {
            return Err("a change without versions".to_owned());
        };
        let mut entries = Vec::new();
        while let Some(set) = words.next() {
            let set: ObjectSet = set.parse().map_err(|_| format!("{set:?} is no set"))?;
            let state = match words.next() {
                Some("-") => None,
                Some(word) => Some(self.state(word)?),
                None => return Err("a change that breaks off".to_owned()),
            };
            entries.push((set, state));
        }
        Ok(Delta { from, to, entries })
    }
}

fn leaves(delta: &Delta) -> bool {
    let mut states = delta.entries.iter().map(|(_, state)| state);
    states.any(|state| matches!(state, Some(State::Leaving(_))))
}

fn seconds(ms: u64) -> f64 {
    ms.min(MAX_MS) as f64 / 1000.0
}

/// Takes the costs placed since the last report, items: the highest [`MAX_SHARING`] names within rests separately, with
/// all others added to their rests, and then the highest sets, up to [`MAX_MESSAGE_SETS`] loads in all.
fn take_loads(
    loads: &mut BTreeMap<ObjectSet, f64>,
    sharing: &mut HashMap<String, f64>,
) -> BTreeMap<String, f64> {
    let mut by_set = std::mem::take(loads);
    let mut names: Vec<(String, f64)> = sharing.drain().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut told = BTreeMap::new();
    for (at, (name, cost)) in names.into_iter().enumerate() {
        let rest = rest_of(&name);
        if at < MAX_SHARING {
            told.insert(format!("*{rest}:{name}"), cost);
        } else {
            *by_set.entry(ObjectSet::Rest(rest)).or_default() += cost;
        }
    }
    let mut sets: Vec<(ObjectSet, f64)> = by_set.into_iter().collect();
    sets.sort_by(|a, b| b.1.total_cmp(&a.1));
    let room = MAX_MESSAGE_SETS - told.len();
    told.extend(
        sets.into_iter()
            .take(room)
            .map(|(set, cost)| (set.to_string(), cost)),
    );
    told
}
