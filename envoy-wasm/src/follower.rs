//! How a worker gets its shares and the ring: one VM of the process, the fetcher, talks to an agent. The
//! others only tell and look, and one of them takes over where the fetcher falls silent.

use std::cell::RefCell;

use crate::{
    board::{Board, pair, pair_bytes},
    config::{Settings, is_name},
    engine::Engine,
    fetcher::Fetcher,
    host,
    wire::{Ring, Shares, Told},
};

/// How often a worker looks, seconds.
pub const LOOK: f64 = 0.1;
/// A fetcher silent for this long is dead, seconds; each worker waits a little longer than the one before.
const FETCHER_SILENT: f64 = 1.0;
const FETCHER_STEP: f64 = 0.15;
/// A VM that got no request for so many leases since its start is not a worker's: Envoy has one for its
/// main thread as well.
const IDLE_LEASES: f64 = 3.0;

/// One cluster's, in one VM.
#[derive(Debug)]
pub struct Follower {
    board: Board,
    name: String,
    instance: String,
    ordinal: u32,
    last_tick: f64,
    /// Numbers of the shares and of the ring that were taken.
    taken: (u64, u64),
    /// Whether requests come to this VM, so that it needs shares.
    is_dispatcher: bool,
    /// When that is given up where none came.
    idle_until: f64,
    /// When the period is over.
    period_end: f64,
    beat: u64,
    random: u64,
    /// The fetcher, its beat and when that was new.
    seen: (u32, u32, f64),
    is_fetcher: bool,
    /// What is done by the one that is.
    pub fetcher: Fetcher,
    /// Seconds that the last ring took to be taken over here.
    pub ring_applied: f64,
}

impl Follower {
    /// The VM is told apart from others by its `ordinal` in the process and the process's `nonce`, the
    /// cluster from the VM's others by its `number`.
    pub fn new(settings: &Settings, (ordinal, nonce): (u32, u32), number: u32, seed: u64) -> Self {
        let node_id =
            || host::property(&["xds", "node", "id"]).and_then(|id| String::from_utf8(id).ok());
        let proxy = settings
            .proxy
            .clone()
            .or_else(node_id)
            .filter(|name| is_name(name));
        let proxy = proxy.unwrap_or_else(|| "envoy".to_owned());
        Follower {
            board: Board::new(&settings.cluster),
            // An Envoy that hands over to another lives on beside it: their names must differ.
            name: format!("{proxy}/{nonce:x}/{ordinal}.{number}"),
            instance: format!("{seed:x}"),
            ordinal,
            last_tick: f64::NEG_INFINITY,
            taken: (0, 0),
            // At once, so that there are shares before requests come.
            is_dispatcher: true,
            idle_until: host::now() + IDLE_LEASES * settings.lease,
            period_end: 0.0,
            beat: 0,
            random: seed | 1,
            seen: (u32::MAX, 0, host::now()),
            is_fetcher: false,
            fetcher: Fetcher::default(),
            ring_applied: 0.0,
        }
    }

    /// 0..1.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Requests come to this VM.
    pub fn needs_shares(&mut self) {
        self.is_dispatcher = true;
        self.idle_until = f64::INFINITY;
    }

    /// Whether this VM talks to agents.
    pub fn is_fetcher(&self) -> bool {
        self.is_fetcher
    }

    /// To be called by every root context of the cluster; the first of them does the work.
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
            let random = self.random();
            self.fetcher
                .fetch(&self.board, engine.settings(), now, random);
        }
    }

    /// Takes over what the fetcher has shared since the last look; whether there were shares.
    fn look(&mut self, engine: &mut Engine, now: f64) -> bool {
        let Some(numbers) = self.board.numbers() else {
            return false;
        };
        if numbers.1 != self.taken.1 {
            self.taken.1 = numbers.1;
            let shared = host::shared(&self.board.ring());
            if let Some(ring) = shared.and_then(|(value, _)| Ring::from_bytes(&value)) {
                let dispatcher = engine.dispatcher();
                dispatcher.on_ring(ring.table.clone(), ring.names.clone());
                if !self.is_fetcher {
                    self.fetcher.remember(ring);
                }
                self.ring_applied = host::now() - now;
            }
        }
        if numbers.0 == self.taken.0 {
            return false;
        }
        self.taken.0 = numbers.0;
        let shared = host::shared(&self.board.share(self.ordinal));
        let shares =
            shared.and_then(|(value, _)| serde_json::from_slice::<(u64, Shares)>(&value).ok());
        // An old one is not news.
        if let Some((number, shares)) = shares.filter(|(number, _)| *number == numbers.0) {
            let count = usize::try_from(shares.count).unwrap_or(usize::MAX);
            let dispatcher = engine.dispatcher();
            if dispatcher.on_shares(now, count.min(1 << 20), &shares.nodes()) {
                host::share(&self.board.given_up(), &number.to_le_bytes());
            }
        }
        true
    }

    /// Once a period, and where there are new shares: what this worker wanted, holds and saw.
    fn tell(&mut self, engine: &mut Engine, has_news: bool, now: f64) {
        self.is_dispatcher &= now <= self.idle_until;
        let is_over = now >= self.period_end;
        if !self.is_dispatcher || !(is_over || has_news) {
            return;
        }
        if is_over {
            let period = engine.settings().period;
            self.period_end = now + period * (0.9 + 0.2 * self.random());
            engine.dispatcher().end_period();
        }
        self.beat += 1;
        let (in_flight, requests) = engine.in_flight();
        let report = engine.dispatcher().report();
        let told = Told {
            beat: self.beat,
            taken: self.taken.0,
            name: self.name.clone(),
            instance: self.instance.clone(),
            in_flight,
            requests,
            nodes: report.into_iter().map(Into::into).collect(),
        };
        if let Ok(value) = serde_json::to_vec(&told) {
            host::share(&self.board.told(self.ordinal), &value);
            self.board.be_listed(self.ordinal);
        }
    }

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
            self.fetcher.take_over(&self.board, now);
        }
    }

    /// Takes an agent's answer to a call that is still waited for.
    pub fn on_answer(&mut self, answer: (u32, u32, &[u8]), settings: &Settings) {
        let random = self.random();
        self.fetcher
            .on_answer(&self.board, settings, answer, random);
    }
}
