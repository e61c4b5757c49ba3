//! The load balancing policy behind the filter. It chooses a host for retries, for requests that are not placed, and
//! for those whose preferred host is not healthy.

use std::cell::Cell;

use envoy_abi::{Host, Hosts, LoadBalancer, LoadBalancerConfig};
use envoy_policy::{engine::Engine, random::Random};

use crate::{
    cluster::{CLUSTERS, Cluster},
    lane::Lane,
    system::seed,
};

/// Number of hosts drawn at random and compared if the cluster has more; all are compared only if none of these suits.
const SAMPLE: usize = 16;

thread_local! {
    /// Number of this thread's worker. Envoy gives it to filters only, not to load balancing policies.
    static WORKER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Records the number of the worker that runs on this thread; filters call it.
pub fn on_worker(worker: usize) {
    WORKER.set(Some(worker));
}

/// One configuration of the policy.
pub struct Fallback {
    /// Name of the cluster, as in the filter's settings.
    pub cluster: String,
}

impl LoadBalancerConfig for Fallback {
    fn balancer(&self) -> Box<dyn LoadBalancer> {
        Box::new(Balancer {
            name: self.cluster.clone(),
            cluster: None,
            random: Random::new(seed()),
        })
    }
}

struct Balancer {
    name: String,
    /// Looked up at the first choice, since Envoy may configure the filter after the policy.
    cluster: Option<&'static Cluster>,
    random: Random,
}

impl Balancer {
    fn lane(&mut self) -> Option<&'static Lane> {
        if self.cluster.is_none() {
            self.cluster = CLUSTERS.named(&self.name);
        }
        self.cluster?.lane(WORKER.get()?)
    }

    fn sample(&mut self, hosts: usize) -> Vec<usize> {
        if hosts <= SAMPLE {
            return (0..hosts).collect();
        }
        let mut any = || (self.random.fraction() * hosts as f64) as usize;
        (0..SAMPLE).map(|_| any()).collect()
    }
}

impl LoadBalancer for Balancer {
    fn choose(&mut self, hosts: &Hosts<'_>) -> Option<usize> {
        let lane = self.lane()?;
        let count = hosts.healthy().len();
        let sample = self.sample(count);
        let is_new = |host: &Host| !hosts.is_unwanted(host);
        let engine = &lane.lock().engine;
        best(engine, hosts, &sample, is_new)
            .or_else(|| best(engine, hosts, &(0..count).collect::<Vec<_>>(), is_new))
            // Better a host that was tried before than one that takes no work.
            .or_else(|| best(engine, hosts, &(0..count).collect::<Vec<_>>(), |_| true))
    }
}

fn best(
    engine: &Engine,
    hosts: &Hosts<'_>,
    among: &[usize],
    suits: impl Fn(&Host) -> bool,
) -> Option<usize> {
    let among = among.iter().map(|index| (*index, &hosts.healthy()[*index]));
    let suiting = among.filter(|(_, host)| suits(host));
    let filled = suiting.filter_map(|(index, host)| Some((index, engine.fallback(&host.address)?)));
    let best = filled.min_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(index, _)| index)
}
