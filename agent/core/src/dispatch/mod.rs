//! State and decisions of one dispatcher (a worker of a proxy).
//!
//! Each dispatcher has its own share of every node's bound, so it admits and places requests from its own
//! state alone. `lua/plimsoll/dispatcher.lua` is the same for HAProxy; `vectors/dispatch.json` pins that both
//! decide alike.

mod choice;
mod class;
mod costs;
mod node;
mod observed;
mod pulse;
mod report;

use crate::{
    ring::RingTable,
    schedule::{Board, NewsSettings, NodeNews, Policy, Scheduler},
};

pub use class::Class;
pub use costs::Costs;
use node::Node;
pub use observed::{Decisions, Observed};
pub use pulse::Pulse;

/// Relative fall of all shares above which the dispatcher reports at once: others wait for what it gives up.
const GIVEN_UP: f64 = 0.1;
/// Time after which lapsed shares are used again if there are no new ones, in seconds: Redis is unavailable then, so
/// most likely nobody else was granted them.
const MAX_LAPSE: f64 = 2.0;

/// Maximum cost of a request, in items.
pub const MAX_COST: f64 = 1e9;
/// Maximum nodes of a dispatcher. A ring has at most 255; without a ring there may be more.
const MAX_PLACES: usize = 1024;
/// Weight of the newest period in a node's demand.
const DEMAND_SMOOTHING: f64 = 0.5;
/// Demand, as a multiple of the least cost, below which it is 0: otherwise dispatchers whose demand decays would
/// keep parts of the bound.
const MIN_DEMAND: f64 = 1e-3;

/// Placement policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// On the owner of the key's slot or, if that node is full, on the owner of a re-hashed slot.
    FcHash,
    /// On the node with the lowest backlog relative to its share; idle nodes of about the same share
    /// take turns at random.
    FcProp,
    /// By one of the thesis' schedulers.
    Scheduled(Policy),
}

/// Settings of a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchSettings {
    /// Placement policy.
    pub placement: Placement,
    /// Maximum age of a snapshot of the shares before it counts as stale, in seconds.
    pub age_limit: f64,
    /// Time that a node missing from the snapshots keeps its share, in seconds.
    pub lease: f64,
    /// Share of a node's room that other nodes' keys may fill, 0..=1.
    pub spill: f64,
    /// Minimum cost of a request, in items.
    pub least_cost: f64,
    /// Update algorithm of the thesis' schedulers.
    pub news: NewsSettings,
}

/// One node in a snapshot of the shares.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShare {
    /// Name in the ring.
    pub name: String,
    /// Address at which the proxy reaches the node; empty if unknown.
    pub address: String,
    /// This dispatcher's share of the bound: the maximum cost in flight, in items.
    pub granted: f64,
    /// The node's bound for all dispatchers, in requests.
    pub bound_jobs: f64,
    /// Mean cost of its requests, in items.
    pub mean_cost: f64,
    /// Active requests in the node.
    pub jobs: f64,
    /// Load of the node: delay / target of the SLA, or its host's load.
    pub load: f64,
}

/// Report of a dispatcher on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// Name of the node.
    pub name: String,
    /// Recent demand for the node in items, including refused requests.
    pub demand: f64,
    /// Maximum cost in flight until the next snapshot: the present one or the share, whichever is larger.
    pub held: f64,
    /// Cumulative observation of its requests, in the form that agents parse.
    pub observation: String,
}

/// Cost that counts towards a node until [`Dispatcher::release`].
#[derive(Debug, PartialEq)]
#[must_use = "cost that is not released is counted forever"]
pub struct Held {
    place: usize,
    cost: f64,
}

impl Held {
    /// Place of the node in the dispatcher's list.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The cost, in items.
    pub fn cost(&self) -> f64 {
        self.cost
    }
}

/// Decision on a request.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// The request goes to this node.
    Placed(Held),
    /// No node has room for it.
    Full,
    /// The snapshot is stale, or no node is open: the proxy decides by itself.
    Unknown,
}

/// Cumulative counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounts {
    /// Requests placed, by class.
    pub admitted_by_class: [u64; Class::COUNT],
    /// Requests for which no node had room, by class.
    pub refused_by_class: [u64; Class::COUNT],
    /// Requests without a decision ([`Verdict::Unknown`]).
    pub undecided: u64,
    /// Temporary ejections of nodes that did not respond.
    pub ejections: u64,
}

impl DispatchCounts {
    /// Requests placed.
    pub fn admitted(&self) -> u64 {
        self.admitted_by_class.iter().sum()
    }

    /// Requests for which no node had room.
    pub fn refused(&self) -> u64 {
        self.refused_by_class.iter().sum()
    }
}

/// State of one dispatcher.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    settings: DispatchSettings,
    nodes: Vec<Node>,
    ring: Option<RingTable>,
    ring_names: Vec<String>,
    /// Place of each node of the ring, if the node is known.
    ring_places: Vec<Option<usize>>,
    scheduler: Option<Scheduler>,
    board: Board,
    dispatchers: usize,
    news_at: Option<f64>,
    /// Since when the shares have lapsed, if they have.
    lapsed_at: Option<f64>,
    /// Maximum bound of a node, in items.
    max_bound: f64,
    /// Demand in this period for each open node from requests that no node in particular refused, in items.
    wanted_of_each: f64,
    /// Whether there was a request of a lower class than the highest: before, nothing is to be left free.
    has_classes: bool,
    counts: DispatchCounts,
}

impl Dispatcher {
    /// Creates a dispatcher without nodes.
    pub fn new(settings: DispatchSettings) -> Self {
        Dispatcher {
            scheduler: scheduler_of(&settings),
            board: Board::new(settings.news),
            settings,
            nodes: Vec::new(),
            ring: None,
            ring_names: Vec::new(),
            ring_places: Vec::new(),
            dispatchers: 1,
            news_at: None,
            lapsed_at: None,
            max_bound: 0.0,
            wanted_of_each: 0.0,
            has_classes: false,
            counts: DispatchCounts::default(),
        }
    }

    /// Applies new settings; requests in flight stay counted.
    pub fn set(&mut self, settings: DispatchSettings) {
        if settings.placement != self.settings.placement {
            self.scheduler = scheduler_of(&settings);
        }
        self.settings = settings;
        // A new board shows the latest values at once.
        self.board = Board::new(settings.news);
        self.inform_scheduler(self.news_at.unwrap_or(0.0));
    }

    /// Applies the snapshot of a period: the live nodes and this dispatcher's share of each bound. A missing node keeps
    /// its share for a lease: Redis may have restarted empty, and the node's agent reports again in a moment.
    /// `dispatchers` includes this one. Returns whether more than a tenth of the shares is given up, so that the
    /// dispatcher should report before the period ends.
    pub fn on_shares(&mut self, now: f64, dispatchers: usize, shares: &[NodeShare]) -> bool {
        self.news_at = Some(now);
        self.lapsed_at = None;
        self.dispatchers = dispatchers.max(1);
        let (mut had, mut given_up) = (0.0, 0.0);
        for (likely, share) in shares.iter().enumerate() {
            if let Some(place) = self.place_for(&share.name, likely) {
                let node = &mut self.nodes[place];
                had += node.granted();
                given_up += (node.granted() - share.granted).max(0.0);
                node.take(share, now);
            }
        }
        self.max_bound = 0.0;
        for node in &mut self.nodes {
            node.expire(now, self.settings.lease);
            self.max_bound = self.max_bound.max(node.bound());
        }
        self.find_ring_places();
        self.inform_scheduler(now);
        given_up > GIVEN_UP * had
    }

    /// Sets the ring in force; `names` are by index, empty for a free index.
    pub fn on_ring(&mut self, ring: RingTable, names: Vec<String>) {
        self.ring = Some(ring);
        self.ring_names = names;
        self.find_ring_places();
    }

    /// Takes the room of all nodes away until the next snapshot, but for two seconds at most: others may have been
    /// granted the shares since `since`, when they were last in use. Shares that were stale then were not.
    pub fn lapse(&mut self, since: f64, now: f64) {
        if !self.is_stale(since) {
            self.lapsed_at.get_or_insert(now);
            self.nodes.iter_mut().for_each(Node::lapse);
        }
    }

    /// Readmits nodes whose ejection is over, and ends a lapse that has lasted too long. To be called several times a
    /// second.
    pub fn on_time(&mut self, now: f64) {
        for node in &mut self.nodes {
            node.on_time(now);
        }
        if self.lapsed_at.is_some_and(|at| now - at > MAX_LAPSE) {
            self.lapsed_at = None;
            self.nodes.iter_mut().for_each(Node::restore);
        }
    }

    /// Place of a node, which is added if unknown. Snapshots are usually in the same order, so `likely` is tried first.
    fn place_for(&mut self, name: &str, likely: usize) -> Option<usize> {
        if self
            .nodes
            .get(likely)
            .is_some_and(|node| node.name() == name)
        {
            return Some(likely);
        }
        if let Some(place) = self.nodes.iter().position(|node| node.name() == name) {
            return Some(place);
        }
        if self.nodes.len() < MAX_PLACES {
            self.nodes.push(Node::new(name));
            return Some(self.nodes.len() - 1);
        }
        let place = self.nodes.iter().position(Node::is_gone)?;
        self.nodes[place] = Node::new(name);
        Some(place)
    }

    fn find_ring_places(&mut self) {
        let nodes = &self.nodes;
        let place_of = |name: &String| nodes.iter().position(|node| node.name() == name);
        self.ring_places = self.ring_names.iter().map(place_of).collect();
    }

    fn inform_scheduler(&mut self, now: f64) {
        let Some(scheduler) = &mut self.scheduler else {
            return;
        };
        let known = self.nodes.iter().filter(|node| node.is_known());
        let largest = known.map(Node::bound_jobs).fold(0.0, f64::max);
        let news: Vec<NodeNews> = self.nodes.iter().map(|node| node.news(largest)).collect();
        if self.board.heard(now, &news) {
            scheduler.on_news(self.board.posted());
        }
    }

    /// Applies the number of requests or the load that a node's response stated, for
    /// [`UpdateAlgorithm::OnAccess`](crate::schedule::UpdateAlgorithm::OnAccess).
    pub fn accessed(&mut self, place: usize, now: f64, jobs: Option<f64>, load: Option<f64>) {
        if let Some(scheduler) = &mut self.scheduler
            && self.board.accessed(now, place, jobs, load)
        {
            scheduler.on_news(self.board.posted());
        }
    }

    /// Whether the last snapshot is older than the age limit, or there is none.
    pub fn is_stale(&self, now: f64) -> bool {
        let fresh = |at: f64| now - at <= self.settings.age_limit;
        !self.news_at.is_some_and(fresh)
    }

    /// Places a request. `hash` is that of its key ([`crate::ring::key_hash`]), `None` without a key; `cost` is its
    /// estimated cost in items. Where room is short, lower classes are refused first.
    pub fn admit(
        &mut self,
        now: f64,
        hash: Option<u32>,
        cost: f64,
        class: Class,
        random: &mut impl FnMut() -> u32,
    ) -> Verdict {
        let by_hash = self.settings.placement == Placement::FcHash;
        // Of a proxy that was stopped for long, the snapshot may be stale as well; it refuses until it has asked.
        let is_stale = self.is_stale(now) && self.lapsed_at.is_none();
        if is_stale || (by_hash && self.ring.is_none()) {
            self.counts.undecided += 1;
            return Verdict::Unknown;
        }
        let cost = self.counted(cost);
        self.has_classes |= class != Class::HIGHEST;
        let (place, asked) = match (hash, by_hash) {
            (Some(hash), true) => match self.by_ring(hash, cost, class) {
                // No node of the ring is open, but others may have room.
                (None, None) => {
                    let place = self.least_filled(cost, class, random());
                    (place, place)
                }
                found => found,
            },
            _ if self.scheduler.is_some() => self.by_scheduler(cost, class, random),
            _ => {
                let place = self.least_filled(cost, class, random());
                (place, place)
            }
        };
        let Some(place) = place.or_else(|| self.lender(cost, class, random)) else {
            return self.refuse(asked, class, cost);
        };
        let node = &mut self.nodes[asked.unwrap_or(place)];
        node.want(cost);
        if self.has_classes {
            node.admitted(class, cost);
        }
        self.counts.admitted_by_class[class.number()] += 1;
        Verdict::Placed(self.hold(place, cost))
    }

    fn counted(&self, cost: f64) -> f64 {
        // NaN also counts as the least cost.
        if cost >= self.settings.least_cost {
            cost.min(MAX_COST)
        } else {
            self.settings.least_cost
        }
    }

    fn refuse(&mut self, asked: Option<usize>, class: Class, cost: f64) -> Verdict {
        let open = self.nodes.iter().filter(|node| node.is_open()).count();
        if open == 0 {
            self.counts.undecided += 1;
            return Verdict::Unknown;
        }
        match asked {
            Some(place) => self.nodes[place].want(cost),
            // No node in particular was tried, so the shares of all are too small.
            None => self.wanted_of_each += (cost / open as f64).min(self.max_bound),
        }
        if self.has_classes {
            match asked {
                Some(place) => self.nodes[place].refused(class, cost, 1.0),
                None => {
                    for node in self.nodes.iter_mut().filter(|node| node.is_open()) {
                        node.refused(class, cost, 1.0 / open as f64);
                    }
                }
            }
        }
        self.counts.refused_by_class[class.number()] += 1;
        Verdict::Full
    }

    /// Moves a request's cost to the node that the attempt really goes to. An unknown node is not counted.
    pub fn attempt(
        &mut self,
        before: Option<Held>,
        place: Option<usize>,
        cost: f64,
    ) -> Option<Held> {
        match before {
            Some(before) if Some(before.place) == place => return Some(before),
            Some(before) => self.release(before),
            None => {}
        }
        let cost = self.counted(cost);
        place
            .filter(|place| *place < self.nodes.len())
            .map(|place| self.hold(place, cost))
    }

    fn hold(&mut self, place: usize, cost: f64) -> Held {
        self.nodes[place].hold(cost);
        Held { place, cost }
    }

    /// Returns the held cost.
    pub fn release(&mut self, held: Held) {
        self.nodes[held.place].release(held.cost);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.finished(held.place);
        }
    }

    /// Records a node's response after `delay` seconds; status 500 and above counts as a failure. `items` is the
    /// number the request touched, or its estimated cost.
    pub fn answered(&mut self, place: usize, delay: f64, status: u16, items: f64) {
        if let Some(node) = self.nodes.get_mut(place) {
            node.answered(delay, status, items);
        }
    }

    /// Records a client that left after `age` seconds without a response. This is no failure of the node, but a long
    /// wait shows that it is slow.
    pub fn left(&mut self, place: usize, age: f64) {
        if let Some(node) = self.nodes.get_mut(place) {
            node.left(age);
        }
    }

    /// Records an attempt without a response. It counts as failed and not as a delay, so that a node that never
    /// responds does not look fast. Several in a row eject the node for a while, unless it is the last open one.
    pub fn unanswered(&mut self, place: usize, now: f64) {
        self.eject(place, |node, may_go| node.unanswered(now, may_go));
    }

    /// The proxy sent an attempt elsewhere than to this node, which it takes for unhealthy. Nothing failed, but
    /// several in a row take the node out, as above: its share must not admit what others get.
    pub fn passed_over(&mut self, place: usize, now: f64) {
        self.eject(place, |node, may_go| node.passed_over(now, may_go));
    }

    fn eject(&mut self, place: usize, misses: impl Fn(&mut Node, bool) -> bool) {
        let may_go = self.nodes.iter().filter(|node| node.is_open()).count() > 1;
        let node = self.nodes.get_mut(place);
        self.counts.ejections += u64::from(node.is_some_and(|node| misses(node, may_go)));
    }
}

fn scheduler_of(settings: &DispatchSettings) -> Option<Scheduler> {
    match settings.placement {
        Placement::Scheduled(policy) => Some(Scheduler::new(policy, &[])),
        _ => None,
    }
}
