//! A cluster that admits requests: its state for all workers and configurations of the process.

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

/// The clusters of the process that admit requests.
pub static CLUSTERS: Registry<Cluster> = Registry::new();

/// One cluster. It lives until the process ends, over all updates of its configurations.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    number: u32,
    /// One lane for each worker.
    lanes: Vec<Lane>,
    exchange: Mutex<Exchange>,
    /// The filter configurations that refer to this cluster.
    pub configurations: Configurations,
}

impl Cluster {
    /// The cluster with the name in `settings`; made if there is none. One that has configurations keeps its settings
    /// until the new configuration comes into force ([`Cluster::set`]).
    ///
    /// # Errors
    ///
    /// If the process has as many clusters as it may have.
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

    /// Number of the cluster, unique within the process.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The lane of a worker; `None` if there is no worker with this number.
    pub fn lane(&self, worker: usize) -> Option<&Lane> {
        self.lanes.get(worker)
    }

    /// Puts settings into force; requests in flight stay counted.
    pub fn set(&self, settings: Settings) {
        if locked(&self.exchange).set(&settings) {
            warn!("cluster {}: has new settings", self.name);
            for lane in &self.lanes {
                lane.lock().engine.set(settings.clone());
            }
        }
    }

    /// Takes an agent's answer to a call made by [`Cluster::exchange`].
    pub fn on_answer(&self, token: u64, answer: Answer) {
        self.configurations.put(token, answer);
        // If the lock is held, the answered call has not returned yet; its caller takes the answer afterwards.
        if let Some(mut exchange) = locked_if_free(&self.exchange) {
            self.take_answers(&mut exchange);
        }
    }

    fn take_answers(&self, exchange: &mut Exchange) {
        for (token, answer) in self.configurations.answers() {
            exchange.take(&self.lanes, token, &answer);
        }
    }

    /// Makes the calls that are due, and adds the counts to Envoy's statistics. Runs several times a second on the main
    /// thread.
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
