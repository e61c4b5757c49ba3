//! How a worker gets its shares and the ring: one VM of the process, the fetcher, calls the agents. The others make
//! reports and look for news in shared data; one of them takes over if the fetcher falls silent.

use std::cell::RefCell;

use envoy_policy::{
    call::Answered,
    config::{Settings, proxy_name},
    engine::Engine,
    exchanger::{Exchanger, LOOK},
    told::Shares,
    worker::Worker,
};
use plimsoll_wire::Ring;

use crate::{
    board::{Board, pair, pair_bytes},
    fetcher, host,
};

/// Silence after which a fetcher counts as dead, seconds. Each VM waits longer than the one before by [`FETCHER_STEP`],
/// so that they do not all try at once.
const FETCHER_SILENT: f64 = 1.0;
const FETCHER_STEP: f64 = 0.15;
/// A VM without any request in this many leases since its start does not belong to a worker: Envoy also has one for its
/// main thread.
const IDLE_LEASES: f64 = 3.0;

/// One VM's shares and ring of one cluster, and its part in fetching them.
#[derive(Debug)]
pub struct Follower {
    board: Board,
    worker: Worker,
    ordinal: u32,
    /// Time of the last tick that did the work, seconds.
    last_tick: f64,
    /// Number of the last ring taken.
    ring_taken: u64,
    /// True if the VM needs shares: requests come to it, or it has started recently.
    is_dispatcher: bool,
    /// Time at which a VM without requests stops being a dispatcher, seconds; infinite after the first request.
    idle_until: f64,
    /// Ordinal and beat of the fetcher, and the time at which they last changed, seconds.
    seen: (u32, u32, f64),
    is_fetcher: bool,
    /// Makes the calls while this VM is the fetcher.
    pub exchanger: Exchanger,
    /// Time that the last ring took to come into force here, seconds; 0 before the first.
    pub ring_applied: f64,
}

impl Follower {
    /// `ordinal` is unique among the VMs of the process, `nonce` among processes, and `number` among the VM's clusters.
    pub fn new(settings: &Settings, (ordinal, nonce): (u32, u32), number: u32, seed: u64) -> Self {
        let proxy = proxy_name(settings.proxy.as_deref(), host::node_id);
        // During a hot restart two Envoys run side by side, so their names must differ.
        let name = format!("{proxy}/{nonce:x}/{ordinal}.{number}");
        Follower {
            board: Board::new(&settings.cluster),
            worker: Worker::new(name, seed),
            ordinal,
            last_tick: f64::NEG_INFINITY,
            ring_taken: 0,
            // From the start, so that there are shares before requests come.
            is_dispatcher: true,
            idle_until: host::now() + IDLE_LEASES * settings.lease,
            seen: (u32::MAX, 0, host::now()),
            is_fetcher: false,
            exchanger: Exchanger::new(seed),
            ring_applied: 0.0,
        }
    }

    /// Records that requests come to this VM, so that it needs shares.
    pub fn needs_shares(&mut self) {
        self.is_dispatcher = true;
        self.idle_until = f64::INFINITY;
    }

    /// True if this VM is the fetcher.
    pub fn is_fetcher(&self) -> bool {
        self.is_fetcher
    }

    /// Looks for news, makes a report if one is due, and does the fetcher's work. All root contexts of the cluster call
    /// this every [`LOOK`] seconds; only the first call of each round does anything.
    pub fn tick(&mut self, engine: &RefCell<Engine>) {
        let now = host::now();
        if now - self.last_tick < 0.5 * LOOK {
            return;
        }
        self.last_tick = now;
        let Ok(mut engine) = engine.try_borrow_mut() else {
            return;
        };
        engine.on_time(now);
        let has_news = self.look(&mut engine, now);
        self.tell(&mut engine, has_news, now);
        self.watch_fetcher(now);
        if self.is_fetcher {
            fetcher::fetch(&mut self.exchanger, &self.board, engine.settings(), now);
        }
    }

    /// Puts into force the ring and shares that the fetcher has published since the last call. Returns true if there
    /// were new shares, for this VM or others.
    fn look(&mut self, engine: &mut Engine, now: f64) -> bool {
        let Some(numbers) = self.board.numbers() else {
            return false;
        };
        if numbers.1 != self.ring_taken {
            self.ring_taken = numbers.1;
            let shared = host::shared(&self.board.ring());
            if let Some(ring) = shared.and_then(|(value, _)| Ring::from_bytes(&value)) {
                engine.take_ring(&ring);
                if !self.is_fetcher {
                    self.exchanger.remember(ring);
                }
                self.ring_applied = host::now() - now;
            }
        }
        if numbers.0 == self.worker.taken() {
            return false;
        }
        let shared = host::shared(&self.board.share(self.ordinal));
        let shares =
            shared.and_then(|(value, _)| serde_json::from_slice::<(u64, Shares)>(&value).ok());
        // Shares of an earlier exchange are not new.
        let shares = shares.filter(|(number, _)| *number == numbers.0);
        let shares = shares.map(|(_, shares)| shares);
        if self.worker.take(engine, numbers.0, shares, now) {
            host::share(&self.board.given_up(), &numbers.0.to_le_bytes());
        }
        true
    }

    /// Publishes a report of the worker's demand, of what it has in flight and of what it observed, once a period and
    /// after new shares.
    fn tell(&mut self, engine: &mut Engine, has_news: bool, now: f64) {
        self.is_dispatcher &= now <= self.idle_until;
        if !self.is_dispatcher || !(self.worker.is_due(now) || has_news) {
            return;
        }
        let told = self.worker.tell(engine, now);
        if let Ok(value) = serde_json::to_vec(&told) {
            host::share(&self.board.told(self.ordinal), &value);
            self.board.be_listed(self.ordinal);
        }
    }

    /// Renews the fetcher's beat if this VM is the fetcher, and takes over if the fetcher has been silent for too long.
    fn watch_fetcher(&mut self, now: f64) {
        let key = self.board.fetcher();
        let held = host::shared(&key);
        let fetcher = held.as_ref().and_then(|(value, _)| pair(value));
        let cas = held.map(|(_, cas)| cas);
        let (ordinal, beat) = fetcher.map_or((u32::MAX, 0), |(o, b)| (o as u32, b as u32));
        if fetcher.is_some() && (ordinal, beat) != (self.seen.0, self.seen.1) {
            self.seen = (ordinal, beat, now);
        }
        let patience = FETCHER_SILENT + FETCHER_STEP * f64::from(self.ordinal.min(32));
        let was = self.is_fetcher;
        if fetcher.is_none() || ordinal == self.ordinal || now - self.seen.2 > patience {
            let mine = pair_bytes(u64::from(self.ordinal), u64::from(beat.wrapping_add(1)));
            self.is_fetcher = host::share_if(&key, &mine, cas);
            if self.is_fetcher {
                self.seen = (self.ordinal, beat.wrapping_add(1), now);
            }
        } else {
            self.is_fetcher = false;
        }
        if self.is_fetcher && !was {
            let numbers = self.board.numbers().unwrap_or((0, 0));
            self.exchanger.take_over(numbers, now);
        }
    }

    /// Takes an agent's answer to the call with this token; ignored if no such call is in flight.
    pub fn on_answer(&mut self, settings: &Settings, token: u64, answered: Answered) {
        let answer = (token, answered);
        fetcher::on_answer(&mut self.exchanger, &self.board, settings, answer);
    }
}
