//! What one dispatcher (a worker of a proxy) knows and decides about its requests.
//!
//! Each dispatcher has its own share of every node's bound, so that it admits and places by what it
//! knows itself. `lua/plimsoll/dispatcher.lua` is the same for HAProxy; `vectors/dispatch.json` pins
//! that both decide alike.

mod costs;
mod node;
mod observed;
mod report;

use crate::{
    ring::RingTable,
    schedule::{Board, NewsSettings, NodeNews, Policy, Scheduler},
};

pub use costs::Costs;
use node::Node;
pub use observed::Observed;

/// Shares that fall by more than this part are told of at once: others wait for what is given up.
const GIVEN_UP: f64 = 0.1;

/// The dearest a request may be, whoever says so.
pub const MAX_COST: f64 = 1e9;
/// Places a dispatcher has at most; a ring has 255 nodes, those without a ring may be more.
const MAX_PLACES: usize = 1024;
/// Weight of the newest period in a node's demand.
const DEMAND_SMOOTHING: f64 = 0.5;
/// In least costs. Less is none: dispatchers whose demand dies away each in its own time would never have
/// the whole bound between them.
const MIN_DEMAND: f64 = 1e-3;

/// How requests are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// On the owner of the key's slot; where that is full, on the owner of a re-hashed one.
    FcHash,
    /// On the node that is filled least, as part of its share.
    FcProp,
    /// By one of the thesis' schedulers.
    Scheduled(Policy),
}

/// A dispatcher's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchSettings {
    /// How requests are placed.
    pub placement: Placement,
    /// News older than this, in seconds, is not acted on.
    pub age_limit: f64,
    /// A node missing from the news keeps its share this long, in seconds.
    pub lease: f64,
    /// How full a node may get with keys that are not its own, 0..=1.
    pub spill: f64,
    /// No request counts less.
    pub least_cost: f64,
    /// How the thesis' schedulers learn of load.
    pub news: NewsSettings,
}

/// News of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShare {
    /// Its name in the ring.
    pub name: String,
    /// Where the proxy reaches it; empty where that is not known.
    pub address: String,
    /// Cost that this dispatcher may have in flight there.
    pub granted: f64,
    /// Its bound in requests, for all dispatchers.
    pub bound_jobs: f64,
    /// Mean cost of its requests.
    pub mean_cost: f64,
    /// Its active requests.
    pub jobs: f64,
    /// Its load: delay over the SLA's target, or its host's.
    pub load: f64,
}

/// What a dispatcher says of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Cost that was wanted there lately, refused work included.
    pub demand: f64,
    /// Cost that may be in flight there until the next shares are heard: what is, or the whole share.
    pub held: f64,
    /// What its requests showed since the start, as agents read it.
    pub observation: String,
}

/// Cost that is counted at a node until it is given back by [`Dispatcher::release`].
#[derive(Debug, PartialEq)]
#[must_use = "what is not released is counted for ever"]
pub struct Held {
    place: usize,
    cost: f64,
}

impl Held {
    /// The node's place.
    pub fn place(&self) -> usize {
        self.place
    }

    /// What is held.
    pub fn cost(&self) -> f64 {
        self.cost
    }
}

/// What is to become of a request.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// It goes to this node.
    Placed(Held),
    /// No node may carry it.
    Full,
    /// There is no fresh news: the proxy decides by itself.
    Unknown,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounts {
    /// Requests placed.
    pub admitted: u64,
    /// Requests for which no node had room.
    pub refused: u64,
    /// Requests that came while there was no fresh news.
    pub undecided: u64,
    /// Nodes taken out for a while since they did not answer.
    pub ejections: u64,
}

/// One dispatcher's state.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    settings: DispatchSettings,
    nodes: Vec<Node>,
    ring: Option<RingTable>,
    ring_names: Vec<String>,
    /// Place of each of the ring's nodes.
    ring_places: Vec<Option<usize>>,
    scheduler: Option<Scheduler>,
    board: Board,
    dispatchers: usize,
    news_at: Option<f64>,
    /// The largest bound of a node.
    max_bound: f64,
    /// What was wanted of each open node in this period and of none in particular.
    wanted_of_each: f64,
    counts: DispatchCounts,
}

impl Dispatcher {
    /// One that knows nothing yet.
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
            max_bound: 0.0,
            wanted_of_each: 0.0,
            counts: DispatchCounts::default(),
        }
    }

    /// Takes other settings over; what is in flight stays counted.
    pub fn set(&mut self, settings: DispatchSettings) {
        if settings.placement != self.settings.placement {
            self.scheduler = scheduler_of(&settings);
        }
        self.settings = settings;
        // A new board is told of at once.
        self.board = Board::new(settings.news);
        self.inform_scheduler(self.news_at.unwrap_or(0.0));
    }

    /// News of a period: which nodes live, and what of each bound this dispatcher may use. A node that
    /// is missing keeps its share for a lease: Redis may have come back empty, and its agent reports in
    /// a moment. `dispatchers` counts this one. Returns whether so much is given up that it should be
    /// told of before the period is over.
    pub fn on_shares(&mut self, now: f64, dispatchers: usize, shares: &[NodeShare]) -> bool {
        self.news_at = Some(now);
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

    /// The ring in force; `names` by index, empty where an index is free.
    pub fn on_ring(&mut self, ring: RingTable, names: Vec<String>) {
        self.ring = Some(ring);
        self.ring_names = names;
        self.find_ring_places();
    }

    /// Lets nodes back in that were taken out for a while. To be called several times a second.
    pub fn on_time(&mut self, now: f64) {
        for node in &mut self.nodes {
            node.on_time(now);
        }
    }

    /// News comes in the same order each time, as a rule.
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

    /// A node's answer told how many requests it has, or its load, each as its agent would: for
    /// [`UpdateAlgorithm::OnAccess`](crate::schedule::UpdateAlgorithm::OnAccess).
    pub fn accessed(&mut self, place: usize, now: f64, jobs: Option<f64>, load: Option<f64>) {
        if let Some(scheduler) = &mut self.scheduler
            && self.board.accessed(now, place, jobs, load)
        {
            scheduler.on_news(self.board.posted());
        }
    }

    /// Whether what is known is too old to act on.
    pub fn is_stale(&self, now: f64) -> bool {
        let fresh = |at: f64| now - at <= self.settings.age_limit;
        !self.news_at.is_some_and(fresh)
    }

    /// Places a request. `hash` is its key's ([`crate::ring::key_hash`]), `None` where it has no key;
    /// `cost` the items it is thought to touch.
    pub fn admit(
        &mut self,
        now: f64,
        hash: Option<u32>,
        cost: f64,
        random: &mut impl FnMut() -> u32,
    ) -> Verdict {
        let by_hash = self.settings.placement == Placement::FcHash;
        if self.is_stale(now) || (by_hash && self.ring.is_none()) {
            self.counts.undecided += 1;
            return Verdict::Unknown;
        }
        let cost = self.counted(cost);
        let (place, asked) = match (hash, by_hash) {
            (Some(hash), true) => match self.by_ring(hash, cost) {
                // A ring of which no node is open says nothing of where there is room.
                (None, None) => {
                    let place = self.least_filled(cost);
                    (place, place)
                }
                found => found,
            },
            _ if self.scheduler.is_some() => self.by_scheduler(cost, random),
            _ => {
                let place = self.least_filled(cost);
                (place, place)
            }
        };
        let Some(place) = place else {
            return self.refuse(asked, cost);
        };
        self.nodes[asked.unwrap_or(place)].want(cost);
        self.counts.admitted += 1;
        Verdict::Placed(self.hold(place, cost))
    }

    fn counted(&self, cost: f64) -> f64 {
        // Also where it is no number.
        if cost >= self.settings.least_cost {
            cost.min(MAX_COST)
        } else {
            self.settings.least_cost
        }
    }

    /// Where it goes, and which node was asked first.
    fn by_ring(&self, hash: u32, cost: f64) -> (Option<usize>, Option<usize>) {
        let mut asked = None;
        let Some(ring) = &self.ring else {
            return (None, None);
        };
        for (tried, owner) in ring.candidates(hash).enumerate() {
            let place = self.ring_places.get(usize::from(owner)).copied().flatten();
            let Some(place) = place.filter(|place| self.nodes[*place].is_open()) else {
                continue;
            };
            asked = asked.or(Some(place));
            // The last part of a node's room is for its own keys: else, when all are full, every request
            // that ends makes room for any key, and caches hold nothing for long.
            let part = if tried == 0 { 1.0 } else { self.settings.spill };
            if self.nodes[place].takes(cost, part) {
                return (Some(place), asked);
            }
        }
        (None, asked)
    }

    fn by_scheduler(
        &mut self,
        cost: f64,
        random: &mut impl FnMut() -> u32,
    ) -> (Option<usize>, Option<usize>) {
        let mut asked = None;
        for _ in 0..2 * self.nodes.len() {
            let scheduler = self.scheduler.as_mut();
            let Some(place) = scheduler.and_then(|s| s.next_among(self.dispatchers, random)) else {
                break;
            };
            asked = asked.or(Some(place));
            if self.nodes[place].takes(cost, 1.0) {
                return (Some(place), asked);
            }
        }
        let place = self.least_filled(cost);
        (place, asked.or(place))
    }

    /// The node that is filled least, of those that take the cost.
    fn least_filled(&self, cost: f64) -> Option<usize> {
        let (mut best, mut least) = (None, f64::INFINITY);
        for (place, node) in self.nodes.iter().enumerate() {
            if node.takes(cost, 1.0) {
                let filled = node.filled(cost);
                if best.is_none() || filled < least {
                    (best, least) = (Some(place), filled);
                }
            }
        }
        best
    }

    fn refuse(&mut self, asked: Option<usize>, cost: f64) -> Verdict {
        let open = self.nodes.iter().filter(|node| node.is_open()).count();
        if open == 0 {
            self.counts.undecided += 1;
            return Verdict::Unknown;
        }
        match asked {
            Some(place) => self.nodes[place].want(cost),
            // Nobody in particular was asked, so everybody's share is too small.
            None => self.wanted_of_each += (cost / open as f64).min(self.max_bound),
        }
        self.counts.refused += 1;
        Verdict::Full
    }

    /// Other nodes that a retry of a placed request may go to, best first: those with room, then those
    /// that are full, since who retries does so anyway.
    pub fn alternatives(&self, held: &Held, count: usize) -> Vec<usize> {
        let mut others = Vec::new();
        while others.len() < count {
            let nodes = self.nodes.iter().enumerate();
            let open = nodes.filter(|(place, node)| {
                node.is_open() && *place != held.place && !others.contains(place)
            });
            let is_full = |node: &Node| !node.takes(held.cost, 1.0);
            let best = open.min_by(|(_, a), (_, b)| {
                let by_fill = || a.filled(held.cost).total_cmp(&b.filled(held.cost));
                is_full(a).cmp(&is_full(b)).then_with(by_fill)
            });
            let Some((place, _)) = best else {
                break;
            };
            others.push(place);
        }
        others
    }

    /// An attempt goes to a node, wherever it was meant to: its cost moves there. A node that is not
    /// known is not counted.
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

    /// Gives back what was held.
    pub fn release(&mut self, held: Held) {
        self.nodes[held.place].release(held.cost);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.finished(held.place);
        }
    }

    /// A node answered after `delay` seconds; from status 500 on that is its failure. `items` is what the
    /// request really touched, or what it was counted as.
    pub fn answered(&mut self, place: usize, delay: f64, status: u16, items: f64) {
        if let Some(node) = self.nodes.get_mut(place) {
            node.answered(delay, status, items);
        }
    }

    /// A client left after `age` seconds and had no answer, which is no failure of the node's; but one who
    /// waited for long shows that it is slow.
    pub fn left(&mut self, place: usize, age: f64) {
        if let Some(node) = self.nodes.get_mut(place) {
            node.left(age);
        }
    }

    /// A node gave an attempt no answer: it says nothing of delay but counts as failed, so that a node that
    /// never answers is not thought fast. Several in a row take the node out for a while, unless it is the
    /// last.
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
