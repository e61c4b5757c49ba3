//! The position that names primaries: sends each request to the primary of its object set.

use std::sync::Mutex;

use envoy_abi::{Answer, Attribute, Configuration, HttpFilter, HttpFilterConfig, Next, Stream};
use envoy_policy::{
    config::PrimarySettings,
    ending,
    naming::{FENCE, SET, changes, cost, object_set},
    primaries::Outcome,
    refusal::Refusal,
    statistics::PRIMARY_COUNTERS,
};

use crate::{
    downstream::reply,
    metrics::Counters,
    primary_cluster::{PrimaryCluster, PrimaryLane},
    system::{locked, now},
    waking::Number,
};

const DETAILS: &str = "plimsoll_primary";

/// One configuration; Envoy drops it once no stream uses it.
pub struct Placement {
    cluster: &'static PrimaryCluster,
    number: Number,
    counters: Counters,
    /// Settings that are not in force yet. They come into force at the first wake-up: before that, Envoy may still
    /// reject the listener for another reason.
    settings: Mutex<Option<PrimarySettings>>,
}

impl Placement {
    pub fn new(configuration: &Configuration, settings: PrimarySettings) -> Result<Self, String> {
        let number = Number::next();
        let counters = Counters::new(configuration, PRIMARY_COUNTERS, &settings.cluster);
        let cluster = PrimaryCluster::of(&settings, configuration.workers())?;
        cluster.configurations.join(number, configuration)?;
        Ok(Placement {
            cluster,
            number,
            counters,
            settings: Mutex::new(Some(settings)),
        })
    }
}

impl HttpFilterConfig for Placement {
    fn filter(&self, stream: &Stream<'_>) -> Box<dyn HttpFilter> {
        match self.cluster.lane(stream.worker()) {
            Some(lane) => Box::new(Primary {
                lane,
                stream: lane.lock().next_stream(),
            }),
            None => Box::new(Unplaced),
        }
    }

    fn on_wake(&self, configuration: &Configuration) {
        if let Some(settings) = locked(&self.settings).take() {
            self.cluster.set(&settings);
        }
        self.cluster
            .exchange(configuration, self.number, &self.counters);
    }

    fn on_answer(&self, configuration: &Configuration, call: u64, answer: Answer) {
        let token = self.number.token(call);
        self.cluster
            .on_answer(configuration, self.number, token, answer);
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.cluster.configurations.leave(self.number);
    }
}

/// The filter of one stream; `stream` identifies it within its worker.
struct Primary {
    lane: &'static PrimaryLane,
    stream: u32,
}

impl HttpFilter for Primary {
    fn on_request_headers(&mut self, stream: &mut Stream<'_>) -> Next {
        let owned = |(name, value): (&[u8], &[u8])| {
            (String::from_utf8_lossy(name).into_owned(), value.to_vec())
        };
        let headers: Vec<_> = stream.request_headers().iter().map(owned).collect();
        let state = &mut *self.lane.lock();
        let settings = state.primaries.settings();
        let part = &settings.object_set;
        let name = object_set(part, &headers).filter(|name| {
            changes(part, &headers, name).is_some_and(|changes| tell(stream, changes))
        });
        let cost = cost(settings, &headers);
        let outcome = state
            .primaries
            .begin(self.stream, name.as_deref(), cost, now());
        if outcome == Outcome::Wait {
            state.wait(self.stream, stream.scheduler());
        }
        act(stream, state.primaries.settings(), outcome)
    }

    fn on_wake(&mut self, stream: &mut Stream<'_>) -> Next {
        let state = &mut *self.lane.lock();
        match state.outcome(self.stream) {
            Some(outcome) => act(stream, state.primaries.settings(), outcome),
            None => Next::Wait,
        }
    }

    fn on_response_headers(&mut self, stream: &mut Stream<'_>) {
        let flags = stream.number(Attribute::ResponseFlags).unwrap_or(0);
        let details = stream.text(Attribute::ResponseCodeDetails);
        let is_through = ending::is_through(details, flags);
        self.lane.lock().ended(self.stream, is_through);
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.lane.lock().ended(self.stream, false);
    }
}

fn act(stream: &mut Stream<'_>, settings: &PrimarySettings, outcome: Outcome) -> Next {
    let refusal = match outcome {
        Outcome::Wait => return Next::Wait,
        Outcome::Go { node, fence } => {
            let cluster = format!("{}{node}", settings.prefix);
            if stream.set_request_header(FENCE, Some(fence.as_bytes()))
                && stream.set_request_header(&settings.header, Some(cluster.as_bytes()))
            {
                // The route depends on the header just set.
                stream.clear_route();
                return Next::Continue;
            }
            Refusal::lost(settings.retry_after)
        }
        Outcome::Refuse(reason) => Refusal::no_primary(reason, settings.retry_after),
    };
    Next::Answer(reply(refusal, DETAILS))
}

/// Removes headers and sets the object set, see [`changes`]. Returns false if Envoy refuses any of it.
fn tell(stream: &mut Stream<'_>, (remove, set): (Vec<&str>, Option<&str>)) -> bool {
    let mut remove = remove.into_iter();
    remove.all(|name| stream.set_request_header(name, None))
        && set.is_none_or(|set| stream.set_request_header(SET, Some(set.as_bytes())))
}

/// The filter of a stream on a thread that is not a worker: no primary can be found there, so it refuses the request.
struct Unplaced;

impl HttpFilter for Unplaced {
    fn on_request_headers(&mut self, _: &mut Stream<'_>) -> Next {
        Next::Answer(reply(Refusal::lost(1), DETAILS))
    }
}
