//! A configuration of the position among the HTTP filters that admits requests.

use std::sync::Mutex;

use envoy_abi::{Answer, Configuration, HttpFilter, HttpFilterConfig, Stream};
use envoy_policy::config::Settings;

use crate::{
    balancer, cluster::Cluster, downstream::Downstream, metrics::Metrics, system::locked,
    waking::Number,
};

/// One configuration; Envoy drops it once no stream uses it.
pub struct Admission {
    cluster: &'static Cluster,
    number: Number,
    metrics: Metrics,
    /// Settings that are not in force yet. They come into force at the first wake-up: before that, Envoy may still
    /// reject the listener for another reason.
    settings: Mutex<Option<Settings>>,
}

impl Admission {
    pub fn new(configuration: &Configuration, settings: Settings) -> Result<Self, String> {
        let number = Number::next();
        let metrics = Metrics::new(configuration, &settings);
        let cluster = Cluster::of(&settings, configuration.workers())?;
        cluster.configurations.join(number, configuration)?;
        Ok(Admission {
            cluster,
            number,
            metrics,
            settings: Mutex::new(Some(settings)),
        })
    }
}

impl HttpFilterConfig for Admission {
    fn filter(&self, stream: &Stream<'_>) -> Box<dyn HttpFilter> {
        let worker = stream.worker();
        balancer::on_worker(worker);
        match self.cluster.lane(worker) {
            Some(lane) => Box::new(Downstream::new(self.cluster, lane)),
            None => Box::new(Stranger),
        }
    }

    fn on_wake(&self, configuration: &Configuration) {
        if let Some(settings) = locked(&self.settings).take() {
            self.cluster.set(settings);
        }
        self.cluster
            .exchange(configuration, self.number, &self.metrics);
    }

    fn on_answer(&self, _: &Configuration, call: u64, answer: Answer) {
        self.cluster.on_answer(self.number.token(call), answer);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.cluster.configurations.leave(self.number);
    }
}

/// The filter of a stream on a thread that is not a worker; does nothing.
pub struct Stranger;

impl HttpFilter for Stranger {}
