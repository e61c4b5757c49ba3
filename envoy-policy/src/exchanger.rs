//! What one party of a process does for all of its workers: it sends agents what the workers tell, follows the ring, and
//! hands out what comes back.

use plimsoll_wire::{Exchanged, MAX_DISPATCHERS, Ring, RingView};

use crate::{
    call::{Answered, Call, Request, body, in_query},
    config::Settings,
    random::Random,
    told::{Shares, Told, exchange},
};

/// How often workers look for news, and the exchanger for what is due, seconds.
pub const LOOK: f64 = 0.1;

/// An agent may keep a follower waiting for news of the ring this long, seconds.
const POLL: u32 = 25;

/// How soon is asked again for who is new or has nothing, seconds: by then all workers have told.
const EARLY: f64 = 2.0 * LOOK;

/// Which of its two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `POST /v1/observe`.
    Shares,
    /// `GET /v1/ring`, which an agent may answer late.
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

/// What an answer changed.
#[derive(Debug, PartialEq)]
pub enum News {
    /// What each worker is granted, if it is; by the number of [`Exchanger::numbers`].
    Shares(Vec<(u32, Option<Shares>)>),
    /// [`Exchanger::ring`] is another one.
    Ring,
}

/// A worker's dispatcher: its last beat, and when that was new.
#[derive(Debug)]
struct Heard {
    worker: u32,
    name: String,
    beat: u64,
    at: f64,
}

/// The state of one cluster's exchanges. At each look the caller tells how the workers are ([`Exchanger::look`]), makes
/// the calls that are due ([`Exchanger::is_due`], [`Exchanger::ask_shares`], [`Exchanger::ask_ring`]), says of each that
/// it was made ([`Exchanger::called`]), and hands over the answers ([`Exchanger::on_answer`]).
#[derive(Debug)]
pub struct Exchanger {
    exchange: Call,
    poll: Call,
    ring: Option<Ring>,
    /// Changes did not fit, so that the whole table is needed.
    wants_whole: bool,
    /// Since when agents tell of a newer ring than is held.
    behind_since: Option<f64>,
    /// When an agent last knew of this ring or a newer one.
    confirmed_at: f64,
    live: Vec<String>,
    /// Of the shares and of the ring that were handed out last.
    numbers: (u64, u64),
    heard: Vec<Heard>,
    /// Workers that had told something at the last look, and at the last exchange.
    workers: usize,
    workers_heard: usize,
    /// Whether one of them was new in the last exchange, and so gets a part only of what is free.
    greets: bool,
    /// The last wait of exchanges that are early, seconds; 0 where all workers have shares.
    hunger: f64,
    /// The number of the shares after which an exchange was early because much was given up.
    hurried_at: u64,
    in_flight: (f64, u64),
    random: Random,
}

impl Exchanger {
    /// One that knows nothing yet; `seed` tells its jitter from another's.
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

    /// Another one handed out a ring: whoever takes over goes on from it.
    pub fn remember(&mut self, ring: Ring) {
        self.ring = Some(ring);
    }

    /// It is this one that exchanges from now on, after what another handed out by these numbers.
    pub fn take_over(&mut self, numbers: (u64, u64), now: f64) {
        self.numbers = numbers;
        self.confirmed_at = now;
    }

    /// The ring in force.
    pub fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// Of the shares and of the ring that were handed out last.
    pub fn numbers(&self) -> (u64, u64) {
        self.numbers
    }

    /// Cost and requests in flight, over all workers.
    pub fn in_flight(&self) -> (f64, u64) {
        self.in_flight
    }

    /// To be called before what is due is asked for. `workers` have told something; `given_up` is the number of the
    /// shares of which one of them gave up much.
    pub fn look(&mut self, workers: usize, given_up: Option<u64>, now: f64) {
        self.workers = workers;
        // A new worker is not kept waiting.
        if workers > self.workers_heard {
            self.exchange.due = now;
        }
        // Others wait for what a worker gave up: that is told soon, though not more than once a period.
        if given_up == Some(self.numbers.0) && self.numbers.0 > self.hurried_at + 1 {
            self.hurried_at = self.numbers.0;
            // By then the other workers have told what they hold.
            self.exchange.due = self.exchange.due.min(now + LOOK);
        }
    }

    /// Whether a call is to be made now.
    pub fn is_due(&mut self, settings: &Settings, purpose: Purpose, now: f64) -> bool {
        if purpose == Purpose::Shares {
            return self.exchange.is_due(now);
        }
        let is_late = |since: f64| now - since > settings.timeout;
        // An agent that knows less than others would be waited for in vain.
        if self.behind_since.is_some_and(is_late) {
            self.behind_since = None;
            self.poll.until = now;
        }
        self.poll.is_due(now)
    }

    /// The exchange of what the workers told, and those of them that have been silent for a lease.
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

    /// The question for a newer ring.
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

    /// A call was made, and its answer will come by this token; or why it could not be.
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

    /// What the workers told since they were last heard, and who is silent.
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
            // One that broke or was taken out tells nothing any more; its shares run out.
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

    /// Takes an agent's answer to a call that is still waited for.
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
                    // An agent that is behind need not be asked again at once.
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

    /// Until the next exchange.
    fn wait(&mut self, period: f64, granted: &[(u32, Option<Shares>)]) -> f64 {
        let mut shares = granted.iter().filter_map(|(_, shares)| shares.as_ref());
        let mut wait = period;
        if shares.any(Shares::are_none) {
            // Whoever has nothing has requests to refuse: it should not wait for a whole period.
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
            let shares = Shares::of(answer, &heard.name);
            let told = |problem: &&str| log::debug!("shares of worker {worker}: {problem}");
            (worker, shares.inspect_err(told).ok())
        };
        self.heard.iter().map(shares).collect()
    }

    /// Whether it is another ring than the one that was handed out.
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
