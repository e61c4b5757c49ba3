//! The filter's configurations in one VM.

use std::{rc::Rc, time::Duration};

use envoy_policy::{
    call::MAX_ANSWER,
    config::{self, Config},
    exchanger::LOOK,
};
use log::error;
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext, RootContext},
    types::{BufferType, ContextType, MapType},
};

use crate::{
    filter::{Downstream, Upstream},
    primary_filter::{Primary, PrimaryCluster},
    vm::{Cluster, cluster_of, primaries_of},
};

/// One configuration of the filter.
#[derive(Debug, Default)]
pub struct Root {
    /// The cluster, in the position that admits requests.
    cluster: Option<Rc<Cluster>>,
    /// The cluster, in the position that names primaries.
    primaries: Option<Rc<PrimaryCluster>>,
}

/// Status and body of the answer for which Envoy's callback runs.
fn answer(size: usize) -> Option<(u32, Vec<u8>)> {
    let status = hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, ":status");
    let status = String::from_utf8(status.ok()??).ok()?.parse().ok()?;
    let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, size);
    Some((status, body.ok().flatten().unwrap_or_default()))
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body_size: usize, _: usize) {
        // If there is no answer, reading it would panic in the SDK.
        let answer = (headers > 0).then(|| answer(body_size.min(MAX_ANSWER)));
        let answer = answer.flatten();
        let answered = answer.as_ref().map(|(status, body)| (*status, &body[..]));
        let answered = answered.ok_or_else(|| "an agent's answer breaks off".to_owned());
        let token = u64::from(token);
        if let Some(primaries) = &self.primaries {
            return primaries.on_answer(token, answered);
        }
        let Some(cluster) = &self.cluster else { return };
        let (Ok(mut follower), Ok(engine)) = (
            cluster.follower.try_borrow_mut(),
            cluster.engine.try_borrow(),
        ) else {
            return;
        };
        follower.on_answer(engine.settings(), token, answered);
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
            metrics.show(follower.exchanger.in_flight(), version);
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
