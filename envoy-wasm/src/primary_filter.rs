//! The position that names primaries: one dispatcher a worker, and one context a stream.

use std::{cell::RefCell, rc::Rc};

use proxy_wasm::{
    hostcalls,
    traits::{Context, HttpContext},
    types::{Action, MetricType},
};

use crate::{
    call::{Call, ask, read},
    config::{PrimarySettings, is_name},
    host,
    naming::{FENCE, Headers, SET, header, misleading, object_set},
    part::Part,
    primaries::{Outcome, Primaries, PrimaryCounts, Reason},
};

/// What Envoy says of an answer that a node gave.
const BY_NODE: &[u8] = b"via_upstream";
/// Response flags of requests that reached no node: no healthy host, connection failed, circuit breaker open, no route,
/// no cluster.
const UNREACHED: u64 = 0x2 | 0x20 | 0x80 | 0x100 | 0x100_0000;

/// One cluster in this VM.
#[derive(Debug)]
pub struct PrimaryCluster {
    pub name: String,
    primaries: RefCell<Primaries>,
    link: RefCell<Link>,
    metrics: RefCell<Metrics>,
}

#[derive(Debug, Default)]
struct Link {
    call: Call,
    sent: f64,
    random: u64,
}

impl Link {
    /// 0..1.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl PrimaryCluster {
    /// The VM is told apart from others by its `ordinal` in the process and the process's `nonce`.
    pub fn new(settings: PrimarySettings, (ordinal, nonce): (u32, u32), seed: u64) -> Self {
        let node_id =
            || host::property(&["xds", "node", "id"]).and_then(|id| String::from_utf8(id).ok());
        let proxy = settings.proxy.clone().or_else(node_id);
        let proxy = proxy
            .filter(|name| is_name(name))
            .unwrap_or_else(|| "envoy".to_owned());
        // An Envoy that hands over to another lives on beside it: neither may be taken for the other's successor.
        let name = format!("{proxy}/{nonce:x}/{ordinal}");
        PrimaryCluster {
            name: settings.cluster.clone(),
            metrics: RefCell::new(Metrics::new(&settings.cluster)),
            primaries: RefCell::new(Primaries::new(settings, name, format!("{seed:x}"))),
            link: RefCell::new(Link {
                random: seed | 1,
                ..Link::default()
            }),
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
        if let (Ok(primaries), Ok(mut metrics)) =
            (self.primaries.try_borrow(), self.metrics.try_borrow_mut())
        {
            metrics.count(primaries.counts());
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
        if primaries.is_due(now) && link.call.is_well() {
            link.call.due = now;
        }
        if !link.call.is_due(now) {
            return;
        }
        let body = primaries.message(now);
        let settings = primaries.settings();
        let agents = (settings.agents.as_str(), settings.token.as_deref());
        let called = ask(agents, "/v1/placement", Some(&body), settings.timeout);
        link.sent = now;
        let (random, timeout) = (link.random(), settings.timeout);
        link.call
            .started("primaries", called, (now, timeout), random);
    }

    /// Takes an agent's answer.
    pub fn on_answer(&self, token: u32, status: u32, body: &[u8]) {
        if let (Ok(mut primaries), Ok(mut link)) =
            (self.primaries.try_borrow_mut(), self.link.try_borrow_mut())
        {
            if !link.call.takes(token) {
                return;
            }
            let (now, sent, random) = (host::now(), link.sent, link.random());
            let taken = read(status, body).and_then(|()| primaries.on_answer(body, sent, now));
            match taken {
                // Jittered, so that dispatchers do not act in step.
                Ok(due) => {
                    let due = due + 0.1 * (due - now) * (random - 1.0);
                    link.call.succeeded("primaries", due);
                }
                Err(problem) => link.call.failed("primaries", problem, now, random),
            }
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
    let reason = match outcome {
        Outcome::Wait => return false,
        Outcome::Go { node, fence } => {
            let cluster = format!("{}{node}", settings.prefix);
            // The route is looked up anew, with the cluster.
            if host::set_request_header(FENCE, Some(&fence))
                && host::set_request_header(&settings.header, Some(&cluster))
            {
                return true;
            }
            "lost"
        }
        Outcome::Refuse(reason) => reason.word(),
    };
    let (status, body) = match reason == Reason::Name.word() {
        true => (400, "no name of an object set\n"),
        false => (503, "no primary now\n"),
    };
    let retry_after = settings.retry_after.to_string();
    let mut headers = vec![("content-type", "text/plain"), ("plimsoll-reason", reason)];
    if status == 503 {
        headers.push(("retry-after", &retry_after));
    }
    // Where that fails the stream stays where it is, and reaches no node.
    let _ = hostcalls::send_http_response(status, headers, Some(body.as_bytes()));
    false
}

/// Whether the node gets the set that was found, and nothing that reads like it or like a token.
fn tell(part: &Part, headers: &Headers, set: &[u8]) -> bool {
    let kept = match part {
        Part::Header(name) => Some(name.as_str()),
        _ => None,
    };
    let mut names = misleading(headers, kept).into_iter();
    names.all(|name| host::set_request_header(name, None))
        && (kept == Some(SET)
            || std::str::from_utf8(set).is_ok_and(|set| host::set_request_header(SET, Some(set))))
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
            let name = object_set(&settings.object_set, &headers);
            let name = name.filter(|name| tell(&settings.object_set, &headers, name));
            let path = header(&headers, ":path").unwrap_or_default();
            let of = |name: &str| header(&headers, name).map(<[u8]>::to_vec);
            let cost = settings.cost.as_ref();
            let cost = cost.and_then(|part| part.of(path, of));
            let cost = cost.and_then(|cost| String::from_utf8(cost.into_owned()).ok());
            let cost = cost.and_then(|cost| cost.parse().ok());
            let cost = cost.filter(|cost: &f64| (0.0..=1e9).contains(cost));
            let cost = cost.unwrap_or(settings.default_cost);
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
        let is_answered = details.is_some_and(|details| details == BY_NODE);
        let flags = host::number(&["response", "flags"]).unwrap_or(0);
        let is_unreached = flags != 0 && flags & !UNREACHED == 0;
        self.cluster.ended(self.stream, is_answered || is_unreached);
        Action::Continue
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.cluster.ended(self.stream, false);
    }
}

/// Counters in Envoy's own statistics.
#[derive(Debug)]
struct Metrics {
    placed: Option<u32>,
    waited: Option<u32>,
    refused: Option<u32>,
    doubted: Option<u32>,
    said: PrimaryCounts,
}

impl Metrics {
    fn new(cluster: &str) -> Self {
        let counter = |name: &str| {
            let name = format!("plimsoll_placement_{name}_total.cluster.{cluster}");
            hostcalls::define_metric(MetricType::Counter, &name).ok()
        };
        Metrics {
            placed: counter("placed"),
            waited: counter("waited"),
            refused: counter("refused"),
            doubted: counter("doubted"),
            said: PrimaryCounts::default(),
        }
    }

    fn count(&mut self, counts: PrimaryCounts) {
        let said = std::mem::replace(&mut self.said, counts);
        for (metric, now, before) in [
            (self.placed, counts.placed, said.placed),
            (self.waited, counts.waited, said.waited),
            (self.refused, counts.refused, said.refused),
            (self.doubted, counts.doubted, said.doubted),
        ] {
            if let Some(metric) = metric.filter(|_| now > before) {
                let _ = hostcalls::increment_metric(metric, (now - before) as i64);
            }
        }
    }
}
