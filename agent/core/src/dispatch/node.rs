//! One node as a dispatcher sees it.

use crate::schedule::NodeNews;

use super::{
    Class, DEMAND_SMOOTHING, MIN_DEMAND, NodeReport, NodeShare,
    class::Reserves,
    observed::{Decisions, Observed},
};

/// Consecutive attempts without a response after which a node is ejected.
const FAILURES: u32 = 5;
/// Duration of the first ejection, in seconds; doubled each time until the node responds.
const FIRST_EJECTION: f64 = 1.0;
/// Maximum duration of an ejection, in seconds.
const MAX_EJECTION: f64 = 30.0;

/// Maximum cost in flight beyond a share, as a multiple of the cost of the request of the highest class that asks for
/// it; nor is it more than the share and one request. It bridges the moments in which more of them arrive than a few
/// places hold.
const MAX_OVERDRAFT: f64 = 2.0;

/// Fields that every placement reads of every node, in one cache line; the others are boxed.
#[derive(Clone, Debug)]
pub(super) struct Node {
    known: bool,
    /// Maximum cost in flight, in items: the share, or 0 if it has lapsed.
    room: f64,
    bound_jobs: f64,
    in_flight: f64,
    requests: u64,
    ejected_until: Option<f64>,
    rest: Box<Rest>,
}

#[derive(Clone, Debug)]
struct Rest {
    name: String,
    address: String,
    seen_at: f64,
    granted: f64,
    jobs: f64,
    load: f64,
    failures: u32,
    ejection: f64,
    demand: f64,
    wanted: f64,
    bound: f64,
    reserves: Reserves,
    observed: Observed,
}

impl Node {
    pub(super) fn new(name: &str) -> Self {
        Node {
            known: false,
            room: 0.0,
            bound_jobs: 0.0,
            in_flight: 0.0,
            requests: 0,
            ejected_until: None,
            rest: Box::new(Rest {
                name: name.to_owned(),
                address: String::new(),
                seen_at: 0.0,
                granted: 0.0,
                jobs: 0.0,
                load: 0.0,
                failures: 0,
                ejection: FIRST_EJECTION,
                demand: 0.0,
                wanted: 0.0,
                bound: 0.0,
                reserves: Reserves::default(),
                observed: Observed::default(),
            }),
        }
    }

    pub(super) fn take(&mut self, share: &NodeShare, now: f64) {
        self.known = true;
        self.rest.seen_at = now;
        self.rest.granted = share.granted;
        self.room = share.granted;
        self.bound_jobs = share.bound_jobs;
        self.rest.jobs = share.jobs;
        self.rest.load = share.load;
        self.rest.bound = share.bound_jobs * share.mean_cost;
        if self.rest.address != share.address {
            self.rest.address.clone_from(&share.address);
        }
    }

    pub(super) fn expire(&mut self, now: f64, lease: f64) {
        if self.known && now - self.rest.seen_at > lease {
            self.known = false;
        }
    }

    pub(super) fn lapse(&mut self) {
        self.room = 0.0;
    }

    pub(super) fn restore(&mut self) {
        self.room = self.rest.granted;
    }

    pub(super) fn on_time(&mut self, now: f64) {
        if self.ejected_until.is_some_and(|until| now >= until) {
            // One more failure ejects it again.
            self.ejected_until = None;
            self.rest.failures = FAILURES - 1;
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.rest.name
    }

    pub(super) fn address(&self) -> &str {
        &self.rest.address
    }

    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    pub(super) fn is_open(&self) -> bool {
        // A bound of 0 means that the node is down or drained.
        self.known && self.bound_jobs > 0.0 && self.ejected_until.is_none()
    }

    pub(super) fn is_gone(&self) -> bool {
        !self.known && self.requests == 0
    }

    /// Share in the last snapshot, in items; 0 if the node is not in the snapshots.
    pub(super) fn granted(&self) -> f64 {
        if self.known { self.rest.granted } else { 0.0 }
    }

    pub(super) fn bound_jobs(&self) -> f64 {
        self.bound_jobs
    }

    /// Whether the node has room for the cost within this part of its share, less what the class leaves free for higher
    /// ones. A request larger than that is admitted alone, or it would never run, unless its class leaves free more than
    /// half of what the request needs.
    pub(super) fn takes(&self, cost: f64, class: Class, part: f64) -> bool {
        // What is boxed is not read for the highest class, which leaves nothing free.
        let reserve = if class == Class::HIGHEST {
            0.0
        } else {
            self.rest.reserves.of(class)
        };
        let is_alone = self.requests == 0 && reserve <= 0.5 * self.room.max(cost);
        self.is_open() && (self.in_flight + cost <= self.room * part - reserve || is_alone)
    }

    /// Whether the node takes a request of the highest class beyond its share.
    pub(super) fn lends(&self, cost: f64) -> bool {
        let overdraft = (self.room + cost).min(MAX_OVERDRAFT * cost);
        let has_share = self.is_open() && self.room > 0.0;
        has_share && self.in_flight + cost <= self.room.max(cost) + overdraft
    }

    pub(super) fn filled(&self, cost: f64) -> f64 {
        (self.in_flight + cost) / self.room.max(1e-9)
    }

    pub(super) fn news(&self, largest: f64) -> NodeNews {
        let live = self.is_open() && self.rest.granted > 0.0;
        // A live node keeps a weight of at least 1.
        let weight = (100.0 * self.bound_jobs / largest + 0.5).floor().max(1.0);
        NodeNews {
            weight: if live { weight as u32 } else { 0 },
            jobs: self.rest.jobs,
            load: self.rest.load,
        }
    }

    pub(super) fn hold(&mut self, cost: f64) {
        self.in_flight += cost;
        self.requests += 1;
    }

    pub(super) fn release(&mut self, cost: f64) {
        self.requests = self.requests.saturating_sub(1);
        // Sums of fractions drift, but an empty node has nothing in flight.
        self.in_flight = if self.requests == 0 {
            0.0
        } else {
            self.in_flight - cost
        };
    }

    pub(super) fn answered(&mut self, delay: f64, status: u16, items: f64) {
        self.rest.failures = 0;
        self.rest.ejection = FIRST_EJECTION;
        if status >= 500 {
            self.rest.observed.failed();
        } else {
            self.rest.observed.answered(delay, items);
        }
    }

    pub(super) fn left(&mut self, age: f64) {
        self.rest.observed.left(age);
    }

    /// Records an attempt without a response. Returns whether it ejects the node, which `may_go` allows.
    pub(super) fn unanswered(&mut self, now: f64, may_go: bool) -> bool {
        self.rest.observed.failed();
        self.passed_over(now, may_go)
    }

    /// Whether that takes it out.
    pub(super) fn passed_over(&mut self, now: f64, may_go: bool) -> bool {
        self.rest.failures = self.rest.failures.saturating_add(1);
        if self.rest.failures < FAILURES || self.ejected_until.is_some() || !may_go {
            return false;
        }
        self.ejected_until = Some(now + self.rest.ejection);
        self.rest.ejection = (2.0 * self.rest.ejection).min(MAX_EJECTION);
        true
    }

    pub(super) fn usage(&self) -> (&str, &str, f64, u64) {
        (
            &self.rest.name,
            &self.rest.address,
            self.in_flight,
            self.requests,
        )
    }

    /// Records a request that was placed after this node was asked first.
    pub(super) fn admitted(&mut self, class: Class, cost: f64) {
        self.rest.reserves.admitted(class, cost);
    }

    /// Records that a request of the highest class found every share full.
    pub(super) fn needed(&mut self) {
        self.rest.reserves.needed(Class::HIGHEST);
    }

    /// Records a request that was refused after this node was asked first, or its `part` of one that all refused.
    pub(super) fn refused(&mut self, class: Class, cost: f64, part: f64) {
        let room = self.room.max(cost);
        self.rest.reserves.refused(class, cost, part, room);
    }

    /// Adds to the period's demand. Refused requests count too, but each for no more than the bound.
    pub(super) fn want(&mut self, cost: f64) {
        self.rest.wanted += cost.min(self.rest.bound);
    }

    /// The node's bound for all dispatchers, in items; 0 if unknown.
    pub(super) fn bound(&self) -> f64 {
        if self.known { self.rest.bound } else { 0.0 }
    }

    /// Ends a period. `more` is the node's part of the demand for no node in particular.
    pub(super) fn end_period(&mut self, more: f64, least_cost: f64) {
        self.rest.demand += DEMAND_SMOOTHING * (self.rest.wanted + more - self.rest.demand);
        if self.rest.demand < MIN_DEMAND * least_cost {
            self.rest.demand = 0.0;
        }
        self.rest.wanted = 0.0;
        self.rest.reserves.end_period(least_cost);
    }

    pub(super) fn report(&self, decisions: Decisions) -> NodeReport {
        NodeReport {
            name: self.rest.name.clone(),
            demand: self.rest.demand,
            held: self.in_flight.max(self.granted()),
            observation: self.rest.observed.with(decisions, self.requests).text(),
        }
    }
}
