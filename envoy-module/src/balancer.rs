//! The load balancing policy behind the filter: it chooses where the preferred host is not healthy, for retries, and for
//! requests that are not placed.

use std::cell::Cell;

use envoy_abi::{Host, Hosts, LoadBalancer, LoadBalancerConfig};
use envoy_policy::{engine::Engine, random::Random};

use crate::{
    cluster::{CLUSTERS, Cluster},
    lane::Lane,
    system::seed,
};

/// Of more hosts than this, so many are looked at, unless none of them will do.
const SAMPLE: usize = 16;

thread_local! {
    /// Envoy tells filters which worker they are on, but not load balancing policies.
    static WORKER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A filter says which worker this thread is.
pub fn on_worker(worker: usize) {
    WORKER.set(Some(worker));
}

/// One configuration.
pub struct Fallback {
    /// As in the filter's.
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
    /// Known once a filter has been configured, which comes later.
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
            // Rather one that was asked before than one that is to have no work.
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
