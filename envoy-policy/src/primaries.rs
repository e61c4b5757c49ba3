//! What a worker knows of the primaries of object sets, and the requests that are at them or wait for one. Decided by
//! `plimsoll_core::placement`; there is no I/O in it.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::placement::{
    Delta, Follower, Gap, NameError, NodeId, ObjectSet, RESTS, Route, State, Table, Ticket,
    check_name, rest_of,
};
use plimsoll_wire::is_name;
use serde::{Deserialize, Serialize};

use crate::config::PrimarySettings;

/// Names of nodes that are known, at most; there are never so many.
const MAX_NODES: usize = 65_536;
/// Sets in one report, and of them names that share a rest.
const MAX_LOADS: usize = 1024;
const MAX_SHARING: usize = 64;
/// Names that share a rest and are counted by themselves; later ones of a period count in the rest alone.
const MAX_COUNTED: usize = 4096;
/// For how long is waited where no table is in force, seconds.
const MIN_WAIT: f64 = 0.05;
const MAX_WAIT: f64 = 5.0;
const MAX_MS: u64 = 3_600_000;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its set is being handed over, for longer than it may wait.
    Moving,
    /// This worker has no table that it may act on.
    Suspended,
    /// There is no name, or it cannot be one.
    Name,
}

impl Reason {
    /// As `plimsoll-reason` has it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Moving => "moving",
            Reason::Suspended => "suspended",
            Reason::Name => "name",
        }
    }
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To this node, and to no other one, with the token by which it can tell that it is asked too late.
    Go {
        /// Its name.
        node: String,
        /// In the order of tables as text: generations are, and 16 digits hold every version.
        fence: String,
    },
    /// Hold it; `again` says what becomes of it.
    Wait,
    /// Answer in the node's place.
    Refuse(Reason),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrimaryCounts {
    /// Sent to a primary.
    pub placed: u64,
    /// Held for a while.
    pub waited: u64,
    /// Refused.
    pub refused: u64,
    /// Ended without an answer.
    pub doubted: u64,
}

#[derive(Debug)]
enum Stream {
    Placed(Ticket),
    Waits { name: String, cost: f64, until: f64 },
}

/// What was told when the dispatcher joined.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    lease: f64,
    request_limit: f64,
    holds: bool,
}

/// One cluster's, in one worker.
#[derive(Debug)]
pub struct Primaries {
    settings: PrimarySettings,
    /// Of this dispatcher; the part before `#` of its ids.
    name: String,
    instance: String,
    joins: u64,
    id: Option<String>,
    follower: Follower,
    generation: String,
    terms: Terms,
    /// When that was sent which was answered last.
    heard: f64,
    numbers: HashMap<String, NodeId>,
    names: Vec<String>,
    streams: HashMap<u32, Stream>,
    /// Requests whose nodes may still be at work on them: one ticket a set and node, and when that is over.
    doubts: BTreeMap<(ObjectSet, NodeId), (f64, Ticket)>,
    loads: BTreeMap<ObjectSet, f64>,
    sharing: HashMap<String, f64>,
    /// Something is to be told at once.
    due: bool,
    counts: PrimaryCounts,
}

#[derive(Serialize)]
struct Message<'a> {
    cluster: &'a str,
    op: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    generation: &'a str,
    version: u64,
    busy: Vec<String>,
    loads: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    generation: String,
    #[serde(default)]
    version: u64,
    #[serde(default)]
    lease_ms: u64,
    #[serde(default)]
    request_limit_ms: u64,
    #[serde(default)]
    when_lost: String,
    #[serde(default)]
    wait_ms: u64,
    #[serde(default)]
    entries: Vec<(String, String)>,
    #[serde(default)]
    deltas: Vec<String>,
}

impl Primaries {
    /// `name` and `instance` are nobody else's, of all runs of all proxies.
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

    /// Takes other settings over; what is under way stays.
    pub fn set(&mut self, settings: PrimarySettings) {
        self.settings = settings;
    }

    /// Counters since the start.
    pub fn counts(&self) -> PrimaryCounts {
        self.counts
    }

    /// A request begins.
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

    /// What becomes of those that wait, in the order in which they came.
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

    /// A request ended; once is enough. `is_through`: its node has answered, or was never reached.
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
        // Under way for the follower, until the doubt is over.
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

    /// Whether there is something to tell before the period is over.
    pub fn is_due(&mut self, now: f64) -> bool {
        self.end_doubts(now);
        self.due
    }

    /// What the agent is told now.
    pub fn message(&mut self, now: f64) -> Vec<u8> {
        self.end_doubts(now);
        self.due = false;
        let report = self.id.clone().zip(self.follower.report());
        let message = match &report {
            Some((id, (version, busy))) => Message {
                cluster: &self.settings.cluster,
                op: "report",
                id,
                generation: &self.generation,
                version: *version,
                busy: busy.iter().map(ObjectSet::to_string).collect(),
                loads: take_loads(&mut self.loads, &mut self.sharing),
            },
            None => {
                self.joins += 1;
                // Never told twice, since an answer may be lost.
                let id = format!("{}#{}.{}", self.name, self.instance, self.joins);
                Message {
                    cluster: &self.settings.cluster,
                    op: "join",
                    id: self.id.insert(id),
                    generation: "",
                    version: 0,
                    busy: Vec::new(),
                    loads: BTreeMap::new(),
                }
            }
        };
        serde_json::to_vec(&message).unwrap_or_default()
    }

    /// Takes the answer to the message of `sent`; when the next one is due, or what is wrong.
    pub fn on_answer(&mut self, body: &[u8], sent: f64, now: f64) -> Result<f64, String> {
        let bad = |problem| format!("an agent's answer about primaries: {problem}");
        let answer: Answer =
            serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
        let next = now + self.settings.period;
        match answer.status.as_str() {
            "open" if self.follower.version().is_none() => {
                check_name(&answer.generation)
                    .map_err(|_| bad(format!("generation {:?}", answer.generation)))?;
                let terms = Terms {
                    lease: seconds(answer.lease_ms),
                    request_limit: seconds(answer.request_limit_ms),
                    holds: answer.when_lost == "hold",
                };
                let table = self.table(&answer).map_err(bad)?;
                self.follower.joined(table);
                (self.generation, self.terms, self.heard) = (answer.generation, terms, sent);
                self.loads.clear();
                self.sharing.clear();
                // What leaves is to be told of.
                Ok(now)
            }
            "wait" if self.follower.version().is_none() => {
                Ok(now + seconds(answer.wait_ms).clamp(MIN_WAIT, MAX_WAIT))
            }
            "ok" => {
                self.heard = sent;
                for text in &answer.deltas {
                    let delta = self.delta(text).map_err(bad)?;
                    match self.follower.on_delta(&delta) {
                        Ok(()) => self.due |= leaves(&delta),
                        Err(Gap::Late) => {}
                        Err(gap) => return Err(bad(format!("a change that is {gap:?}"))),
                    }
                }
                Ok(next)
            }
            "table" if answer.generation == self.generation => {
                self.heard = sent;
                let table = self.table(&answer).map_err(bad)?;
                self.follower.on_table(table);
                Ok(now)
            }
            "unknown" | "table" => {
                self.forget();
                Ok(now)
            }
            other => Err(bad(format!("status {other:?}"))),
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

    fn table(&mut self, answer: &Answer) -> Result<Table, String> {
        let mut entries = Vec::new();
        for (set, state) in &answer.entries {
            let set: ObjectSet = set.parse().map_err(|_| format!("{set:?} is no set"))?;
            entries.push((set, self.state(state)?));
        }
        if entries.len() > 2 * plimsoll_core::placement::MAX_NAMED + usize::from(RESTS) {
            return Err("too many entries".to_owned());
        }
        Table::from_entries(answer.version, entries).map_err(|_| "not a whole table".to_owned())
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

/// What began since the last time, the hottest: names that share a rest by themselves, the others of them summed up.
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
    let room = MAX_LOADS - told.len();
    told.extend(
        sets.into_iter()
            .take(room)
            .map(|(set, cost)| (set.to_string(), cost)),
    );
    told
}
