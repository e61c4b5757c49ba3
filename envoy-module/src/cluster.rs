//! One cluster that admits requests, over all workers and configurations of a process.

use std::sync::Mutex;

use envoy_abi::{Answer, Configuration};
use envoy_policy::config::Settings;
use log::warn;

use crate::{
    exchange::Exchange,
    lane::Lane,
    metrics::Metrics,
    registry::{Member, Registry},
    system::{locked, locked_if_free, now, process_name},
    waking::{Configurations, Number},
};

/// Those of the process.
pub static CLUSTERS: Registry<Cluster> = Registry::new();

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    number: u32,
    lanes: Vec<Lane>,
    exchange: Mutex<Exchange>,
    /// Its configurations.
    pub configurations: Configurations,
}

impl Cluster {
    /// The cluster of these settings, which may be known already. Where it has configurations, it keeps theirs for now.
    pub fn of(settings: &Settings, workers: usize) -> Result<&'static Cluster, String> {
        let Some(cluster) = CLUSTERS.named(&settings.cluster) else {
            return CLUSTERS.add(|number| Cluster::new(settings.clone(), number, workers));
        };
        if cluster.configurations.is_empty() {
            cluster.set(settings.clone());
        }
        Ok(cluster)
    }

    fn new(settings: Settings, number: u32, workers: usize) -> Self {
        let process = process_name(settings.proxy.as_deref());
        let lane = |worker| Lane::new(settings.clone(), format!("{process}/{worker}.{number}"));
        Cluster {
            name: settings.cluster.clone(),
            number,
            lanes: (0..workers).map(lane).collect(),
            exchange: Mutex::new(Exchange::new(settings, workers)),
            configurations: Configurations::default(),
        }
    }

    /// Tells the clusters of a process apart.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What a worker has of it; none where that is no worker.
    pub fn lane(&self, worker: usize) -> Option<&Lane> {
        self.lanes.get(worker)
    }

    /// Takes other settings over; what is under way stays counted.
    pub fn set(&self, settings: Settings) {
        if locked(&self.exchange).set(&settings) {
            warn!("cluster {}: has new settings", self.name);
            for lane in &self.lanes {
                lane.lock().engine.set(settings.clone());
            }
        }
    }

    /// An agent's answer to a call of [`Cluster::exchange`].
    pub fn on_answer(&self, token: u64, answer: Answer) {
        self.configurations.put(token, answer);
        // Otherwise the call that is answered has not returned yet, and whoever makes it looks at the answer.
        if let Some(mut exchange) = locked_if_free(&self.exchange) {
            self.take_answers(&mut exchange);
        }
    }

    fn take_answers(&self, exchange: &mut Exchange) {
        for (token, answer) in self.configurations.answers() {
            exchange.take(&self.lanes, token, &answer);
        }
    }

    /// Several times a second, on the main thread: makes the calls that are due, and hands over what was counted.
    pub fn exchange(&self, configuration: &Configuration, number: Number, metrics: &Metrics) {
        let mut exchange = locked(&self.exchange);
        exchange.look(&self.lanes, |agents, request| {
            number.ask(configuration, agents, request)
        });
        self.take_answers(&mut exchange);
        exchange.show(&self.lanes, configuration, metrics);
    }
}

impl Member for Cluster {
    fn name(&self) -> &str {
        &self.name
    }

    fn tick(&self) {
        let now = now();
        for lane in &self.lanes {
            lane.lock().engine.on_time(now);
        }
        self.configurations.wake();
    }
}
