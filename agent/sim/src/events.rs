//! The event queue and its clock.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Whole nanoseconds since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// Rounds to the nearest nanosecond; negative times become 0.
    pub fn seconds(seconds: f64) -> Self {
        Time((seconds.max(0.0) * 1e9).round() as u64)
    }

    pub fn get(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn after(self, seconds: f64) -> Self {
        Time(self.0.saturating_add(Time::seconds(seconds).0))
    }
}

/// Event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A client sends its next request, or an open stream its next one.
    Send(u32),
    /// A request arrives at its proxy, again after a refused connection or a backoff.
    Arrive(u32),
    /// The next job of a node finishes, unless the node has rescheduled it since.
    Finish { node: u32, version: u32 },
    /// A request's client times out. The slot may belong to another request by then.
    GiveUp { request: u32, turn: u32 },
    /// A node fails a request.
    Fail { request: u32, turn: u32 },
    /// An agent ends its sampling period.
    Period(u32),
    /// An agent checks whether to end its period early.
    Look(u32),
    /// A proxy exchanges snapshots and reports.
    Exchange(u32),
    /// A change of the scenario.
    Change(u32),
    /// All proxies learn of a node's health.
    Health { node: u32, up: bool },
}

/// Events by time; those at one time in the order of insertion.
#[derive(Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    put: u64,
}

impl Events {
    pub fn put(&mut self, at: Time, event: Event) {
        self.put += 1;
        self.heap.push(Reverse((at, self.put, event)));
    }

    pub fn next(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
