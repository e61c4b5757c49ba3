//! The position among the router's upstream filters, with one filter for each attempt: counts what is in flight at each
//! host, and measures its delay.

use std::sync::atomic::{AtomicBool, Ordering};

use envoy_abi::{Attribute, HttpFilter, HttpFilterConfig, Next, Stream};
use envoy_policy::engine::{Attempt, Ticket};

use crate::{
    cluster::CLUSTERS,
    lane::{Lane, TICKET},
    system::now,
};

/// True once the process has had a configuration of this position.
static CONFIGURED: AtomicBool = AtomicBool::new(false);

/// True if filters in this position may look for tickets.
pub fn is_configured() -> bool {
    CONFIGURED.load(Ordering::Relaxed)
}

/// One configuration of this position, which has no settings.
pub struct Attempts(());

impl Attempts {
    pub fn new() -> Self {
        CONFIGURED.store(true, Ordering::Relaxed);
        Attempts(())
    }
}

impl HttpFilterConfig for Attempts {
    fn filter(&self, _: &Stream<'_>) -> Box<dyn HttpFilter> {
        Box::new(Upstream { attempt: None })
    }
}

struct Upstream {
    attempt: Option<(&'static Lane, Attempt)>,
}

impl Upstream {
    fn begin(&mut self, stream: &Stream<'_>) -> Option<()> {
        let (number, ticket) = Ticket::from_bytes(stream.kept(TICKET)?)?;
        let lane = CLUSTERS.numbered(number)?.lane(stream.worker())?;
        let address = std::str::from_utf8(stream.text(Attribute::UpstreamAddress)?).ok()?;
        let attempt = lane.lock().engine.attempt(ticket, address, now())?;
        self.attempt = Some((lane, attempt));
        Some(())
    }

    fn end(&mut self) {
        if let Some((lane, attempt)) = self.attempt.take() {
            // If the client left, the request's downstream filter has already recorded that.
            lane.lock().engine.attempt_ended(attempt, now, false);
        }
    }
}

impl HttpFilter for Upstream {
    fn on_request_headers(&mut self, stream: &mut Stream<'_>) -> Next {
        self.end();
        // A request without a ticket of this module, or without a host address, is not counted.
        let _ = self.begin(stream);
        Next::Continue
    }

    fn on_response_headers(&mut self, stream: &mut Stream<'_>) {
        if let Some((lane, attempt)) = &mut self.attempt {
            let headers = stream.response_headers();
            let header = |name: &str| headers.get(name);
            lane.lock().engine.on_response(attempt, now(), header);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}
