//! One cluster whose primaries are named, over all workers and configurations of a process.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use envoy_abi::{Answer, Configuration, StreamScheduler};
use envoy_policy::{
    config::PrimarySettings,
    primaries::{Outcome, Primaries},
    primary_link::PrimaryLink,
    statistics::{HandedOver, primaries_counted},
};

use crate::{
    metrics::Counters,
    registry::{Member, Registry},
    system::{locked, locked_if_free, now, process_name, seed},
    waking::{Configurations, Number, answered},
};

static PRIMARIES: Registry<PrimaryCluster> = Registry::new();

/// One worker's dispatcher, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct PrimaryLane(Mutex<State>);

/// See [`PrimaryLane`].
#[derive(Debug)]
pub struct State {
    /// Decides, and knows what is at which node.
    pub primaries: Primaries,
    link: PrimaryLink,
    /// Requests that wait, until their worker has heard what becomes of them.
    waiting: HashMap<u32, Waiting>,
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

    /// To itself, for a moment: Envoy must not be asked for anything that calls back.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl State {
    /// A number for a stream; those of the worker that are under way have others.
    pub fn next_stream(&mut self) -> u32 {
        self.streams = self.streams.wrapping_add(1);
        self.streams
    }

    /// A stream is to be woken when its outcome is known.
    pub fn wait(&mut self, stream: u32, scheduler: StreamScheduler) {
        let outcome = None;
        self.waiting.insert(stream, Waiting { scheduler, outcome });
    }

    /// What becomes of a stream that waits; none where that is not known yet.
    pub fn outcome(&mut self, stream: u32) -> Option<Outcome> {
        self.waiting.get(&stream)?.outcome.as_ref()?;
        self.waiting.remove(&stream)?.outcome
    }

    /// A stream ended; `is_through`: its node has answered, or was never reached.
    pub fn ended(&mut self, stream: u32, is_through: bool) {
        // One that never heard where to go has reached no node.
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

/// See the module.
#[derive(Debug)]
pub struct PrimaryCluster {
    name: String,
    lanes: Vec<PrimaryLane>,
    /// Held while agents are called, which Envoy may answer before it returns.
    counts: Mutex<HandedOver>,
    /// Its configurations.
    pub configurations: Configurations,
}

impl PrimaryCluster {
    /// The cluster of these settings, which may be known already. Where it has configurations, it keeps theirs for now.
    pub fn of(settings: &PrimarySettings, workers: usize) -> Result<&'static Self, String> {
        let Some(cluster) = PRIMARIES.named(&settings.cluster) else {
            return PRIMARIES.add(|number| PrimaryCluster::new(settings, number, workers));
        };
        if cluster.configurations.is_empty() {
            cluster.set(settings);
        }
        Ok(cluster)
    }

    /// Takes other settings over; what is under way stays.
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

    /// What a worker has of it; none where that is no worker.
    pub fn lane(&self, worker: usize) -> Option<&PrimaryLane> {
        self.lanes.get(worker)
    }

    /// An agent's answer to a call of [`PrimaryCluster::exchange`].
    pub fn on_answer(
        &self,
        configuration: &Configuration,
        number: Number,
        token: u64,
        answer: Answer,
    ) {
        self.configurations.put(token, answer);
        // Otherwise the call that is answered has not returned yet, and whoever makes it looks at the answer.
        if let Some(_counts) = locked_if_free(&self.counts) {
            self.take_answers();
            // What has to be told at once is.
            self.tell(configuration, number);
        }
    }

    /// Several times a second, on the main thread: makes the calls that are due, lets go of those that waited, and hands
    /// over what was counted.
    pub fn exchange(&self, configuration: &Configuration, number: Number, counters: &Counters) {
        let mut handed_over = locked(&self.counts);
        self.tell(configuration, number);
        let mut counts = [0; 4];
        for lane in &self.lanes {
            let state = &mut *lane.lock();
            state.deliver();
            for (sum, count) in counts
                .iter_mut()
                .zip(primaries_counted(state.primaries.counts()))
            {
                *sum += count;
            }
        }
        counters.count(configuration, handed_over.more(counts));
    }

    /// With `counts` locked.
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
                // Envoy may answer before this returns, and no lane is locked.
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
