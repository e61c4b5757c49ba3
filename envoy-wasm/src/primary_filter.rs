//! The position that names primaries: one dispatcher per worker, and one context per stream.

use std::{cell::RefCell, rc::Rc};

use envoy_policy::{
    call::Answered,
    config::{PrimarySettings, proxy_name},
    ending,
    naming::{FENCE, SET, changes, cost, object_set},
    primaries::{Outcome, Primaries},
    primary_link::PrimaryLink,
    refusal::Refusal,
    statistics::{PRIMARY_COUNTERS, primaries_counted},
};
use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext},
    types::Action,
};

use crate::{host, metrics::Counters};

/// One cluster whose primaries are named, in this VM.
#[derive(Debug)]
pub struct PrimaryCluster {
    pub name: String,
    primaries: RefCell<Primaries>,
    link: RefCell<PrimaryLink>,
    counters: RefCell<Counters>,
}

impl PrimaryCluster {
    /// `ordinal` is unique among the VMs of the process, `nonce` among processes.
    pub fn new(settings: PrimarySettings, (ordinal, nonce): (u32, u32), seed: u64) -> Self {
        let proxy = proxy_name(settings.proxy.as_deref(), host::node_id);
        // During a hot restart two Envoys run side by side, and neither may be taken for the other's successor.
        let name = format!("{proxy}/{nonce:x}/{ordinal}");
        PrimaryCluster {
            name: settings.cluster.clone(),
            counters: RefCell::new(Counters::new(PRIMARY_COUNTERS, &settings.cluster)),
            primaries: RefCell::new(Primaries::new(settings, name, format!("{seed:x}"))),
            link: RefCell::new(PrimaryLink::new(seed)),
        }
    }

    /// Replaces the settings; requests in flight and waiting ones stay.
    pub fn set(&self, settings: PrimarySettings) {
        if let Ok(mut primaries) = self.primaries.try_borrow_mut() {
            primaries.set(settings);
        }
    }

    /// Calls an agent if that is due, decides on waiting streams, and updates the counters. To be called several times
    /// a second.
    pub fn tick(&self) {
        self.tell();
        self.deliver();
        if let (Ok(primaries), Ok(mut counters)) =
            (self.primaries.try_borrow(), self.counters.try_borrow_mut())
        {
            counters.count(primaries_counted(primaries.counts()));
        }
    }

    /// Calls an agent if that is due.
    fn tell(&self) {
        let (Ok(mut primaries), Ok(mut link)) =
            (self.primaries.try_borrow_mut(), self.link.try_borrow_mut())
        else {
            return;
        };
        let now = host::now();
        if let Some(request) = link.ask(&mut primaries, now) {
            let settings = primaries.settings();
            let called = host::ask(&settings.agents, settings.token.as_deref(), &request);
            link.called(&request, called, now);
        }
    }

    /// Takes an agent's answer to the call with this token, and decides on waiting streams; ignored if no such call is
    /// in flight.
    pub fn on_answer(&self, token: u64, answered: Answered) {
        if let (Ok(mut primaries), Ok(mut link)) =
            (self.primaries.try_borrow_mut(), self.link.try_borrow_mut())
            && !link.on_answer(&mut primaries, token, answered, host::now())
        {
            return;
        }
        // The call comes first: after `deliver`, a stream is the effective context, and a call would be made for it.
        self.tell();
        self.deliver();
    }

    /// Resumes or refuses the waiting streams whose outcome is known.
    fn deliver(&self) {
        let (outcomes, settings) = match self.primaries.try_borrow_mut() {
            Ok(mut primaries) => (primaries.again(host::now()), primaries.settings().clone()),
            Err(_) => return,
        };
        for (stream, outcome) in outcomes {
            if hostcalls::set_effective_context(stream).is_err() {
                self.ended(stream, true);
            } else if act(&settings, outcome) {
                let _ = hostcalls::resume_http_request();
            }
        }
    }

    fn ended(&self, stream: u32, is_through: bool) {
        if let Ok(mut primaries) = self.primaries.try_borrow_mut() {
            primaries.ended(stream, host::now(), is_through);
        }
    }
}

/// Applies an outcome to the current stream. Returns true if the stream may go on.
fn act(settings: &PrimarySettings, outcome: Outcome) -> bool {
    let refusal = match outcome {
        Outcome::Wait => return false,
        Outcome::Go { node, fence } => {
            let cluster = format!("{}{node}", settings.prefix);
            // Setting the header makes Envoy look up the route again.
            if host::set_request_header(FENCE, Some(&fence))
                && host::set_request_header(&settings.header, Some(&cluster))
            {
                return true;
            }
            Refusal::lost(settings.retry_after)
        }
        Outcome::Refuse(reason) => Refusal::no_primary(reason, settings.retry_after),
    };
    // If this fails, the stream stays held, and reaches no node.
    let _ = host::refuse(&refusal);
    false
}

/// Removes headers and sets the object set, see [`changes`]. Returns false if Envoy refuses any of it.
fn tell((remove, set): (Vec<&str>, Option<&str>)) -> bool {
    let mut remove = remove.into_iter();
    remove.all(|name| host::set_request_header(name, None))
        && set.is_none_or(|set| host::set_request_header(SET, Some(set)))
}

/// The filter of one stream; `stream` is the number of its context.
#[derive(Debug)]
pub struct Primary {
    cluster: Rc<PrimaryCluster>,
    stream: u32,
}

impl Primary {
    pub fn new(cluster: Rc<PrimaryCluster>, stream: u32) -> Self {
        Primary { cluster, stream }
    }
}

impl Context for Primary {
    fn on_done(&mut self) -> bool {
        self.cluster.ended(self.stream, false);
        true
    }
}

impl HttpContext for Primary {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let headers = host::request_headers();
        let (outcome, settings) = {
            let Ok(mut primaries) = self.cluster.primaries.try_borrow_mut() else {
                return Action::Pause;
            };
            let settings = primaries.settings().clone();
            let part = &settings.object_set;
            let name = object_set(part, &headers);
            let name = name.filter(|name| changes(part, &headers, name).is_some_and(tell));
            let cost = cost(&settings, &headers);
            let outcome = primaries.begin(self.stream, name.as_deref(), cost, host::now());
            (outcome, settings)
        };
        match act(&settings, outcome) {
            true => Action::Continue,
            false => Action::Pause,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        let details = host::property(&["response", "code_details"]);
        let flags = host::number(&["response", "flags"]).unwrap_or(0);
        let is_through = ending::is_through(details.as_deref(), flags);
        self.cluster.ended(self.stream, is_through);
        Action::Continue
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.cluster.ended(self.stream, false);
    }
}
