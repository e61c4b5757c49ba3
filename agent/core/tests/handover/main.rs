//! Randomized test of the handover of object sets: lost, late and duplicate messages, dispatchers, nodes and keepers
//! that die and return, requests that end without a response. No two nodes ever run requests of one name at a time,
//! and in the end every name has a primary.
#![allow(clippy::unwrap_used, clippy::panic)]

mod steps;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::placement::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

const NODES: u32 = 4;
const READER: DispatcherId = 0;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "orders", "customers/7", "stock"];

/// A request at a node.
struct Running {
    request: u64,
    name: &'static str,
    /// Number of the dispatcher that sent it.
    sender: DispatcherId,
    /// Its connection has ended.
    orphan: bool,
}

#[derive(Default)]
struct Proxy {
    id: Option<DispatcherId>,
    follower: Follower,
    tickets: BTreeMap<u64, Ticket>,
    /// Its former numbers, whose requests may still run.
    had: BTreeSet<DispatcherId>,
}

#[derive(Clone)]
enum Letter {
    ToKeeper(DispatcherId, u64, Vec<ObjectSet>),
    Change(DispatcherId, Delta),
    Whole(DispatcherId, Table),
}

struct World {
    random: SmallRng,
    keeper: Keeper,
    proxies: Vec<Proxy>,
    nodes: Vec<Vec<Running>>,
    alive: Vec<bool>,
    letters: Vec<Letter>,
    /// Gone, without the keeper's knowledge.
    silent: Vec<DispatcherId>,
    departed: BTreeSet<DispatcherId>,
    /// Joined dispatchers and the versions at which they joined, as a keeper reads them.
    joined: BTreeMap<DispatcherId, u64>,
    next: u64,
    moved: u64,
    /// State before the last step that published a change.
    before: Table,
    /// Last published versions of the terms that are over.
    lasts: Vec<u64>,
    lost: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        World {
            random: SmallRng::seed_from_u64(seed),
            keeper: kept(Keeper::new(Table::new(|rest| u32::from(rest) % NODES))),
            proxies: (0..3).map(|_| Proxy::default()).collect(),
            nodes: (0..NODES).map(|_| Vec::new()).collect(),
            alive: vec![true; NODES as usize],
            letters: Vec::new(),
            silent: Vec::new(),
            departed: BTreeSet::new(),
            joined: BTreeMap::new(),
            next: 1,
            moved: 0,
            before: Table::new(|rest| u32::from(rest) % NODES),
            lasts: Vec::new(),
            lost: 0,
        }
    }

    fn below(&mut self, count: usize) -> usize {
        self.random.random_range(0..count)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Ends the connections of a proxy, or of one of its requests, without the nodes noticing.
    fn cut(&mut self, proxy: usize, only: Option<u64>) {
        let Proxy {
            follower, tickets, ..
        } = &mut self.proxies[proxy];
        let all = std::mem::take(tickets);
        for (request, ticket) in all {
            if only.is_some_and(|only| only != request) {
                tickets.insert(request, ticket);
                continue;
            }
            follower.unanswered(ticket);
            for_each(&mut self.nodes, |running| {
                running.orphan |= running.request == request;
            });
        }
    }

    fn join(&mut self, proxy: usize) {
        let id = self.number();
        let table = self.keeper.table().clone();
        self.joined.insert(id, table.version());
        let proxy = &mut self.proxies[proxy];
        proxy.id = Some(id);
        proxy.had.insert(id);
        proxy.follower.joined(table);
    }

    /// The keeper reads which dispatchers have joined since.
    fn read(&mut self) {
        for (id, version) in &self.joined {
            if !self.keeper.knows(*id) {
                self.keeper.join_at(*id, *version).unwrap();
            }
        }
        let version = self.keeper.table().version();
        self.keeper.heard(READER, version, &[]).unwrap();
    }

    fn leave(&mut self, id: DispatcherId, idle: bool) {
        self.read();
        self.joined.remove(&id);
        if !idle {
            self.departed.insert(id);
        }
        self.keeper.left(id, idle);
    }

    /// Another keeper takes over the table, and the lists of joined and gone dispatchers.
    fn replace_keeper(&mut self) {
        self.keeper = kept(Keeper::recovered(self.keeper.table().clone()));
        self.read();
        for id in &self.departed {
            self.keeper.join_at(*id, 0).unwrap();
            self.keeper.left(*id, false);
        }
    }

    /// Whether a proxy has the newest table, and sends requests by it.
    fn catch_up(&mut self, proxy: usize) {
        let others = std::mem::take(&mut self.letters);
        self.fetch(proxy);
        for letter in std::mem::replace(&mut self.letters, others) {
            self.deliver(letter);
        }
        for _ in 0..NAMES.len() {
            self.send(proxy);
        }
    }

    /// Redis and the keeper come back without the last published change, on which a dispatcher has acted.
    fn lose(&mut self) {
        let ahead = self.below(self.proxies.len());
        self.catch_up(ahead);
        let have = self.keeper.table().version();
        let table = self.before.clone();
        let kept = table.version();
        self.lost += u64::from(kept < have);
        self.lasts.push(kept);
        let lot = self.random.random();
        let first = first_of_term(kept, lot).unwrap();
        let mut keeper = Keeper::recovered_after_loss(table.clone(), first);
        keeper.join(READER).unwrap();
        self.keeper = keeper;
        // Dispatchers whose joining was lost are represented by one that joined at version 0.
        for (_, version) in self.joined.iter_mut() {
            if *version > kept {
                *version = 0;
            }
        }
        for (id, version) in &self.joined {
            self.keeper.join_at(*id, *version).unwrap();
        }
        for id in &self.departed {
            self.keeper.join_at(*id, 0).unwrap();
            self.keeper.left(*id, false);
        }
        let version = self.keeper.table().version();
        self.keeper.heard(READER, version, &[]).unwrap();
        // An answer is lost with its request's connection.
        let has_been =
            |letter: &Letter| !matches!(letter, Letter::Whole(_, table) if table.version() > kept);
        self.letters.retain(has_been);
        self.before = table;
        let other = self.below(self.proxies.len());
        self.catch_up(other);
    }

    /// Same as in the function library in Redis.
    fn has_been(&self, version: u64) -> bool {
        let term = |version: u64| version / TERM_VERSIONS;
        let newest = self.keeper.table().version();
        let mut lasts = self.lasts.iter().chain([&newest]).rev();
        let last = lasts.find(|last| term(**last) == term(version));
        last.is_some_and(|last| version <= *last)
    }

    fn check(&self) {
        for name in NAMES {
            let runs = |node: &Vec<Running>| node.iter().any(|running| running.name == name);
            let at: Vec<usize> = (0..self.nodes.len())
                .filter(|node| runs(&self.nodes[*node]))
                .collect();
            assert!(at.len() <= 1, "{name} runs at {at:?}");
        }
    }

    /// No more faults: all messages arrive, and every request ends.
    fn settle(&mut self) {
        for node in 0..NODES {
            self.keeper.node_up(node);
        }
        self.keeper.node_down(2);
        for id in std::mem::take(&mut self.silent) {
            self.leave(id, false);
        }
        self.letters.clear();
        for proxy in 0..self.proxies.len() {
            // Dispatchers that act on the lost version learn of it.
            self.tell(proxy);
            for letter in std::mem::take(&mut self.letters) {
                self.deliver(letter);
            }
            if self.proxies[proxy].id.is_none() {
                self.join(proxy);
            }
        }
        let on_it = self.keeper.table().entries();
        let off = on_it.filter(|(_, state)| state.primary() == 2);
        let off: Vec<Change> = off.map(|(set, _)| Change::Move(set, 1)).collect();
        self.keeper.begin(&off).unwrap();
        for proxy in 0..self.proxies.len() {
            self.cut(proxy, None);
        }
        self.nodes.iter_mut().for_each(Vec::clear);
        for node in 0..NODES as usize {
            self.vouch(node);
        }
        for _ in 0..3 {
            for proxy in 0..self.proxies.len() {
                self.fetch(proxy);
                for letter in std::mem::take(&mut self.letters) {
                    self.deliver(letter);
                }
                self.tell(proxy);
                for letter in std::mem::take(&mut self.letters) {
                    self.deliver(letter);
                }
            }
        }
        assert!(!self.keeper.is_moving());
        for (set, state) in self.keeper.table().entries() {
            assert!(
                matches!(state, State::Settled(node) if node != 2),
                "{set:?} {state:?}"
            );
        }
        for proxy in &mut self.proxies {
            for name in NAMES {
                let Route::Go(ticket) = proxy.follower.route(name).unwrap() else {
                    panic!("{name} waits for ever");
                };
                let set = self.keeper.table().set_of(name);
                let State::Settled(primary) = self.keeper.table().state(&set).unwrap() else {
                    panic!("{name} is not settled");
                };
                assert_eq!(ticket.node(), primary);
                proxy.follower.answered(ticket);
            }
        }
    }
}

/// A handover waits for it until it has read which dispatchers joined before.
fn kept(mut keeper: Keeper) -> Keeper {
    keeper.join(READER).unwrap();
    keeper
}

fn for_each(nodes: &mut [Vec<Running>], each: impl Fn(&mut Running)) {
    nodes.iter_mut().flatten().for_each(each);
}

#[test]
fn no_set_runs_at_two_nodes_and_each_ends_with_a_primary() {
    let (mut moved, mut lost) = (0, 0);
    for seed in 0..1_000 {
        let mut world = World::new(seed);
        for proxy in 0..3 {
            world.join(proxy);
        }
        for _ in 0..400 {
            let before = world.keeper.table().clone();
            let lost = world.lost;
            world.step();
            world.check();
            if world.keeper.table().version() > before.version() && world.lost == lost {
                world.before = before;
            }
        }
        world.settle();
        moved += world.moved;
        lost += world.lost;
    }
    // Otherwise the run tested nothing.
    assert!(moved > 5_000 && lost > 500, "{moved}, {lost}");
}
