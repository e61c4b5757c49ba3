//! The position among the HTTP filters: admits requests, and chooses the host of the first attempt. If the module is
//! not among the router's upstream filters, this filter counts each request as one attempt at its last host.

use std::borrow::Cow;

use envoy_abi::{Attribute, HttpFilter, Next, Reply, Stream};
use envoy_policy::{
    ending,
    engine::{Admission, Attempt, Ticket},
    refusal::Refusal,
};

use crate::{
    cluster::Cluster,
    lane::{Lane, TICKET},
    system::now,
    upstream,
};

/// The filter of one stream.
pub struct Downstream {
    cluster: &'static Cluster,
    lane: &'static Lane,
    ticket: Option<Ticket>,
    /// Time of the admission, seconds.
    admitted: f64,
    /// The request's only attempt, if no upstream filter counts attempts.
    attempt: Option<Attempt>,
    /// True once upstream filters are known to count this request's attempts.
    is_counted: bool,
}

impl Downstream {
    pub fn new(cluster: &'static Cluster, lane: &'static Lane) -> Self {
        Downstream {
            cluster,
            lane,
            ticket: None,
            admitted: 0.0,
            attempt: None,
            is_counted: false,
        }
    }

    fn end(&mut self, client_left: bool) {
        if let Some(ticket) = self.ticket.take() {
            let engine = &mut self.lane.lock().engine;
            if let Some(attempt) = self.attempt.take() {
                engine.attempt_ended(attempt, now, client_left);
            }
            if client_left {
                engine.client_left(ticket);
            }
            engine.end(ticket);
        }
    }

    /// The request's only attempt; `None` if it has not reached a host, or if upstream filters count its attempts.
    fn attempt(&mut self, stream: &Stream<'_>) -> Option<&mut Attempt> {
        let ticket = self.ticket.filter(|_| !self.is_counted)?;
        if self.attempt.is_none() {
            let mut lane = self.lane.lock();
            if !lane.engine.is_unattempted(ticket) {
                self.is_counted = true;
                return None;
            }
            let address = std::str::from_utf8(stream.text(Attribute::UpstreamAddress)?).ok()?;
            self.attempt = lane.engine.attempt(ticket, address, self.admitted);
        }
        self.attempt.as_mut()
    }

    fn admit(&mut self, stream: &mut Stream<'_>) -> Result<Ticket, u32> {
        self.admitted = now();
        let mut lane = self.lane.lock();
        let path = stream.request_header(":path").unwrap_or_default();
        let header = |name: &str| stream.request_header(name).map(Cow::Borrowed);
        match lane.engine.admit(self.admitted, path, header) {
            Admission::Full => Err(lane.engine.settings().retry_after),
            Admission::Pass(ticket) => {
                if let Some(host) = lane.engine.host(ticket) {
                    // If Envoy refuses the host, it does not have it; the load balancing policy then chooses.
                    stream.prefer_host(host);
                }
                Ok(ticket)
            }
        }
    }
}

impl HttpFilter for Downstream {
    fn on_request_headers(&mut self, stream: &mut Stream<'_>) -> Next {
        // A later filter may have the headers run through the chain again.
        self.end(false);
        match self.admit(stream) {
            Ok(ticket) => {
                self.ticket = Some(ticket);
                self.is_counted = false;
                if upstream::is_configured() {
                    stream.keep(TICKET, &ticket.to_bytes(self.cluster.number()));
                }
                Next::Continue
            }
            Err(retry_after) => Next::Answer(reply(Refusal::full(retry_after), "plimsoll_full")),
        }
    }

    fn on_response_headers(&mut self, stream: &mut Stream<'_>) {
        let lane = self.lane;
        if let Some(attempt) = self.attempt(stream) {
            let headers = stream.response_headers();
            let header = |name: &str| headers.get(name);
            lane.lock().engine.on_response(attempt, now(), header);
        }
    }

    fn on_complete(&mut self, stream: &mut Stream<'_>) {
        // Counts the attempt at a host that did not answer.
        self.attempt(stream);
        // Attempts in flight end after this, and cannot find out whether the client left.
        let flags = stream.number(Attribute::ResponseFlags).unwrap_or(0);
        self.end(ending::client_left(flags));
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// A refusal as a local reply of Envoy.
pub fn reply(refusal: Refusal, details: &'static str) -> Reply {
    Reply {
        status: refusal.status as u16,
        headers: refusal.headers(),
        body: refusal.body,
        details,
    }
}
