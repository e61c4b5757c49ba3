//! Measurements of a run.

use crate::scenario::UpdateLoad;

/// Sums of one second, by time of completion; `offered` by time of sending.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// Requested items.
    pub offered: f64,
    /// Items of responses.
    pub total: f64,
    /// Items of responses within the SLA.
    pub timely: f64,
    /// Responses.
    pub answers: u64,
    /// Sum of the responses' delays, in seconds.
    pub delays: f64,
    /// Refused requests.
    pub refused: u64,
    /// Failed requests.
    pub errors: u64,
    /// Capacity of all nodes, in items/s.
    pub capacity: f64,
    /// Sum of all bounds, in items.
    pub bounds: f64,
    /// Updates/s of temporal data, by all nodes.
    pub updates: f64,
    /// Mean age of temporal data when they are read, seconds.
    pub age: f64,
    /// The longest period between two updates of an item, seconds.
    pub longest: f64,
}

/// One run of one policy on one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the policy.
    pub policy: String,
    /// Sums by second.
    pub seconds: Vec<Second>,
    /// Delays of the responses to requests of the measured time, in seconds.
    pub delays: Vec<f32>,
    /// Requests of the measured time.
    pub sent: u64,
    /// Refused ones of these.
    pub refused: u64,
    /// Failed ones of these.
    pub errors: u64,
    /// Items answered by each node in the measured time.
    pub node_items: Vec<f64>,
    /// Requests whose key was cached, and all requests.
    pub cache: (u64, u64),
    /// Slots that changed owner, or object sets that changed their primary.
    pub slots_moved: u64,
    /// Transactions that began at a node while others of their object set ran at another node.
    pub two_primaries: u64,
}

/// Collects the measurements.
pub struct Recorder {
    sla: f64,
    from: f64,
    outcome: Outcome,
}

impl Recorder {
    pub fn new(policy: &str, sla: f64, from: f64, length: f64, nodes: usize) -> Self {
        Recorder {
            sla,
            from,
            outcome: Outcome {
                policy: policy.to_owned(),
                seconds: vec![Second::default(); length.ceil() as usize],
                delays: Vec::new(),
                sent: 0,
                refused: 0,
                errors: 0,
                node_items: vec![0.0; nodes],
                cache: (0, 0),
                slots_moved: 0,
                two_primaries: 0,
            },
        }
    }

    fn second(&mut self, at: f64) -> Option<&mut Second> {
        self.outcome.seconds.get_mut(at as usize)
    }

    pub fn sent(&mut self, at: f64, items: f64) {
        if let Some(second) = self.second(at) {
            second.offered += items;
        }
        self.outcome.sent += u64::from(at >= self.from);
    }

    /// Counts a response; `delay` determines whether it is timely, `sent` and `now` the seconds that it counts in.
    pub fn answered(&mut self, now: f64, sent: f64, delay: f64, items: f64, node: usize) {
        let timely = delay <= self.sla;
        if let Some(second) = self.second(now) {
            second.total += items;
            second.timely += if timely { items } else { 0.0 };
            second.answers += 1;
            second.delays += delay;
        }
        if sent >= self.from {
            self.outcome.delays.push(delay as f32);
        }
        if now >= self.from {
            self.outcome.node_items[node] += items;
        }
    }

    pub fn refused(&mut self, now: f64, sent: f64) {
        if let Some(second) = self.second(now) {
            second.refused += 1;
        }
        self.outcome.refused += u64::from(sent >= self.from);
    }

    pub fn failed(&mut self, now: f64, sent: f64) {
        if let Some(second) = self.second(now) {
            second.errors += 1;
        }
        self.outcome.errors += u64::from(sent >= self.from);
    }

    pub fn two_primaries(&mut self) {
        self.outcome.two_primaries += 1;
    }

    /// Records the nodes' capacity and bounds at the start of a second.
    pub fn nodes(&mut self, at: f64, capacity: f64, bounds: f64) {
        if let Some(second) = self.second(at) {
            second.capacity = capacity;
            second.bounds = bounds;
        }
    }

    /// Records the nodes' updates, likewise.
    pub fn updates(&mut self, at: f64, loads: impl Iterator<Item = UpdateLoad>) {
        let Some(second) = self.second(at) else {
            return;
        };
        let mut nodes: f64 = 0.0;
        for load in loads {
            nodes += 1.0;
            second.updates += load.per_second;
            second.age += load.age;
            second.longest = second.longest.max(load.longest);
        }
        second.age /= nodes.max(1.0);
    }

    pub fn done(mut self, cache: (u64, u64), slots_moved: u64) -> Outcome {
        self.outcome.cache = cache;
        self.outcome.slots_moved = slots_moved;
        self.outcome
    }
}
