//! The filter's two positions on the way to a host: one context per stream downstream, and one per attempt upstream.

use std::{borrow::Cow, rc::Rc};

use envoy_policy::{
    ending,
    engine::{Admission, Attempt, Ticket},
    refusal::Refusal,
};
use proxy_wasm::{
    traits::{Context, HttpContext},
    types::Action,
};

use crate::{
    host,
    vm::{self, Cluster},
};

/// Name of the filter state in which a request's ticket is kept.
const TICKET: &str = "plimsoll";

/// The filter of one stream among the HTTP filters: admits the request, and names its hosts.
#[derive(Debug)]
pub struct Downstream {
    cluster: Rc<Cluster>,
    ticket: Option<Ticket>,
}

impl Downstream {
    pub fn new(cluster: Rc<Cluster>) -> Self {
        Downstream {
            cluster,
            ticket: None,
        }
    }

    fn end(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && let Ok(mut engine) = self.cluster.engine.try_borrow_mut()
        {
            engine.end(ticket);
        }
    }
}

impl Context for Downstream {
    fn on_done(&mut self) -> bool {
        self.end();
        true
    }
}

impl HttpContext for Downstream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        // A later filter may have the headers run through the chain again.
        self.end();
        if let Ok(mut follower) = self.cluster.follower.try_borrow_mut() {
            follower.needs_shares();
        }
        let path = host::request_header(":path").unwrap_or_default();
        let Ok(mut engine) = self.cluster.engine.try_borrow_mut() else {
            return Action::Continue;
        };
        let header = |name: &str| host::request_header(name).map(Cow::Owned);
        match engine.admit(host::now(), &path, header) {
            Admission::Full => {
                let refusal = Refusal::full(engine.settings().retry_after);
                // The answer may pass back through this filter before `refuse` returns.
                drop(engine);
                match host::refuse(&refusal) {
                    true => Action::Pause,
                    false => Action::Continue,
                }
            }
            Admission::Pass(ticket) => {
                self.ticket = Some(ticket);
                let hosts = engine.hosts(ticket);
                let hosts_header = &engine.settings().hosts_header;
                // Overwrites or removes what the client sent under this name.
                let named = (!hosts.is_empty()).then_some(hosts.as_str());
                if !host::set_request_header(hosts_header, named) && named.is_some() {
                    let _ = host::set_request_header(hosts_header, None);
                }
                host::set_property(TICKET, &ticket.to_bytes(self.cluster.number()));
                Action::Continue
            }
        }
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.end();
    }
}

/// The filter of one attempt among the router's upstream filters: counts it at its host, and measures the delay.
#[derive(Debug, Default)]
pub struct Upstream {
    attempt: Option<(Rc<Cluster>, Attempt)>,
}

impl Upstream {
    fn end(&mut self) {
        let Some((cluster, attempt)) = self.attempt.take() else {
            return;
        };
        let client_left = !attempt.is_answered()
            && host::number(&["response", "flags"]).is_some_and(ending::client_left);
        if let Ok(mut engine) = cluster.engine.try_borrow_mut() {
            engine.attempt_ended(attempt, host::now, client_left);
        }
    }
}

impl Context for Upstream {
    fn on_done(&mut self) -> bool {
        self.end();
        true
    }
}

impl HttpContext for Upstream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let ticket = host::property(&[TICKET]).and_then(|bytes| Ticket::from_bytes(&bytes));
        let address = host::property(&["upstream", "address"]);
        let address = address.and_then(|address| String::from_utf8(address).ok());
        if let (Some((number, ticket)), Some(address)) = (ticket, address)
            && let Some(cluster) = vm::cluster(number)
        {
            let attempt = match cluster.engine.try_borrow_mut() {
                Ok(mut engine) => engine.attempt(ticket, &address, host::now()),
                Err(_) => None,
            };
            self.attempt = attempt.map(|attempt| (cluster, attempt));
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        if let Some((cluster, attempt)) = &mut self.attempt
            && let Ok(mut engine) = cluster.engine.try_borrow_mut()
        {
            engine.on_response(attempt, host::now(), host::response_header);
        }
        Action::Continue
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}
