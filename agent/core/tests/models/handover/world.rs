//! Dispatchers, nodes, the network and time.

use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_core::placement::{DispatcherId, Follower, Gap, NodeId, Route, Table, Ticket};

use super::{
    Config, Mend,
    keeper::Agent,
    redis::{NAMESAKES, Redis, Reply},
    seen::Seen,
    table::{Board, Change, Entry, NAMES, NODES, set_of},
};

mod events;
mod rest;

pub use events::{Action, Left};

pub const DISPATCHERS: usize = 2;
pub const AGENTS: usize = 2;

/// A request that a node works on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    pub sender: usize,
    pub set: usize,
    pub node: NodeId,
    pub age: u8,
    /// Its connection has ended.
    pub orphan: bool,
}

/// A message sent by a dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    Join,
    Report {
        generation: u8,
        version: u64,
        busy: u8,
    },
}

/// The call under way of a dispatcher, with the time since it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Post {
    None,
    Answered(DispatcherId, Reply, u8),
}

/// A dispatcher's view by its table: the node to which it sends each set.
type View = (u8, u64, [Option<NodeId>; NAMES.len()]);

/// A dispatcher, which drives its follower like `lua/plimsoll/placement/link.lua`.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Dispatcher {
    follower: Seen<Follower>,
    pub view: Option<View>,
    id: Option<DispatcherId>,
    generation: u8,
    joins: u8,
    /// Time since the last answered report was sent.
    heard: u8,
    pub post: Post,
    /// Time since a request ended without an answer, by node.
    doubts: [Option<u8>; NODES as usize],
    /// Server to which it is connected.
    pub server: u8,
}

impl Dispatcher {
    fn new() -> Self {
        Dispatcher {
            follower: Seen::new(Follower::default()),
            view: None,
            id: None,
            generation: 0,
            joins: 0,
            heard: 0,
            post: Post::None,
            doubts: [None; NODES as usize],
            server: 0,
        }
    }

    /// Whether it has an id, and no table.
    pub fn is_suspended(&self) -> bool {
        self.id.is_some() && self.view.is_none() && self.post == Post::None
    }

    fn refresh(&mut self) {
        if !self.follower.refresh() {
            return;
        }
        let version = self.follower.get().version();
        self.view = version.map(|version| {
            let mut nodes = [None; NAMES.len()];
            let mut follower = self.follower.get().clone();
            for (node, name) in nodes.iter_mut().zip(NAMES) {
                if let Ok(Route::Go(ticket)) = follower.route(name) {
                    *node = Some(ticket.node());
                }
            }
            (self.generation, version, nodes)
        });
    }

    fn end_doubts(&mut self, config: &Config) {
        for (node, doubt) in (0..).zip(&mut self.doubts) {
            // It began within a unit of time.
            if doubt.is_some_and(|age| age > config.request_limit) {
                *doubt = None;
                self.follower.change().vouched(node);
            }
        }
    }

    fn rejoin(&mut self) {
        self.follower.change().suspend();
        self.id = None;
    }

    fn take(&mut self, config: &Config) {
        let post = std::mem::replace(&mut self.post, Post::None);
        let Post::Answered(id, reply, age) = post else {
            return;
        };
        if let Reply::Open(board) = reply {
            self.follower.change().joined(board.table());
            (self.id, self.generation, self.heard) = (Some(id), board.generation, age);
        } else if self.id == Some(id) {
            self.heard = age;
            match reply {
                Reply::Changes(changes) => self.take_changes(&changes),
                Reply::Table(board) if board.generation == self.generation => {
                    self.follower.change().on_table(board.table());
                }
                Reply::Table(_) | Reply::Unknown => self.rejoin(),
                Reply::Open(_) | Reply::Wait => {}
            }
        }
        if !config.holds {
            self.heard = 0;
        }
    }

    fn take_changes(&mut self, changes: &[Change]) {
        for change in changes {
            match self.follower.change().on_delta(&change.delta()) {
                Ok(()) | Err(Gap::Late) => {}
                Err(Gap::Missed) => return,
                Err(Gap::Wrong) => panic!("{change:?}"),
            }
        }
    }
}

/// A ticket as the follower gave it: it has no other state.
fn ticket(set: usize, node: NodeId) -> Ticket {
    let mut follower = Follower::default();
    follower.joined(Table::new(|_| node));
    match follower.route(NAMES[set]) {
        Ok(Route::Go(ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct World {
    pub master: Redis,
    pub replica: Option<Redis>,
    /// The server that was replaced, and since when.
    pub former: Option<(Redis, u8)>,
    pub agents: [Agent; AGENTS],
    pub dispatchers: [Dispatcher; DISPATCHERS],
    pub runs: Vec<Run>,
    pub left: Left,
    /// Claims so far, by which terms draw different versions.
    pub claims: u8,
    /// Generations so far.
    pub generations: u8,
}

impl World {
    /// Both dispatchers have joined, and the first agent is the keeper.
    pub fn new(config: &Config) -> Self {
        let at = Board {
            generation: 0,
            version: 1,
            entries: [Entry::At(0); NAMES.len()],
        };
        let mut world = World {
            master: Redis::new(at),
            replica: None,
            former: None,
            agents: Default::default(),
            dispatchers: std::array::from_fn(|_| Dispatcher::new()),
            runs: Vec::new(),
            left: config.left,
            claims: 0,
            generations: 0,
        };
        world.left.claims += 1;
        let begin = [Action::Claim(0), Action::Begin(0), Action::Read(0, None)];
        let join = (0..config.joined).map(Action::Report);
        let at_once = config.at_once();
        for action in join.chain(begin) {
            assert!(world.apply(action, &at_once), "{action:?}");
        }
        if config.left.failovers > 0 {
            world.replica = Some(world.master.replica());
        }
        world.refresh();
        world
    }

    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    pub fn refresh(&mut self) {
        self.dispatchers.iter_mut().for_each(Dispatcher::refresh);
        self.agents.iter_mut().for_each(Agent::refresh);
    }

    /// The server with this number, unless it takes no writes.
    pub fn server(&mut self, number: u8, config: &Config) -> Option<&mut Redis> {
        if number == self.master.server {
            return Some(&mut self.master);
        }
        let (former, age) = self.former.as_mut()?;
        // As `min-replicas-to-write` has it.
        let takes_writes = !config.holds || *age <= config.margin;
        takes_writes.then_some(former)
    }

    pub fn actions(&self, config: &Config, actions: &mut Vec<Action>) {
        let left = &self.left;
        let is_due = |run: &Run| run.age >= config.request_limit;
        if left.ticks > 0 && !self.runs.iter().any(is_due) {
            actions.push(Action::Tick);
        }
        actions.extend((0..self.runs.len()).map(Action::End));
        for (number, dispatcher) in self.dispatchers.iter().enumerate() {
            let own = |run: &Run, set| run.sender == number && run.set == set && !run.orphan;
            for set in 0..config.sets {
                if !self.runs.iter().any(|run| own(run, set)) {
                    actions.push(Action::Send(number, set));
                } else if left.cuts > 0 {
                    actions.push(Action::Cut(number));
                }
            }
            match dispatcher.post {
                Post::None => actions.push(Action::Report(number)),
                Post::Answered(..) => actions.push(Action::Take(number)),
            }
            if left.restarts > 0 {
                actions.push(Action::Restart(number));
            }
            if dispatcher.server != self.master.server {
                actions.push(Action::Reconnect(number));
            }
        }
        for (number, agent) in self.agents.iter().enumerate() {
            agent.actions(number, self, config, actions);
            if agent.server != self.master.server {
                actions.push(Action::ReconnectAgent(number));
            }
        }
        let is_behind = |replica: &Redis| *replica != self.master.replica();
        if self.replica.as_ref().is_some_and(is_behind) {
            actions.push(Action::Replicate);
            actions.push(Action::Failover);
        }
    }

    /// Returns false if nothing happens.
    pub fn apply(&mut self, action: Action, config: &Config) -> bool {
        let happens = self.act(action, config);
        self.forget();
        happens
    }

    /// Forgets what nobody will read: a server without clients, and reports to one without a keeper.
    fn forget(&mut self) {
        let is_kept = |server: u8, agents: &[Agent]| {
            let mut agents = agents.iter();
            agents.any(|agent| agent.server == server && agent.term.is_some())
        };
        if !is_kept(self.master.server, &self.agents) {
            self.master = self.master.replica();
        }
        let Some((former, _)) = &mut self.former else {
            return;
        };
        if is_kept(former.server, &self.agents) {
            return;
        }
        let mut dispatchers = self.dispatchers.iter();
        match dispatchers.any(|known| known.server == former.server) {
            true => *former = former.replica(),
            false => self.former = None,
        }
    }

    fn act(&mut self, action: Action, config: &Config) -> bool {
        match action {
            Action::Tick => self.tick(config),
            Action::Send(dispatcher, set) => return self.send(dispatcher, set, config),
            Action::End(run) => self.end(run),
            Action::Cut(dispatcher) => self.cut(dispatcher, config),
            Action::Restart(dispatcher) => self.restart(dispatcher),
            Action::Report(dispatcher) => return self.report(dispatcher, config),
            Action::Take(dispatcher) => self.dispatchers[dispatcher].take(config),
            Action::Reconnect(dispatcher) => {
                self.dispatchers[dispatcher].server = self.master.server;
            }
            Action::ReconnectAgent(agent) => {
                self.agents[agent].server = self.master.server;
                self.agents[agent].term = None;
            }
            Action::Claim(agent) => return self.claim(agent, config),
            Action::Begin(agent) => self.begin(agent, config),
            Action::Read(agent, wish) => return self.read(agent, wish, config),
            Action::Publish(agent) => self.publish(agent, config),
            Action::Waited(agent) => self.waited(agent, config),
            Action::Replicate => {
                self.replica = Some(self.master.replica());
                for agent in &mut self.agents {
                    agent.replicated(self.master.server);
                }
            }
            Action::Failover => self.fail_over(config),
        }
        true
    }

    fn tick(&mut self, config: &Config) {
        self.left.ticks -= 1;
        let most = config.max_age();
        let age = |age: &mut u8| *age = (*age + 1).min(most);
        self.runs.iter_mut().for_each(|run| age(&mut run.age));
        for dispatcher in &mut self.dispatchers {
            dispatcher.doubts.iter_mut().flatten().for_each(age);
            if config.holds {
                age(&mut dispatcher.heard);
                if let Post::Answered(_, _, sent) = &mut dispatcher.post {
                    age(sent);
                }
            }
        }
        if let Some((_, since)) = &mut self.former {
            age(since);
        }
        for agent in &mut self.agents {
            agent.tick(most);
        }
    }

    fn send(&mut self, number: usize, set: usize, config: &Config) -> bool {
        let dispatcher = &mut self.dispatchers[number];
        let Some((.., nodes)) = dispatcher.view else {
            return false;
        };
        if config.holds && dispatcher.heard > config.lease && !config.lacks(Mend::Lease) {
            dispatcher.follower.change().suspend();
            return true;
        }
        if nodes[set].is_none() {
            return false;
        }
        let Ok(Route::Go(ticket)) = dispatcher.follower.change().route(NAMES[set]) else {
            panic!("it routed before");
        };
        self.runs.push(Run {
            sender: number,
            set,
            node: ticket.node(),
            age: 0,
            orphan: false,
        });
        self.runs.sort();
        true
    }

    fn end(&mut self, run: usize) {
        let run = self.runs.remove(run);
        if !run.orphan {
            let follower = &mut self.dispatchers[run.sender].follower;
            follower.change().answered(ticket(run.set, run.node));
        }
    }

    fn cut(&mut self, number: usize, config: &Config) {
        self.left.cuts -= 1;
        let mut runs = self.runs.iter_mut();
        if let Some(run) = runs.find(|run| run.sender == number && !run.orphan) {
            run.orphan = true;
            let dispatcher = &mut self.dispatchers[number];
            let ticket = ticket(run.set, run.node);
            if config.lacks(Mend::DoubtOfTheUnanswered) {
                dispatcher.follower.change().answered(ticket);
            } else {
                dispatcher.doubts[run.node as usize] = Some(0);
                dispatcher.follower.change().unanswered(ticket);
            }
        }
        self.runs.sort();
    }

    fn restart(&mut self, number: usize) {
        self.left.restarts -= 1;
        let dispatcher = &mut self.dispatchers[number];
        let (joins, server) = (dispatcher.joins, dispatcher.server);
        *dispatcher = Dispatcher {
            joins,
            server,
            ..Dispatcher::new()
        };
        let of_it = self.runs.iter_mut().filter(|run| run.sender == number);
        of_it.for_each(|run| run.orphan = true);
        self.runs.sort();
    }

    fn report(&mut self, number: usize, config: &Config) -> bool {
        let dispatcher = &mut self.dispatchers[number];
        dispatcher.end_doubts(config);
        let (id, question) = match dispatcher.id {
            Some(id) => {
                let Some((version, sets)) = dispatcher.follower.get().report() else {
                    dispatcher.id = None;
                    return true;
                };
                let bits = (0..NAMES.len()).filter(|index| sets.contains(&set_of(*index)));
                let busy = bits.fold(0, |busy, index| busy | 1 << index);
                let generation = dispatcher.generation;
                let report = Question::Report {
                    generation,
                    version,
                    busy,
                };
                (id, report)
            }
            None if dispatcher.joins == config.joins => return false,
            None => {
                dispatcher.joins += 1;
                let id = NAMESAKES * (1 + number as u64) + u64::from(dispatcher.joins);
                (id, Question::Join)
            }
        };
        self.arrive(number, id, question, config);
        true
    }

    fn arrive(&mut self, number: usize, id: DispatcherId, question: Question, config: &Config) {
        let server = self.dispatchers[number].server;
        if let Some(redis) = self.server(server, config) {
            let reply = match question {
                Question::Join => redis.join(id, config),
                Question::Report {
                    generation,
                    version,
                    busy,
                } => redis.report(id, generation, version, busy, config),
            };
            self.dispatchers[number].post = Post::Answered(id, reply, 0);
            if !config.slow_answers {
                self.dispatchers[number].take(config);
            }
        }
    }

    fn fail_over(&mut self, config: &Config) {
        self.left.failovers -= 1;
        let Some(mut next) = self.replica.take() else {
            return;
        };
        next.server = self.master.server + 1;
        let former = std::mem::replace(&mut self.master, next);
        if config.forks {
            self.former = Some((former, 0));
        }
        for dispatcher in 0..DISPATCHERS {
            if !config.forks {
                self.apply(Action::Reconnect(dispatcher), config);
            }
        }
        for agent in 0..AGENTS {
            if !config.forks || self.agents[agent].term.is_none() {
                self.apply(Action::ReconnectAgent(agent), config);
            }
        }
    }
}
