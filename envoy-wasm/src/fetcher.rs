//! What the VM that talks to an agent for all of its process does: it sends what the workers tell, follows
//! the ring, and shares what comes back.

use plimsoll_core::wire::MAX_DISPATCHERS;

use crate::{
    board::Board,
    call::{Call, ask, in_query, read},
    config::Settings,
    follower::LOOK,
    host,
    wire::{Answer, Ring, RingView, Told, exchange},
};

/// An agent may keep a follower waiting for news of the ring this long, seconds.
const POLL: u32 = 25;

/// How soon is asked again for who is new or has nothing, seconds: by then all workers have told.
const EARLY: f64 = 2.0 * LOOK;

/// A worker's dispatcher: its last beat, and when that was new.
#[derive(Debug)]
struct Heard {
    ordinal: u32,
    name: String,
    beat: u64,
    at: f64,
}

/// Its state; every VM has one, for it may have to take over.
#[derive(Debug, Default)]
pub struct Fetcher {
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
    /// Of the shares and of the ring that were shared last.
    numbers: (u64, u64),
    heard: Vec<Heard>,
    /// VMs that had told something at the last exchange.
    tellers_heard: usize,
    /// Whether one of them was new in the last exchange, and so gets a part only of what is free.
    greets: bool,
    /// The last wait of exchanges that are early, seconds; 0 where all workers have shares.
    hunger: f64,
    /// The number of the shares after which an exchange was early because much was given up.
    hurried_at: u64,
    /// In flight, over all workers.
    pub in_flight: (f64, u64),
}

fn agents(settings: &Settings) -> (&str, Option<&str>) {
    (&settings.agents, settings.token.as_deref())
}

impl Fetcher {
    /// Another VM shared a ring: whoever becomes the fetcher goes on from it.
    pub fn remember(&mut self, ring: Ring) {
        self.ring = Some(ring);
    }

    /// This VM is the fetcher from now on.
    pub fn take_over(&mut self, board: &Board, now: f64) {
        self.numbers = board.numbers().unwrap_or((0, 0));
        self.confirmed_at = now;
    }

    /// Makes the calls that are due.
    pub fn fetch(&mut self, board: &Board, settings: &Settings, now: f64, random: f64) {
        // A new worker is not kept waiting.
        if board.tellers().0.len() > self.tellers_heard {
            self.exchange.due = now;
        }
        self.heed_given_up(board, now);
        if self.exchange.is_due(now) {
            let told = self.told(board, settings, now);
            let service = settings.service.as_deref();
            let body = exchange(service, settings.lease, &told, &self.live);
            let timeout = settings.timeout;
            let called = ask(agents(settings), "/v1/observe", Some(&body), timeout);
            self.exchange
                .started("shares", called, (now, timeout), random);
        }
        // An agent that knows less than others would be waited for in vain.
        if self
            .behind_since
            .is_some_and(|since| now - since > settings.timeout)
        {
            self.behind_since = None;
            self.poll.until = now;
        }
        if self.poll.is_due(now) {
            let mut path = format!("/v1/ring?wait={POLL}");
            if let Some(ring) = self.ring.as_ref().filter(|_| !self.wants_whole) {
                path += &format!("&since={}", ring.table.version());
            }
            if let Some(service) = &settings.service {
                path += &format!("&service={}", in_query(service));
            }
            let timeout = f64::from(POLL) + settings.timeout;
            let called = ask(agents(settings), &path, None, timeout);
            self.poll.started("ring", called, (now, timeout), random);
        }
    }

    /// Others wait for what a worker gave up: that is told soon, though not more than once a period.
    fn heed_given_up(&mut self, board: &Board, now: f64) {
        let given_up = host::shared(&board.given_up()).map(|(value, _)| value);
        let is_news = given_up.is_some_and(|value| value == self.numbers.0.to_le_bytes());
        if is_news && self.numbers.0 > self.hurried_at + 1 {
            self.hurried_at = self.numbers.0;
            // By then the other workers have told what they hold.
            self.exchange.due = self.exchange.due.min(now + LOOK);
        }
    }

    /// What the workers told since they were last heard.
    fn told(&mut self, board: &Board, settings: &Settings, now: f64) -> Vec<Told> {
        let (tellers, cas) = board.tellers();
        self.tellers_heard = tellers.len();
        self.greets = false;
        let mut found = Vec::new();
        self.in_flight = (0.0, 0);
        let mut heard = Vec::new();
        let mut silent = false;
        for &ordinal in &tellers {
            let Some((value, _)) = host::shared(&board.told(ordinal)) else {
                continue;
            };
            let Ok(mut told) = serde_json::from_slice::<Told>(&value) else {
                continue;
            };
            let before = self.heard.iter().find(|before| before.ordinal == ordinal);
            self.greets |= before.is_none();
            let at = before
                .filter(|before| before.beat == told.beat)
                .map_or(now, |before| before.at);
            // A VM that broke or was taken out tells nothing any more; its shares run out.
            if now - at > settings.lease {
                silent = true;
                continue;
            }
            if told.taken != self.numbers.0 {
                told.hold_all();
            }
            heard.push(Heard {
                ordinal,
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
        if silent {
            let live: Vec<u32> = self.heard.iter().map(|heard| heard.ordinal).collect();
            board.set_tellers(&live, cas);
        }
        found
    }

    /// Takes an agent's answer to a call that is still waited for.
    pub fn on_answer(
        &mut self,
        board: &Board,
        settings: &Settings,
        (token, status, body): (u32, u32, &[u8]),
        random: f64,
    ) {
        let now = host::now();
        if self.exchange.takes(token) {
            match read(status, body).and_then(|()| Answer::parse(body)) {
                Ok(answer) => {
                    let mut wait = settings.period * (0.9 + 0.2 * random);
                    if self.take_answer(board, &answer, now) {
                        // Whoever has nothing has requests to refuse: it should not wait for a whole period.
                        self.hunger = (2.0 * self.hunger).max(EARLY);
                        wait = wait.min(self.hunger);
                    } else {
                        self.hunger = 0.0;
                    }
                    if self.greets {
                        wait = wait.min(EARLY);
                    }
                    self.exchange.succeeded("shares", now + wait);
                }
                Err(problem) => self.exchange.failed("shares", problem, now, random),
            }
        } else if self.poll.takes(token) {
            match self.take_ring(board, (status, body), now, settings.lease) {
                // An agent that is behind need not be asked again at once.
                Ok(()) => self.poll.succeeded("ring", now + LOOK),
                Err(problem) => self.poll.failed("ring", problem, now, random),
            }
        }
    }

    /// Whether a worker has nothing of any bound.
    fn take_answer(&mut self, board: &Board, answer: &Answer, now: f64) -> bool {
        self.live = answer.live();
        let held = self.ring.as_ref().map(|ring| ring.table.version());
        if held.is_some_and(|held| answer.version >= held) {
            self.confirmed_at = now;
        }
        self.behind_since = match held {
            Some(held) if answer.version > held => self.behind_since.or(Some(now)),
            _ => None,
        };
        let number = self.numbers.0 + 1;
        let mut is_hungry = false;
        for Heard { ordinal, name, .. } in &self.heard {
            match answer.shares(name) {
                Ok(shares) => {
                    is_hungry |= shares.are_none();
                    if let Ok(value) = serde_json::to_vec(&(number, shares)) {
                        host::share(&board.share(*ordinal), &value);
                    }
                }
                Err(problem) => log::debug!("shares of worker {ordinal}: {problem}"),
            }
        }
        self.numbers.0 = number;
        board.set_numbers(self.numbers);
        is_hungry
    }

    fn take_ring(
        &mut self,
        board: &Board,
        (status, body): (u32, &[u8]),
        now: f64,
        lease: f64,
    ) -> Result<(), String> {
        if status == 304 {
            self.confirmed_at = now;
            return Ok(());
        }
        read(status, body)?;
        let view = RingView::parse(body)?;
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
        if self.ring.as_ref() != Some(&ring) {
            host::share(&board.ring(), &ring.to_bytes());
            self.numbers.1 += 1;
            board.set_numbers(self.numbers);
        }
        self.ring = Some(ring);
        Ok(())
    }
}
