//! A cluster whose primaries are named: its state for all workers and configurations of the process.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use envoy_abi::{Answer, Configuration, StreamScheduler};
use envoy_policy::{
    config::PrimarySettings,
    primaries::{Outcome, Primaries},
    primary_link::PrimaryLink,
    statistics::{HandedOver, add, primaries_counted},
};

use crate::{
    metrics::Counters,
    registry::{Member, Registry},
    system::{locked, locked_if_free, now, process_name, seed},
    waking::{Configurations, Number, answered},
};

static PRIMARIES: Registry<PrimaryCluster> = Registry::new();

/// One worker's dispatcher behind a lock, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct PrimaryLane(Mutex<State>);

/// The state behind the lock of a [`PrimaryLane`].
#[derive(Debug)]
pub struct State {
    /// Decides on requests, and keeps track of those in flight at each node.
    pub primaries: Primaries,
    link: PrimaryLink,
    /// Waiting streams, until their filters have taken the outcome.
    waiting: HashMap<u32, Waiting>,
    /// The last number given to a stream.
    streams: u32,
}

#[derive(Debug)]
struct Waiting {
    scheduler: StreamScheduler,
    outcome: Option<Outcome>,
}

impl PrimaryLane {
    fn new(settings: PrimarySettings, name: String) -> Self {
        let seed = seed();
        PrimaryLane(Mutex::new(State {
            primaries: Primaries::new(settings, name, format!("{seed:x}")),
            link: PrimaryLink::new(seed),
            waiting: HashMap::new(),
            streams: 0,
        }))
    }

    /// Locks the state, to be held only briefly. Meanwhile nothing may be called in Envoy that can call back into the
    /// module.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl State {
    /// A number for a new stream, different from those of the worker's other streams; wraps around after 2³² streams.
    pub fn next_stream(&mut self) -> u32 {
        self.streams = self.streams.wrapping_add(1);
        self.streams
    }

    /// Registers a stream to be woken when its outcome is known.
    pub fn wait(&mut self, stream: u32, scheduler: StreamScheduler) {
        let outcome = None;
        self.waiting.insert(stream, Waiting { scheduler, outcome });
    }

    /// Takes the outcome of a waiting stream; `None` until it is known.
    pub fn outcome(&mut self, stream: u32) -> Option<Outcome> {
        self.waiting.get(&stream)?.outcome.as_ref()?;
        self.waiting.remove(&stream)?.outcome
    }

    /// Ends a stream. `is_through` is true if its node has answered or was never reached.
    pub fn ended(&mut self, stream: u32, is_through: bool) {
        // A stream that was still waiting for its outcome has reached no node.
        let is_through = self.waiting.remove(&stream).is_some() || is_through;
        self.primaries.ended(stream, now(), is_through);
    }

    fn deliver(&mut self) {
        for (stream, outcome) in self.primaries.again(now()) {
            if let Some(waiting) = self.waiting.get_mut(&stream) {
                waiting.outcome = Some(outcome);
                waiting.scheduler.wake();
            }
        }
    }
}

/// One cluster. It lives until the process ends, over all updates of its configurations.
#[derive(Debug)]
pub struct PrimaryCluster {
    name: String,
    lanes: Vec<PrimaryLane>,
    /// Held while agents are called, since Envoy may deliver an answer before the call returns.
    counts: Mutex<HandedOver>,
    /// The filter configurations that refer to this cluster.
    pub configurations: Configurations,
}

impl PrimaryCluster {
    /// The cluster with the name in `settings`; made if there is none. One that has configurations keeps its settings
    /// until the new configuration comes into force ([`PrimaryCluster::set`]).
    ///
    /// # Errors
    ///
    /// If the process has as many clusters as it may have.
    pub fn of(settings: &PrimarySettings, workers: usize) -> Result<&'static Self, String> {
        let Some(cluster) = PRIMARIES.named(&settings.cluster) else {
            return PRIMARIES.add(|number| PrimaryCluster::new(settings, number, workers));
        };
        if cluster.configurations.is_empty() {
            cluster.set(settings);
        }
        Ok(cluster)
    }

    /// Puts settings into force; requests in flight and waiting ones stay.
    pub fn set(&self, settings: &PrimarySettings) {
        for lane in &self.lanes {
            lane.lock().primaries.set(settings.clone());
        }
    }

    fn new(settings: &PrimarySettings, number: u32, workers: usize) -> Self {
        let process = process_name(settings.proxy.as_deref());
        let lane = |worker| {
            let name = format!("{process}/{worker}.{number}");
            PrimaryLane::new(settings.clone(), name)
        };
        PrimaryCluster {
            name: settings.cluster.clone(),
            lanes: (0..workers).map(lane).collect(),
            counts: Mutex::default(),
            configurations: Configurations::default(),
        }
    }

    /// The lane of a worker; `None` if there is no worker with this number.
    pub fn lane(&self, worker: usize) -> Option<&PrimaryLane> {
        self.lanes.get(worker)
    }

    /// Takes an agent's answer to a call made by [`PrimaryCluster::exchange`].
    pub fn on_answer(
        &self,
        configuration: &Configuration,
        number: Number,
        token: u64,
        answer: Answer,
    ) {
        self.configurations.put(token, answer);
        // If the lock is held, the answered call has not returned yet; its caller takes the answer afterwards.
        if let Some(_counts) = locked_if_free(&self.counts) {
            self.take_answers();
            // The answer may have made a report due at once.
            self.tell(configuration, number);
        }
    }

    /// Makes the calls that are due, wakes waiting streams whose outcome is known, and adds the counts to Envoy's
    /// statistics. Runs several times a second on the main thread.
    pub fn exchange(&self, configuration: &Configuration, number: Number, counters: &Counters) {
        let mut handed_over = locked(&self.counts);
        self.tell(configuration, number);
        let mut counts = [0; 4];
        for lane in &self.lanes {
            let state = &mut *lane.lock();
            state.deliver();
            add(&mut counts, primaries_counted(state.primaries.counts()));
        }
        counters.count(configuration, handed_over.more(counts));
    }

    /// Makes the calls that are due, and takes the answers that have come. The caller holds the lock of `counts`.
    fn tell(&self, configuration: &Configuration, number: Number) {
        let now = now();
        for lane in &self.lanes {
            let due = {
                let State {
                    primaries, link, ..
                } = &mut *lane.lock();
                let request = link.ask(primaries, now);
                let settings = primaries.settings();
                request.map(|request| (request, settings.agents.clone(), settings.token.clone()))
            };
            if let Some((request, agents, token)) = due {
                // No lane is locked here, since Envoy may deliver the answer before the call returns.
                let called = number.ask(configuration, (&agents, token.as_deref()), &request);
                lane.lock().link.called(&request, called, now);
            }
        }
        self.take_answers();
    }

    fn take_answers(&self) {
        for (token, answer) in self.configurations.answers() {
            for lane in &self.lanes {
                let state = &mut *lane.lock();
                let State {
                    primaries, link, ..
                } = state;
                if link.on_answer(primaries, token, answered(&answer), now()) {
                    state.deliver();
                    break;
                }
            }
        }
    }
}

impl Member for PrimaryCluster {
    fn name(&self) -> &str {
        &self.name
    }

    fn tick(&self) {
        self.configurations.wake();
    }
}
