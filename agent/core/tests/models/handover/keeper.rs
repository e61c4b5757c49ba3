//! Agents: what `agent/node/src/placement` does around the [`Steward`], step by step.

use std::{collections::BTreeSet, time::Duration};

use plimsoll_core::placement::{
    DispatcherId, NodeNow, PlanSettings, Reading, Steward, StewardSettings, first_of_term,
};

use super::{
    Config, Mend,
    seen::Seen,
    table::{Board, Change, Entry, NODES, set_of},
    world::{Action, World},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Waits for the replica, and then reads the table.
    Claimed,
    Idle,
    /// Has decided.
    Decided(Change),
    /// Waits for the replica; `None` for a table that does not go on.
    Published(Option<Change>),
}

/// A time as the keeper, as far as the agent knows.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Term {
    pub epoch: u8,
    is_same_server: bool,
    phase: Phase,
    /// The replica has what was written last.
    is_replicated: bool,
    steward: Option<Seen<Steward>>,
    known: Board,
    is_sure: bool,
    is_settled: bool,
    /// Time since the last reading was answered.
    answered: u8,
    /// Dispatchers at the reading before.
    read: BTreeSet<DispatcherId>,
}

#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Agent {
    /// Server to which it is connected.
    pub server: u8,
    /// The newest table that it has seen, and who had joined.
    held: Option<(Board, BTreeSet<DispatcherId>)>,
    pub term: Option<Term>,
}

impl Agent {
    pub fn refresh(&mut self) {
        if let Some(steward) = self.term.as_mut().and_then(|term| term.steward.as_mut()) {
            steward.refresh();
        }
    }

    /// Whether its term is yet to begin.
    pub fn has_claimed(&self) -> bool {
        let term = self.term.as_ref();
        term.is_some_and(|term| term.phase == Phase::Claimed)
    }

    pub fn is_idle(&self) -> bool {
        let term = self.term.as_ref();
        term.is_some_and(|term| term.phase == Phase::Idle)
    }

    fn steward(&self) -> Option<&Steward> {
        Some(self.term.as_ref()?.steward.as_ref()?.get())
    }

    pub fn is_moving(&self) -> bool {
        self.steward().is_some_and(|steward| steward.moving() > 0)
    }

    /// Whether it waits for dispatchers that may act on a lost version.
    pub fn is_after_loss(&self) -> bool {
        self.steward().is_some_and(Steward::is_after_loss)
    }

    pub fn replicated(&mut self, server: u8) {
        if self.server == server
            && let Some(term) = &mut self.term
        {
            term.is_replicated = true;
        }
    }

    pub fn tick(&mut self, most: u8) {
        if let Some(term) = &mut self.term {
            term.answered = (term.answered + 1).min(most);
        }
    }

    pub fn actions(
        &self,
        number: usize,
        world: &World,
        config: &Config,
        actions: &mut Vec<Action>,
    ) {
        let left = &world.left;
        let Some(term) = &self.term else {
            // Keepers change without a failover, or after it.
            if left.claims > 0 && left.failovers == 0 {
                actions.push(Action::Claim(number));
            }
            return;
        };
        let is_replicated = term.is_replicated || config.lacks(Mend::Replicated);
        match term.phase {
            Phase::Claimed if is_replicated => actions.push(Action::Begin(number)),
            Phase::Idle => {
                actions.push(Action::Read(number, None));
                if left.moves > 0 {
                    let sets = (0..config.sets).map(|set| Action::Read(number, Some(set)));
                    actions.extend(sets);
                }
            }
            Phase::Decided(_) => actions.push(Action::Publish(number)),
            Phase::Published(_) if is_replicated => actions.push(Action::Waited(number)),
            Phase::Claimed | Phase::Published(_) => {}
        }
    }
}

fn settings(config: &Config) -> StewardSettings {
    StewardSettings {
        plan: PlanSettings::default(),
        moves: false,
        request_limit: Duration::from_secs(config.request_limit.into()),
        lease: Duration::from_secs(config.lease.into()),
    }
}

impl World {
    fn is_replicated_at_once(&self, server: u8) -> bool {
        server == self.master.server && self.replica.is_none()
    }

    pub fn follow(&mut self, number: usize, config: &Config) -> bool {
        let Agent { server, held, .. } = &self.agents[number];
        let (server, held) = (*server, held.clone());
        let Some(redis) = self.server(server, config) else {
            return false;
        };
        if let Some(board) = redis.follow(held.as_ref().map(|(board, _)| board)) {
            let ids = redis.known.keys().copied().collect();
            self.agents[number].held = Some((board, ids));
        }
        true
    }

    pub fn claim(&mut self, number: usize, config: &Config) -> bool {
        if !self.follow(number, config) {
            return false;
        }
        let server = self.agents[number].server;
        let is_replicated = self.is_replicated_at_once(server);
        let Some(redis) = self.server(server, config) else {
            return false;
        };
        let is_same = redis.claim(number, config);
        let (epoch, at) = (redis.epoch, redis.at);
        let is_same_server = is_same || config.lacks(Mend::WaitAfterALoss);
        self.left.claims -= 1;
        self.claims += 1;
        self.agents[number].term = Some(Term {
            epoch,
            is_same_server,
            phase: Phase::Claimed,
            is_replicated,
            steward: None,
            known: at,
            is_sure: false,
            is_settled: is_same,
            answered: 0,
            read: BTreeSet::new(),
        });
        true
    }

    /// Different in each term, and so is the sum of any of them.
    fn lot(&self) -> u64 {
        1 << (3 * self.claims.min(6))
    }

    pub fn begin(&mut self, number: usize, config: &Config) {
        let server = self.agents[number].server;
        let Some(stored) = self.server(server, config).map(|redis| redis.at) else {
            self.agents[number].term = None;
            return;
        };
        let held = self.agents[number].held.as_ref().map(|(board, _)| *board);
        let newer =
            |held: &Board| (held.generation, held.version) > (stored.generation, stored.version);
        let lost = held.filter(newer);
        let base = lost.unwrap_or(stored);
        let first = match config.lacks(Mend::OwnBlocks) {
            true => base.version + 1,
            false => first_of_term(base.version, self.lot()).unwrap(),
        };
        let Some(term) = &mut self.agents[number].term else {
            return;
        };
        let may_have_lost = !term.is_same_server;
        let steward = Steward::resumed(base.table(), settings(config), first, may_have_lost);
        term.steward = Some(Seen::new(steward));
        (term.known, term.phase) = (base, Phase::Idle);
        if lost.is_some() {
            self.open(number, 0, config);
        }
    }

    fn open(&mut self, number: usize, ahead: u64, config: &Config) {
        let Agent {
            server, held, term, ..
        } = &self.agents[number];
        let ids = held
            .as_ref()
            .map(|(_, ids)| ids.clone())
            .unwrap_or_default();
        let (server, Some(term)) = (*server, term) else {
            return;
        };
        let (known, epoch) = (term.known, term.epoch);
        self.generations += 1;
        let is_as_left = !config.lacks(Mend::OpenedAsLeft);
        let board = Board {
            generation: self.generations,
            version: first_of_term(known.version.max(ahead), self.lot()).unwrap(),
            entries: match is_as_left {
                true => known.entries,
                false => known.entries.map(|entry| Entry::At(entry.node())),
            },
        };
        let is_replicated = self.is_replicated_at_once(server);
        let opened = self
            .server(server, config)
            .map(|redis| redis.open(number, epoch, board, &ids, config));
        let agent = &mut self.agents[number];
        let (Some(Ok(())), Some(term)) = (opened, &mut agent.term) else {
            agent.term = None;
            return;
        };
        let steward = Steward::resumed(board.table(), settings(config), 0, is_as_left);
        term.steward = Some(Seen::new(steward));
        (term.known, term.is_sure, term.answered) = (board, true, 0);
        (term.phase, term.is_replicated) = (Phase::Published(None), is_replicated);
    }

    /// Returns false if Redis does not answer.
    pub fn read(&mut self, number: usize, wish: Option<usize>, config: &Config) -> bool {
        let Agent { server, term, .. } = &self.agents[number];
        let (server, Some(term)) = (*server, term) else {
            return false;
        };
        let (epoch, passed, known, is_sure) = (term.epoch, term.answered, term.known, term.is_sure);
        let Some(redis) = self.server(server, config) else {
            return false;
        };
        let Ok((mut dispatchers, gone)) = redis.read(number, epoch, passed, config) else {
            self.agents[number].term = None;
            return true;
        };
        let (at, ahead) = (redis.at, redis.ahead);
        if (at.generation, at.version) != (known.generation, known.version) {
            self.agents[number].term = None;
            return true;
        }
        if ahead > 0 && !(is_sure && at == known) {
            self.open(number, ahead, config);
            return true;
        }
        if ahead > 0 {
            let _ = redis.heed(number, epoch, config);
            if let Some(term) = &mut self.agents[number].term {
                term.answered = 0;
            }
            return true;
        }
        let is_heeded = wish.is_some();
        self.left.moves -= u8::from(is_heeded);
        let agent = &mut self.agents[number];
        let Some(term) = &mut agent.term else {
            return true;
        };
        term.answered = 0;
        let ids: BTreeSet<DispatcherId> = dispatchers.iter().map(|known| known.id).collect();
        if config.lacks(Mend::ReadingAfterTheChange) {
            let before = std::mem::replace(&mut term.read, ids.clone());
            dispatchers.retain(|known| before.contains(&known.id));
        }
        if let Some((_, held)) = &mut agent.held {
            *held = ids;
        }
        let up = NodeNow {
            capacity: 1.0,
            mean_cost: 1.0,
        };
        let wishes = wish.map(|set| (set_of(set), 1 - at.entries[set].node()));
        let reading = Reading {
            dispatchers,
            gone,
            nodes: Some((0..NODES).map(|node| (node, up)).collect()),
            wishes: wishes.into_iter().collect(),
            ..Reading::default()
        };
        let Some(steward) = &mut term.steward else {
            return true;
        };
        let step = steward.change().step(Duration::ZERO, &reading);
        match step.delta {
            Some(delta) => term.phase = Phase::Decided(Change::of(known.generation, &delta)),
            None => self.settle(number, config),
        }
        true
    }

    pub fn publish(&mut self, number: usize, config: &Config) {
        let Agent { server, term, .. } = &self.agents[number];
        let (server, Some(term)) = (*server, term) else {
            return;
        };
        let Phase::Decided(change) = term.phase else {
            return;
        };
        let epoch = term.epoch;
        let is_replicated = self.is_replicated_at_once(server);
        let published = self
            .server(server, config)
            .map(|redis| redis.publish(number, epoch, &change, config));
        match (published, &mut self.agents[number].term) {
            (Some(Ok(())), Some(term)) => {
                term.phase = Phase::Published(Some(change));
                term.is_replicated = is_replicated;
            }
            (_, term) => *term = None,
        }
    }

    pub fn waited(&mut self, number: usize, config: &Config) {
        let Some(term) = &mut self.agents[number].term else {
            return;
        };
        let Phase::Published(change) = term.phase else {
            return;
        };
        if let Some(change) = change {
            term.known.apply(&change);
        }
        (term.is_sure, term.phase) = (true, Phase::Idle);
        self.settle(number, config);
    }

    fn settle(&mut self, number: usize, config: &Config) {
        let agent = &mut self.agents[number];
        let is_after_loss = agent.is_after_loss();
        let Some(term) = &mut agent.term else {
            return;
        };
        let known = term.known;
        match &mut agent.held {
            Some((board, _)) => *board = known,
            None => agent.held = Some((known, BTreeSet::new())),
        }
        if term.is_settled || is_after_loss {
            return;
        }
        let (server, epoch) = (agent.server, term.epoch);
        let settled = self
            .server(server, config)
            .map(|redis| redis.settle(number, epoch, config));
        match (settled, &mut self.agents[number].term) {
            (Some(Ok(())), Some(term)) => term.is_settled = true,
            _ => self.agents[number].term = None,
        }
    }
}
