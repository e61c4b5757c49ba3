//! The exchange with agents on behalf of all workers of a process: sends the workers' reports, follows the ring, and
//! distributes the results.

use plimsoll_wire::{Exchanged, MAX_DISPATCHERS, Ring, RingView};

use crate::{
    call::{Answered, Call, Request, body, in_query},
    config::Settings,
    random::Random,
    told::{Shares, Told, exchange},
};

/// Interval at which workers check for news, and the exchanger for due calls, in seconds.
pub const LOOK: f64 = 0.1;

/// How long an agent may delay its answer until there is a newer ring, in seconds.
const POLL: u32 = 25;

/// Interval between exchanges for workers that are new or have no shares, in seconds: by then all workers have
/// reported.
const EARLY: f64 = 2.0 * LOOK;

/// The two kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `POST /v1/observe`.
    Shares,
    /// `GET /v1/ring`, a long poll.
    Ring,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Purpose::Shares => "shares",
            Purpose::Ring => "ring",
        }
    }
}

/// Changes that result from an answer.
#[derive(Debug, PartialEq)]
pub enum News {
    /// Shares granted to each worker, if any; their number is the first of [`Exchanger::numbers`].
    Shares(Vec<(u32, Option<Shares>)>),
    /// [`Exchanger::ring`] has changed.
    Ring,
}

/// A worker's dispatcher, with its last beat and when that changed.
#[derive(Debug)]
struct Heard {
    worker: u32,
    name: String,
    beat: u64,
    at: f64,
    /// When its report was made, seconds of the worker's clock.
    told_at: f64,
}

/// State of one cluster's exchanges. At each check the caller reports the state of the workers ([`Exchanger::look`]),
/// makes the calls that are due ([`Exchanger::is_due`], [`Exchanger::ask_shares`], [`Exchanger::ask_ring`]), reports
/// the result of each call ([`Exchanger::called`]), and passes in the answers ([`Exchanger::on_answer`]).
#[derive(Debug)]
pub struct Exchanger {
    exchange: Call,
    poll: Call,
    ring: Option<Ring>,
    /// Whether changes could not be applied, so that the whole table is needed.
    wants_whole: bool,
    /// When agents began to report a newer ring than the one held.
    behind_since: Option<f64>,
    /// When an agent last confirmed this ring or a newer one.
    confirmed_at: f64,
    live: Vec<String>,
    /// Numbers of the shares and of the ring that were distributed last.
    numbers: (u64, u64),
    heard: Vec<Heard>,
    /// Number of workers with a report at the last check, and at the last exchange.
    workers: usize,
    workers_heard: usize,
    /// Whether any of them was new in the last exchange; a new one gets only a part of what is free.
    greets: bool,
    /// Last interval between early exchanges, in seconds; 0 if all workers have shares.
    hunger: f64,
    /// Number of the shares after which an exchange was made early because a worker gave up much.
    hurried_at: u64,
    in_flight: (f64, u64),
    random: Random,
}

impl Exchanger {
    /// A new exchanger; `seed` makes its jitter different from others'.
    pub fn new(seed: u64) -> Self {
        Exchanger {
            exchange: Call::default(),
            poll: Call::default(),
            ring: None,
            wants_whole: false,
            behind_since: None,
            confirmed_at: 0.0,
            live: Vec::new(),
            numbers: (0, 0),
            heard: Vec::new(),
            workers: 0,
            workers_heard: 0,
            greets: false,
            hunger: 0.0,
            hurried_at: 0,
            in_flight: (0.0, 0),
            random: Random::new(seed),
        }
    }

    /// Adopts a ring that another exchanger distributed, to continue from it.
    pub fn remember(&mut self, ring: Ring) {
        self.ring = Some(ring);
    }

    /// Makes this the active exchanger, continuing from the numbers of another.
    pub fn take_over(&mut self, numbers: (u64, u64), now: f64) {
        self.numbers = numbers;
        self.confirmed_at = now;
    }

    /// The current ring.
    pub fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// Numbers of the shares and of the ring that were distributed last.
    pub fn numbers(&self) -> (u64, u64) {
        self.numbers
    }

    /// Cost and requests in flight, over all workers.
    pub fn in_flight(&self) -> (f64, u64) {
        self.in_flight
    }

    /// Call this before checking what is due. `workers` is the number of workers with a report; `given_up` is the
    /// number of the shares of which one of them gave up much.
    pub fn look(&mut self, workers: usize, given_up: Option<u64>, now: f64) {
        self.workers = workers;
        // Do not keep a new worker waiting.
        if workers > self.workers_heard {
            self.exchange.due = now;
        }
        // Other workers wait for what this one gave up: report it soon, but not more than once per period.
        if given_up == Some(self.numbers.0) && self.numbers.0 > self.hurried_at + 1 {
            self.hurried_at = self.numbers.0;
            // By then the other workers have reported what they hold.
            self.exchange.due = self.exchange.due.min(now + LOOK);
        }
    }

    /// Whether a call is due.
    pub fn is_due(&mut self, settings: &Settings, purpose: Purpose, now: f64) -> bool {
        if purpose == Purpose::Shares {
            return self.exchange.is_due(now);
        }
        let is_late = |since: f64| now - since > settings.timeout;
        // It would be pointless to wait for an agent that is behind others.
        if self.behind_since.is_some_and(is_late) {
            self.behind_since = None;
            self.poll.until = now;
        }
        self.poll.is_due(now)
    }

    /// Builds the exchange from the workers' reports; also returns the workers that have been silent for a lease.
    pub fn ask_shares(
        &mut self,
        settings: &Settings,
        told: Vec<(u32, Told)>,
        now: f64,
    ) -> (Request, Vec<u32>) {
        let (told, silent) = self.hear(told, settings.lease, now);
        let service = settings.service.as_deref();
        let request = Request {
            path: "/v1/observe".to_owned(),
            body: Some(exchange(service, settings.lease, told, &self.live)),
            timeout: settings.timeout,
        };
        (request, silent)
    }

    /// Builds the request for a newer ring.
    pub fn ask_ring(&self, settings: &Settings) -> Request {
        let mut path = format!("/v1/ring?wait={POLL}");
        if let Some(ring) = self.ring.as_ref().filter(|_| !self.wants_whole) {
            path += &format!("&since={}", ring.table.version());
        }
        if let Some(service) = &settings.service {
            path += &format!("&service={}", in_query(service));
        }
        Request {
            path,
            body: None,
            timeout: f64::from(POLL) + settings.timeout,
        }
    }

    /// Records that a call was made, with the token of its answer, or why it could not be made.
    pub fn called(
        &mut self,
        purpose: Purpose,
        request: &Request,
        called: Result<u64, String>,
        now: f64,
    ) {
        let random = self.random.fraction();
        let call = match purpose {
            Purpose::Shares => &mut self.exchange,
            Purpose::Ring => &mut self.poll,
        };
        call.started(purpose.word(), called, (now, request.timeout), random);
    }

    /// Returns the reports of active workers, and the silent workers.
    fn hear(&mut self, told: Vec<(u32, Told)>, lease: f64, now: f64) -> (Vec<Told>, Vec<u32>) {
        self.workers_heard = self.workers;
        self.greets = false;
        self.in_flight = (0.0, 0);
        let (mut found, mut silent, mut heard) = (Vec::new(), Vec::new(), Vec::new());
        for (worker, mut told) in told {
            let before = self.heard.iter().find(|before| before.worker == worker);
            self.greets |= before.is_none();
            let at = before
                .filter(|before| before.beat == told.beat)
                .map_or(now, |before| before.at);
            // A worker that failed or was removed reports nothing new; its shares expire.
            if now - at > lease {
                silent.push(worker);
                continue;
            }
            if told.taken != self.numbers.0 {
                told.hold_all();
            }
            heard.push(Heard {
                worker,
                name: told.name.clone(),
                beat: told.beat,
                at,
                told_at: told.at,
            });
            self.in_flight.0 += told.in_flight;
            self.in_flight.1 += told.requests;
            if found.len() < MAX_DISPATCHERS {
                found.push(told);
            }
        }
        self.heard = heard;
        (found, silent)
    }

    /// Handles an agent's answer, if its call is still pending.
    pub fn on_answer(
        &mut self,
        settings: &Settings,
        token: u64,
        answered: Answered,
        now: f64,
    ) -> Option<News> {
        let random = self.random.fraction();
        if self.exchange.takes(token) {
            match body(answered).and_then(Exchanged::parse) {
                Ok(answer) => {
                    let granted = self.take_answer(&answer, now);
                    let wait = self.wait(settings.period * (0.9 + 0.2 * random), &granted);
                    self.exchange.succeeded(Purpose::Shares.word(), now + wait);
                    return Some(News::Shares(granted));
                }
                Err(problem) => {
                    let purpose = Purpose::Shares.word();
                    self.exchange.failed(purpose, problem, now, random);
                }
            }
        } else if self.poll.takes(token) {
            match self.take_ring(answered, now, settings.lease) {
                Ok(is_news) => {
                    // Do not poll an agent that is behind again at once.
                    self.poll.succeeded(Purpose::Ring.word(), now + LOOK);
                    return is_news.then_some(News::Ring);
                }
                Err(problem) => {
                    let purpose = Purpose::Ring.word();
                    self.poll.failed(purpose, problem, now, random);
                }
            }
        }
        None
    }

    /// Time until the next exchange.
    fn wait(&mut self, period: f64, granted: &[(u32, Option<Shares>)]) -> f64 {
        let mut shares = granted.iter().filter_map(|(_, shares)| shares.as_ref());
        let mut wait = period;
        if shares.any(Shares::are_none) {
            // A worker without shares refuses requests: do not make it wait for a whole period.
            self.hunger = (2.0 * self.hunger).max(EARLY);
            wait = wait.min(self.hunger);
        } else {
            self.hunger = 0.0;
        }
        if self.greets {
            wait = wait.min(EARLY);
        }
        wait
    }

    fn take_answer(&mut self, answer: &Exchanged, now: f64) -> Vec<(u32, Option<Shares>)> {
        self.live = answer.nodes.keys().cloned().collect();
        let held = self.ring.as_ref().map(|ring| ring.table.version());
        if held.is_some_and(|held| answer.version >= held) {
            self.confirmed_at = now;
        }
        self.behind_since = match held {
            Some(held) if answer.version > held => self.behind_since.or(Some(now)),
            _ => None,
        };
        self.numbers.0 += 1;
        let shares = |heard: &Heard| {
            let worker = heard.worker;
            let shares = Shares::of(answer, &heard.name, heard.told_at);
            let told = |problem: &&str| log::debug!("shares of worker {worker}: {problem}");
            (worker, shares.inspect_err(told).ok())
        };
        self.heard.iter().map(shares).collect()
    }

    /// Returns whether the ring differs from the one distributed.
    fn take_ring(&mut self, answered: Answered, now: f64, lease: f64) -> Result<bool, String> {
        if matches!(answered, Ok((304, _))) {
            self.confirmed_at = now;
            return Ok(false);
        }
        let view = RingView::parse(body(answered)?)?;
        let held = self.ring.as_ref().map_or(0, |ring| ring.table.version());
        if view.version() < held && now - self.confirmed_at <= lease {
            return Err(format!(
                "version {} after version {held}: an agent is behind",
                view.version()
            ));
        }
        let made = view.ring(self.ring.as_ref());
        self.wants_whole = made.is_err();
        let ring = made?;
        self.confirmed_at = now;
        let is_news = self.ring.as_ref() != Some(&ring);
        if is_news {
            self.numbers.1 += 1;
        }
        self.ring = Some(ring);
        Ok(is_news)
    }
}
