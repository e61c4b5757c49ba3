//! The clock: what happens next.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Whole nanoseconds since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// The nearest nanosecond; never before the start.
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

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A client sends its next request, or an open stream its next one.
    Send(u32),
    /// A request comes to its proxy, again after a refused connection or a back-off.
    Arrive(u32),
    /// The job of a node that is to finish next does, unless the node has changed its mind since.
    Finish { node: u32, version: u32 },
    /// A request's client gives up waiting. The slot may be another's by then.
    GiveUp { request: u32, turn: u32 },
    /// A node's answer other than by finishing work.
    Fail { request: u32, turn: u32 },
    /// An agent ends its sampling period.
    Period(u32),
    /// It looks whether it should at once.
    Look(u32),
    /// A proxy exchanges news.
    Exchange(u32),
    /// A change that the scenario names.
    Change(u32),
    /// All proxies learn of a node's health.
    Health { node: u32, up: bool },
}

/// Events in order; those of one moment in the order in which they were put in.
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
