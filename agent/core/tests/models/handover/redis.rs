//! Redis with the function library `lua/redis/plimsoll_placement`, in few lines: what each function does to the table,
//! to the dispatchers and to the keeper's epoch. Left out are loads, names, checks of what is malformed, and the
//! keeper's lease: any agent may claim at any time, as Redis' clock may be set or step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use plimsoll_core::placement::{DispatcherId, Heard, TERM_VERSIONS};

use super::{
    Config, Mend,
    table::{Board, Change, Entry, NAMES, set_of},
};

/// Number of what stands for all dispatchers that are known to a former server alone, plus the server's.
const FORMER: DispatcherId = 10_000;
/// Distance between the first ids of two dispatchers.
pub const NAMESAKES: DispatcherId = 100;
/// Changes kept for those that missed some; further behind they get the whole table.
const LOGGED: usize = 2;

/// A dispatcher that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// Time since its report by the keeper's clock; `None` for since the keeper read last.
    pub heard: Option<u8>,
    pub version: u64,
    pub joined: u64,
    /// Sets that are leaving and have requests there, as bits.
    pub busy: u8,
}

/// Answer to a dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Open(Board),
    Wait,
    Changes(Vec<Change>),
    Table(Board),
    Unknown,
}

/// The call is another keeper's, or of another table.
pub struct Refused;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Redis {
    /// Identifies the history of this server's data.
    pub server: u8,
    pub at: Board,
    opens_in: u8,
    log: Vec<Change>,
    /// Last versions of the terms before.
    lasts: Vec<u64>,
    /// A version that somebody told and that there is not, or 0.
    pub ahead: u64,
    keeper: usize,
    pub epoch: u8,
    /// Epoch that wrote the version.
    sure: u8,
    /// Server of whose predecessor nothing is on its way any more.
    settled: u8,
    pub known: BTreeMap<DispatcherId, Known>,
    /// Time since each went that may have left requests.
    pub gone: BTreeMap<DispatcherId, Option<u8>>,
}

fn term_of(version: u64) -> u64 {
    version / TERM_VERSIONS
}

impl Redis {
    pub fn new(at: Board) -> Self {
        Redis {
            server: 0,
            at,
            opens_in: 0,
            log: Vec::new(),
            lasts: Vec::new(),
            ahead: 0,
            keeper: 0,
            epoch: 0,
            sure: 0,
            settled: 0,
            known: BTreeMap::new(),
            gone: BTreeMap::new(),
        }
    }

    /// The part that a replica needs: a keeper's term ends with its connection, and the next keeper hears from all
    /// dispatchers again.
    pub fn replica(&self) -> Self {
        let mut replica = self.clone();
        for known in replica.known.values_mut() {
            (known.heard, known.version, known.busy) = (None, known.joined, 0);
        }
        replica
    }

    fn is_sure(&self) -> bool {
        self.sure == self.epoch
    }

    /// Whether the table has been at this version.
    pub fn has_been(&self, version: u64) -> bool {
        if version < 1 || version > self.at.version {
            return false;
        }
        let term = term_of(version);
        let mut lasts = self.lasts.iter();
        term == term_of(self.at.version)
            || lasts.any(|last| term_of(*last) == term && version <= *last)
    }

    fn news(&self, version: u64) -> Reply {
        if self.has_been(version) {
            let mut at = version;
            let mut changes = Vec::new();
            for change in &self.log {
                if change.from == at {
                    changes.push(*change);
                    at = change.to;
                }
            }
            if at == self.at.version {
                return Reply::Changes(changes);
            }
        }
        Reply::Table(self.at)
    }

    fn remove(&mut self, id: DispatcherId, config: &Config) {
        self.known.remove(&id);
        if !config.lacks(Mend::DoubtOfTheGone) {
            self.gone.insert(id, None);
        }
    }

    pub fn join(&mut self, id: DispatcherId, config: &Config) -> Reply {
        if self.ahead > 0 && !self.is_sure() || self.opens_in > 0 {
            return Reply::Wait;
        }
        let ids = self.known.keys().copied();
        let namesakes = ids.filter(|other| other / NAMESAKES == id / NAMESAKES);
        for other in namesakes.collect::<Vec<_>>() {
            self.remove(other, config);
        }
        let known = Known {
            heard: None,
            version: self.at.version,
            joined: self.at.version,
            busy: 0,
        };
        self.known.insert(id, known);
        Reply::Open(self.at)
    }

    pub fn report(
        &mut self,
        id: DispatcherId,
        generation: u8,
        version: u64,
        busy: u8,
        config: &Config,
    ) -> Reply {
        if !self.known.contains_key(&id) || generation != self.at.generation {
            return Reply::Unknown;
        }
        if !self.has_been(version) && !config.lacks(Mend::DoubtOfUnknownVersions) {
            self.ahead = self.ahead.max(version);
            self.remove(id, config);
            return Reply::Unknown;
        }
        let reply = self.news(version);
        if let Some(known) = self.known.get_mut(&id) {
            (known.heard, known.version, known.busy) = (None, version, busy);
        }
        reply
    }

    /// Begins a term; returns whether nothing can be lost of what was written before.
    pub fn claim(&mut self, agent: usize, config: &Config) -> bool {
        let is_same = self.settled == self.server;
        for known in self.known.values_mut() {
            known.heard = None;
        }
        if config.holds && !is_same && !config.lacks(Mend::StandIn) {
            let stand_in = Known {
                heard: None,
                version: 0,
                joined: 0,
                busy: 0,
            };
            self.known
                .insert(FORMER + DispatcherId::from(self.server), stand_in);
        }
        if config.lacks(Mend::SettledAtTheEnd) {
            self.settled = self.server;
        }
        self.keeper = agent;
        self.epoch += 1;
        is_same
    }

    fn fenced(&self, agent: usize, epoch: u8, config: &Config) -> Result<(), Refused> {
        let is_newest = (self.keeper, self.epoch) == (agent, epoch);
        match is_newest || config.lacks(Mend::Fence) {
            true => Ok(()),
            false => Err(Refused),
        }
    }

    /// Input of the keeper: current and former dispatchers. `passed` is its time since the last read.
    pub fn read(
        &mut self,
        agent: usize,
        epoch: u8,
        passed: u8,
        config: &Config,
    ) -> Result<(Vec<Heard>, Vec<DispatcherId>), Refused> {
        self.fenced(agent, epoch, config)?;
        let aged = |time: Option<u8>| time.map_or(0, |time| (time + passed).min(config.max_age()));
        self.opens_in = self.opens_in.saturating_sub(passed);
        let mut silent = Vec::new();
        for (id, known) in &mut self.known {
            let age = aged(known.heard);
            known.heard = Some(age);
            if config.holds && age > config.lease + config.margin {
                silent.push(*id);
            }
        }
        for id in silent {
            self.remove(id, config);
        }
        self.gone.retain(|_, went| {
            *went = Some(aged(*went));
            *went <= Some(config.request_limit)
        });
        let heard = self.known.iter().map(|(id, known)| Heard {
            id: *id,
            age: Duration::from_secs(known.heard.unwrap_or(0).into()),
            version: known.version,
            joined: known.joined,
            busy: (0..NAMES.len())
                .filter(|index| known.busy & (1 << index) != 0)
                .map(set_of)
                .collect(),
        });
        Ok((heard.collect(), self.gone.keys().copied().collect()))
    }

    pub fn publish(
        &mut self,
        agent: usize,
        epoch: u8,
        change: &Change,
        config: &Config,
    ) -> Result<(), Refused> {
        self.fenced(agent, epoch, config)?;
        let is_next = (change.generation, change.from) == (self.at.generation, self.at.version);
        let is_behind = !is_next || (self.ahead > 0 && !self.is_sure());
        if is_behind && !config.lacks(Mend::Fence) {
            return Err(Refused);
        }
        if term_of(change.from) != term_of(change.to) {
            self.lasts.push(change.from);
        }
        self.at.apply(change);
        self.sure = epoch;
        self.log.push(*change);
        if self.log.len() > LOGGED {
            self.log.remove(0);
        }
        Ok(())
    }

    /// Puts up a table that does not go on from the one before.
    pub fn open(
        &mut self,
        agent: usize,
        epoch: u8,
        at: Board,
        ids: &BTreeSet<DispatcherId>,
        config: &Config,
    ) -> Result<(), Refused> {
        self.fenced(agent, epoch, config)?;
        self.at = at;
        self.log.clear();
        self.lasts.clear();
        (self.ahead, self.sure) = (0, epoch);
        for id in ids {
            if !self.gone.contains_key(id) {
                self.known.entry(*id).or_insert(Known {
                    heard: None,
                    version: 0,
                    joined: 0,
                    busy: 0,
                });
            }
        }
        for known in self.known.values_mut() {
            (known.version, known.joined, known.busy) = (0, 0, 0);
        }
        self.opens_in = config.opening();
        Ok(())
    }

    pub fn heed(&mut self, agent: usize, epoch: u8, config: &Config) -> Result<(), Refused> {
        self.fenced(agent, epoch, config)?;
        self.ahead = 0;
        Ok(())
    }

    pub fn settle(&mut self, agent: usize, epoch: u8, config: &Config) -> Result<(), Refused> {
        self.fenced(agent, epoch, config)?;
        self.settled = self.server;
        Ok(())
    }

    /// Changes that an agent with this table lacks; `None` if it keeps its own.
    pub fn follow(&mut self, held: Option<&Board>) -> Option<Board> {
        if let Some(held) = held {
            if held.generation == self.at.generation
                && !self.has_been(held.version)
                && !self.is_sure()
            {
                self.ahead = self.ahead.max(held.version);
                return None;
            }
            if held.generation > self.at.generation {
                return None;
            }
        }
        Some(self.at)
    }

    /// Whether no set is leaving.
    pub fn is_still(&self) -> bool {
        let mut entries = self.at.entries.iter();
        entries.all(|entry| matches!(entry, Entry::At(_)))
    }
}
