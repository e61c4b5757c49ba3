//! The filter's configurations in one VM, and what they share: one engine a cluster.

use std::{cell::RefCell, rc::Rc, time::Duration};

use log::{error, warn};
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext, RootContext},
    types::{BufferType, ContextType, MapType},
};

use crate::{
    board,
    call::MAX_ANSWER,
    config::{self, Config, PrimarySettings, Settings},
    engine::Engine,
    filter::{Downstream, Upstream},
    follower::{Follower, LOOK},
    host,
    metrics::Metrics,
    primary_filter::{Primary, PrimaryCluster},
};

/// One cluster in this VM.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    number: u32,
    /// Its dispatcher and requests.
    pub engine: RefCell<Engine>,
    /// Where its shares come from.
    pub follower: RefCell<Follower>,
    metrics: RefCell<Metrics>,
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

fn cluster_of(settings: Settings) -> Option<Rc<Cluster>> {
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

fn primaries_of(settings: PrimarySettings) -> Option<Rc<PrimaryCluster>> {
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

/// One configuration of the filter.
#[derive(Debug, Default)]
pub struct Root {
    /// In the downstream position.
    cluster: Option<Rc<Cluster>>,
    /// In the position that names primaries.
    primaries: Option<Rc<PrimaryCluster>>,
}

/// Status and body of the answer that was just called back with.
fn answer(size: usize) -> (u32, Vec<u8>) {
    let status = hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, ":status");
    let status = status
        .ok()
        .flatten()
        .and_then(|text| String::from_utf8(text).ok())
        .and_then(|text| text.parse().ok());
    let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, size);
    (status.unwrap_or(0), body.ok().flatten().unwrap_or_default())
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body_size: usize, _: usize) {
        // Where there is no answer, asking for one would be a panic in the SDK.
        let (status, body) = if headers > 0 {
            answer(body_size.min(MAX_ANSWER))
        } else {
            (0, Vec::new())
        };
        if let Some(primaries) = &self.primaries {
            return primaries.on_answer(token, status, &body);
        }
        let Some(cluster) = &self.cluster else { return };
        let (Ok(mut follower), Ok(engine)) = (
            cluster.follower.try_borrow_mut(),
            cluster.engine.try_borrow(),
        ) else {
            return;
        };
        follower.on_answer((token, status, &body), engine.settings());
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        let text = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
        match config::parse(&text.ok().flatten().unwrap_or_default()) {
            Ok(Config::Upstream) => true,
            Ok(Config::Primary(settings)) => {
                self.primaries = primaries_of(*settings);
                let ticks = hostcalls::set_tick_period(Duration::from_secs_f64(LOOK));
                self.primaries.is_some() && ticks.is_ok()
            }
            Ok(Config::Downstream(settings)) => {
                self.cluster = cluster_of(*settings);
                let ticks = hostcalls::set_tick_period(Duration::from_secs_f64(LOOK));
                self.cluster.is_some() && ticks.is_ok()
            }
            Err(problem) => {
                error!("plimsoll: {problem}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(primaries) = &self.primaries {
            primaries.tick();
        }
        let Some(cluster) = &self.cluster else { return };
        let Ok(mut follower) = cluster.follower.try_borrow_mut() else {
            return;
        };
        follower.tick(&cluster.engine);
        let (Ok(mut engine), Ok(mut metrics)) = (
            cluster.engine.try_borrow_mut(),
            cluster.metrics.try_borrow_mut(),
        ) else {
            return;
        };
        metrics.count(engine.counts());
        metrics.show_ring_applied(follower.ring_applied);
        if follower.is_fetcher() {
            let version = engine.dispatcher().ring_version().unwrap_or(0);
            metrics.show(follower.fetcher.in_flight, version);
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match (&self.primaries, &self.cluster) {
            (Some(primaries), _) => Box::new(Primary::new(primaries.clone(), id)),
            (None, Some(cluster)) => Box::new(Downstream::new(cluster.clone())),
            (None, None) => Box::new(Upstream::default()),
        })
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
