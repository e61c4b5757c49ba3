//! The state that the filter's configurations share in one VM: one engine per cluster.

use std::{cell::RefCell, rc::Rc};

use envoy_policy::{
    config::{PrimarySettings, Settings},
    engine::Engine,
};
use log::warn;

use crate::{board, follower::Follower, host, metrics::Metrics, primary_filter::PrimaryCluster};

/// One cluster that admits requests, in this VM.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    number: u32,
    /// The dispatcher, and the requests in flight.
    pub engine: RefCell<Engine>,
    /// The source of shares and of the ring.
    pub follower: RefCell<Follower>,
    /// Counters and gauges in Envoy's statistics.
    pub metrics: RefCell<Metrics>,
}

impl Cluster {
    /// Number of the cluster, unique within the VM.
    pub fn number(&self) -> u32 {
        self.number
    }
}

#[derive(Debug, Default)]
struct Vm {
    /// Ordinal of this VM in the process, and nonce of the process, see [`board::number_vm`].
    number: Option<(u32, u32)>,
    clusters: Vec<Rc<Cluster>>,
    primaries: Vec<Rc<PrimaryCluster>>,
}

thread_local! {
    static VM: RefCell<Vm> = RefCell::default();
}

/// The cluster with this number.
pub fn cluster(number: u32) -> Option<Rc<Cluster>> {
    VM.with(|vm| vm.try_borrow().ok()?.clusters.get(number as usize).cloned())
}

/// The cluster with the name in `settings`; made if there is none, else the settings replace its own. `None` if its
/// state is borrowed.
pub fn cluster_of(settings: Settings) -> Option<Rc<Cluster>> {
    VM.with(|vm| {
        let mut vm = vm.try_borrow_mut().ok()?;
        let known = vm
            .clusters
            .iter()
            .find(|cluster| cluster.name == settings.cluster);
        if let Some(cluster) = known.cloned() {
            let mut engine = cluster.engine.try_borrow_mut().ok()?;
            if *engine.settings() != settings {
                warn!("cluster {}: has new settings", settings.cluster);
                cluster.metrics.try_borrow_mut().ok()?.set(&settings);
                engine.set(settings);
            }
            drop(engine);
            return Some(cluster);
        }
        let (ordinal, nonce) = *vm.number.get_or_insert_with(board::number_vm);
        let seed = host::seed() ^ (u64::from(ordinal) << 48);
        let number = vm.clusters.len() as u32;
        let cluster = Rc::new(Cluster {
            name: settings.cluster.clone(),
            number,
            follower: RefCell::new(Follower::new(&settings, (ordinal, nonce), number, seed)),
            metrics: RefCell::new(Metrics::new(&settings)),
            engine: RefCell::new(Engine::new(settings, seed)),
        });
        vm.clusters.push(cluster.clone());
        Some(cluster)
    })
}

/// As [`cluster_of`], for a cluster whose primaries are named.
pub fn primaries_of(settings: PrimarySettings) -> Option<Rc<PrimaryCluster>> {
    VM.with(|vm| {
        let mut vm = vm.try_borrow_mut().ok()?;
        let mut known = vm.primaries.iter();
        if let Some(cluster) = known.find(|cluster| cluster.name == settings.cluster) {
            cluster.set(settings);
            return Some(cluster.clone());
        }
        let number = *vm.number.get_or_insert_with(board::number_vm);
        let seed = host::seed() ^ (u64::from(number.0) << 48);
        let cluster = Rc::new(PrimaryCluster::new(settings, number, seed));
        vm.primaries.push(cluster.clone());
        Some(cluster)
    })
}
