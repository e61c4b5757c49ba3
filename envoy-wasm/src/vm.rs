//! What the filter's configurations in one VM share: one engine a cluster.

use std::{cell::RefCell, rc::Rc};

use envoy_policy::{
    config::{PrimarySettings, Settings},
    engine::Engine,
};
use log::warn;

use crate::{board, follower::Follower, host, metrics::Metrics, primary_filter::PrimaryCluster};

/// One cluster in this VM.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    number: u32,
    /// Its dispatcher and requests.
    pub engine: RefCell<Engine>,
    /// Where its shares come from.
    pub follower: RefCell<Follower>,
    /// What Envoy counts for it.
    pub metrics: RefCell<Metrics>,
}

impl Cluster {
    /// Tells the VM's clusters apart.
    pub fn number(&self) -> u32 {
        self.number
    }
}

#[derive(Debug, Default)]
struct Vm {
    /// This VM's number in the process, and the process's own.
    number: Option<(u32, u32)>,
    clusters: Vec<Rc<Cluster>>,
    primaries: Vec<Rc<PrimaryCluster>>,
}

thread_local! {
    static VM: RefCell<Vm> = RefCell::default();
}

/// A cluster by its number.
pub fn cluster(number: u32) -> Option<Rc<Cluster>> {
    VM.with(|vm| vm.try_borrow().ok()?.clusters.get(number as usize).cloned())
}

/// The cluster of these settings, which the VM may know already.
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
            metrics: RefCell::new(Metrics::new(&settings.cluster)),
            engine: RefCell::new(Engine::new(settings, seed)),
        });
        vm.clusters.push(cluster.clone());
        Some(cluster)
    })
}

/// The same where primaries are named.
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
