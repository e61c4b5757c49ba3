//! The position that names primaries: one dispatcher a worker, and one context a stream.

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

/// One cluster in this VM.
#[derive(Debug)]
pub struct PrimaryCluster {
    pub name: String,
    primaries: RefCell<Primaries>,
    link: RefCell<PrimaryLink>,
    counters: RefCell<Counters>,
}

impl PrimaryCluster {
    /// The VM is told apart from others by its `ordinal` in the process and the process's `nonce`.
    pub fn new(settings: PrimarySettings, (ordinal, nonce): (u32, u32), seed: u64) -> Self {
        let proxy = proxy_name(settings.proxy.as_deref(), host::node_id);
        // An Envoy that hands over to another lives on beside it: neither may be taken for the other's successor.
        let name = format!("{proxy}/{nonce:x}/{ordinal}");
        PrimaryCluster {
            name: settings.cluster.clone(),
            counters: RefCell::new(Counters::new(PRIMARY_COUNTERS, &settings.cluster)),
            primaries: RefCell::new(Primaries::new(settings, name, format!("{seed:x}"))),
            link: RefCell::new(PrimaryLink::new(seed)),
        }
    }

    /// Takes other settings over.
    pub fn set(&self, settings: PrimarySettings) {
        if let Ok(mut primaries) = self.primaries.try_borrow_mut() {
            primaries.set(settings);
        }
    }

    /// Several times a second.
    pub fn tick(&self) {
        self.tell();
        self.deliver();
        if let (Ok(primaries), Ok(mut counters)) =
            (self.primaries.try_borrow(), self.counters.try_borrow_mut())
        {
            counters.count(primaries_counted(primaries.counts()));
        }
    }

    /// Talks to an agent where that is due.
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

    /// Takes an agent's answer.
    pub fn on_answer(&self, token: u64, answered: Answered) {
        if let (Ok(mut primaries), Ok(mut link)) =
            (self.primaries.try_borrow_mut(), self.link.try_borrow_mut())
            && !link.on_answer(&mut primaries, token, answered, host::now())
        {
            return;
        }
        // Before that: what is called after it is called for a stream.
        self.tell();
        self.deliver();
    }

    /// Lets go of those that waited.
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

/// Does it to the stream of now; whether it may go on.
fn act(settings: &PrimarySettings, outcome: Outcome) -> bool {
    let refusal = match outcome {
        Outcome::Wait => return false,
        Outcome::Go { node, fence } => {
            let cluster = format!("{}{node}", settings.prefix);
            // The route is looked up anew, with the cluster.
            if host::set_request_header(FENCE, Some(&fence))
                && host::set_request_header(&settings.header, Some(&cluster))
            {
                return true;
            }
            Refusal::lost(settings.retry_after)
        }
        Outcome::Refuse(reason) => Refusal::no_primary(reason, settings.retry_after),
    };
    // Where that fails the stream stays where it is, and reaches no node.
    let _ = host::refuse(&refusal);
    false
}

/// Whether the node gets the set that was found, and nothing that reads like it or like a token.
fn tell((remove, set): (Vec<&str>, Option<&str>)) -> bool {
    let mut remove = remove.into_iter();
    remove.all(|name| host::set_request_header(name, None))
        && set.is_none_or(|set| host::set_request_header(SET, Some(set)))
}

/// One stream.
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
