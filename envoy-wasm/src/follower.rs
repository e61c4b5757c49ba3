//! How a worker gets its shares and the ring. One VM of the process, the fetcher, talks to an agent: it
//! sends what all workers tell, and shares what comes back. The others only look, and one of them takes
//! over where the fetcher falls silent.

use std::cell::RefCell;

use log::{info, warn};

use crate::{
    config::{Settings, is_name},
    engine::Engine,
    host,
    wire::{Answer, MOST_DISPATCHERS, Ring, RingView, Shares, Told},
};

/// How often a worker looks, seconds.
pub const LOOK: f64 = 0.1;
/// A fetcher silent for this long is dead, seconds; each worker waits a little longer than the one before.
const FETCHER_SILENT: f64 = 1.0;
const FETCHER_STEP: f64 = 0.15;
/// First wait after a failure, seconds; doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: f64 = 0.1;
const LONGEST_WAIT: f64 = 5.0;
/// An agent may keep a follower waiting for news of the ring this long, seconds.
const POLL: u32 = 25;
/// The longest answer that is read: a ring of 65,536 slots, all of them in runs of one.
pub const LONGEST_ANSWER: usize = 4 << 20;
const LONGEST_PROBLEM: usize = 300;
/// The most VMs that are told of.
const MOST_VMS: usize = 4096;
/// A VM that got no request for so many leases since its start is not a worker's: Envoy has one for its
/// main thread as well.
const IDLE_LEASES: f64 = 3.0;
/// A call that was not answered this long after its own timeout went with the configuration that made it,
/// seconds.
const LOST: f64 = 1.0;

/// A call to an agent: when it is due, and what came of it.
#[derive(Debug, Default)]
struct Call {
    token: Option<u32>,
    /// It is not waited for any longer.
    until: f64,
    due: f64,
    wait: f64,
    said: Option<String>,
}

impl Call {
    fn is_due(&self, now: f64) -> bool {
        match self.token {
            Some(_) => now >= self.until,
            None => now >= self.due,
        }
    }

    fn started(
        &mut self,
        purpose: &str,
        called: Result<u32, String>,
        (now, timeout): (f64, f64),
        random: f64,
    ) {
        self.token = None;
        match called {
            Ok(token) => {
                self.token = Some(token);
                self.until = now + timeout + LOST;
            }
            Err(problem) => self.failed(purpose, problem, now, random),
        }
    }

    fn failed(&mut self, purpose: &str, problem: String, now: f64, random: f64) {
        let readable = |c: char| if c.is_control() { '?' } else { c };
        let problem: String = problem
            .chars()
            .take(LONGEST_PROBLEM)
            .map(readable)
            .collect();
        if self.said.as_ref() != Some(&problem) {
            warn!("{purpose}: {problem}");
            self.said = Some(problem);
        }
        self.wait = (2.0 * self.wait).clamp(FIRST_WAIT, LONGEST_WAIT);
        self.due = now + self.wait * (0.5 + random);
    }

    fn succeeded(&mut self, purpose: &str, due: f64) {
        self.wait = 0.0;
        self.due = due;
        if self.said.take().is_some() {
            info!("{purpose}: in touch again");
        }
    }
}

/// One cluster's, in one VM.
#[derive(Debug)]
pub struct Follower {
    prefix: String,
    name: String,
    instance: String,
    ordinal: u32,
    last_tick: f64,
    /// Numbers of the news and of the ring that were taken.
    taken: (u64, u64),
    /// Whether requests come to this VM, so that it needs shares.
    is_dispatcher: bool,
    /// When that is given up where none came.
    idle_until: f64,
    tell_at: f64,
    beat: u64,
    random: u64,
    /// The fetcher, its beat and when that was new.
    fetcher: (u32, u32, f64),
    is_fetcher: bool,
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
    numbers: (u64, u64),
    /// Each VM's dispatcher: its name, its last beat, and when that was new.
    heard: Vec<(u32, String, u64, f64)>,
    /// VMs that had told something at the last exchange.
    tellers_heard: usize,
    /// The last wait of exchanges that are early, seconds; 0 where all workers have shares.
    hunger: f64,
    /// In flight, over all workers.
    pub in_flight: (f64, u64),
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
        // An Envoy that hands over to another lives on beside it: their names must differ.
        let name = format!("{proxy}/{nonce:x}/{ordinal}.{number}");
        Follower {
            prefix: format!("plimsoll/{}", settings.cluster),
            name,
            instance: format!("{seed:x}"),
            ordinal,
            last_tick: f64::NEG_INFINITY,
            taken: (0, 0),
            // At once, so that there are shares before requests come.
            is_dispatcher: true,
            idle_until: host::now() + IDLE_LEASES * settings.lease,
            tell_at: 0.0,
            beat: 0,
            random: seed | 1,
            fetcher: (u32::MAX, 0, host::now()),
            is_fetcher: false,
            exchange: Call::default(),
            poll: Call::default(),
            ring: None,
            wants_whole: false,
            behind_since: None,
            confirmed_at: 0.0,
            live: Vec::new(),
            numbers: (0, 0),
            heard: Vec::new(),
            tellers_heard: 0,
            hunger: 0.0,
            in_flight: (0.0, 0),
            ring_applied: 0.0,
        }
    }

    fn key(&self, what: &str) -> String {
        format!("{}/{what}", self.prefix)
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
        self.look(engine, now);
        let settings = match engine.try_borrow() {
            Ok(engine) => engine.settings().clone(),
            Err(_) => return,
        };
        self.tell(engine, &settings, now);
        self.watch_fetcher(now);
        if self.is_fetcher {
            self.fetch(&settings, now);
        }
    }

    /// Takes over what the fetcher has shared since the last look.
    fn look(&mut self, engine: &RefCell<Engine>, now: f64) {
        let Ok(mut engine) = engine.try_borrow_mut() else {
            return;
        };
        engine.on_time(now);
        let Some(numbers) = host::shared(&self.key("numbers")).and_then(|(value, _)| pair(&value))
        else {
            return;
        };
        if numbers.0 != self.taken.0 {
            self.taken.0 = numbers.0;
            let shared = host::shared(&self.key(&format!("share/{}", self.ordinal)));
            let shares =
                shared.and_then(|(value, _)| serde_json::from_slice::<(u64, Shares)>(&value).ok());
            // An old one is not news.
            if let Some((number, shares)) = shares.filter(|(number, _)| *number == numbers.0) {
                let _ = number;
                let count = usize::try_from(shares.count)
                    .unwrap_or(usize::MAX)
                    .min(1 << 20);
                engine.dispatcher().on_shares(now, count, &shares.nodes());
            }
        }
        if numbers.1 != self.taken.1 {
            self.taken.1 = numbers.1;
            let shared = host::shared(&self.key("ring"));
            if let Some(ring) = shared.and_then(|(value, _)| Ring::from_bytes(&value)) {
                engine
                    .dispatcher()
                    .on_ring(ring.table.clone(), ring.names.clone());
                // Whoever becomes the fetcher goes on from it.
                if !self.is_fetcher {
                    self.ring = Some(ring);
                }
                self.ring_applied = host::now() - now;
            }
        }
    }

    /// Once a period: what this worker wanted and saw.
    fn tell(&mut self, engine: &RefCell<Engine>, settings: &Settings, now: f64) {
        self.is_dispatcher &= now <= self.idle_until;
        if !self.is_dispatcher || now < self.tell_at {
            return;
        }
        let Ok(mut engine) = engine.try_borrow_mut() else {
            return;
        };
        self.tell_at = now + settings.period * (0.9 + 0.2 * self.random());
        self.beat += 1;
        let (in_flight, requests) = engine.in_flight();
        let told = Told {
            beat: self.beat,
            name: self.name.clone(),
            instance: self.instance.clone(),
            in_flight,
            requests,
            nodes: engine
                .dispatcher()
                .report()
                .into_iter()
                .map(Into::into)
                .collect(),
        };
        if let Ok(value) = serde_json::to_vec(&told) {
            host::share(&self.key(&format!("told/{}", self.ordinal)), &value);
            self.be_listed();
        }
    }

    /// The VMs that tell, and what a change of them is compared with.
    fn tellers(&self) -> (Vec<u32>, Option<u32>) {
        let Some((value, cas)) = host::shared(&self.key("tellers")) else {
            return (Vec::new(), None);
        };
        let words = value.chunks_exact(4);
        let ordinal = |word: &[u8]| Some(u32::from_le_bytes(word.try_into().ok()?));
        (words.filter_map(ordinal).collect(), Some(cas))
    }

    fn set_tellers(&self, tellers: &[u32], cas: Option<u32>) {
        let value: Vec<u8> = tellers.iter().flat_map(|vm| vm.to_le_bytes()).collect();
        // Where another was faster it is done at the next telling.
        let _ = host::share_if(&self.key("tellers"), &value, cas);
    }

    fn be_listed(&self) {
        let (mut tellers, cas) = self.tellers();
        if !tellers.contains(&self.ordinal) && tellers.len() < MOST_VMS {
            tellers.push(self.ordinal);
            self.set_tellers(&tellers, cas);
        }
    }

    fn watch_fetcher(&mut self, now: f64) {
        let key = self.key("fetcher");
        let held = host::shared(&key);
        let fetcher = held.as_ref().and_then(|(value, _)| pair(value));
        let cas = held.map(|(_, cas)| cas);
        let (ordinal, beat) = fetcher.map_or((u32::MAX, 0), |(o, b)| (o as u32, b as u32));
        if fetcher.is_some() && (ordinal, beat) != (self.fetcher.0, self.fetcher.1) {
            self.fetcher = (ordinal, beat, now);
        }
        let patience = FETCHER_SILENT + FETCHER_STEP * f64::from(self.ordinal.min(32));
        let was = self.is_fetcher;
        if fetcher.is_none() || ordinal == self.ordinal || now - self.fetcher.2 > patience {
            let mine = pair_bytes(u64::from(self.ordinal), u64::from(beat.wrapping_add(1)));
            self.is_fetcher = host::share_if(&key, &mine, cas);
            if self.is_fetcher {
                self.fetcher = (self.ordinal, beat.wrapping_add(1), now);
            }
        } else {
            self.is_fetcher = false;
        }
        if self.is_fetcher && !was {
            let numbers = host::shared(&self.key("numbers")).and_then(|(value, _)| pair(&value));
            self.numbers = numbers.unwrap_or((0, 0));
            self.confirmed_at = now;
        }
    }

    fn fetch(&mut self, settings: &Settings, now: f64) {
        let random = self.random();
        let authorization = settings
            .token
            .as_ref()
            .map(|token| format!("Bearer {token}"));
        // A new worker is not kept waiting.
        if self.tellers().0.len() > self.tellers_heard {
            self.exchange.due = now;
        }
        if self.exchange.is_due(now) {
            let told = self.told(settings, now);
            let body = crate::wire::exchange(
                settings.service.as_deref(),
                settings.lease,
                &told,
                &self.live,
            );
            let mut headers = vec![
                (":method", "POST"),
                (":path", "/v1/observe"),
                (":authority", settings.agents.as_str()),
                ("content-type", "application/json"),
            ];
            headers.extend(
                authorization
                    .as_deref()
                    .map(|value| ("authorization", value)),
            );
            let called = host::call(&settings.agents, headers, Some(&body), settings.timeout);
            self.exchange
                .started("shares", called, (now, settings.timeout), random);
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
            let mut headers = vec![
                (":method", "GET"),
                (":path", path.as_str()),
                (":authority", settings.agents.as_str()),
            ];
            headers.extend(
                authorization
                    .as_deref()
                    .map(|value| ("authorization", value)),
            );
            let timeout = f64::from(POLL) + settings.timeout;
            let called = host::call(&settings.agents, headers, None, timeout);
            self.poll.started("ring", called, (now, timeout), random);
        }
    }

    /// What the workers told since they were last heard.
    fn told(&mut self, settings: &Settings, now: f64) -> Vec<Told> {
        let (tellers, cas) = self.tellers();
        self.tellers_heard = tellers.len();
        let mut found = Vec::new();
        self.in_flight = (0.0, 0);
        let mut heard = Vec::new();
        let mut silent = false;
        for &ordinal in &tellers {
            let Some((value, _)) = host::shared(&self.key(&format!("told/{ordinal}"))) else {
                continue;
            };
            let Ok(told) = serde_json::from_slice::<Told>(&value) else {
                continue;
            };
            let before = self
                .heard
                .iter()
                .find(|(vm, _, beat, _)| *vm == ordinal && *beat == told.beat);
            let at = before.map_or(now, |(_, _, _, at)| *at);
            // A VM that broke or was taken out tells nothing any more; its shares run out.
            if now - at > settings.lease {
                silent = true;
                continue;
            }
            heard.push((ordinal, told.name.clone(), told.beat, at));
            self.in_flight.0 += told.in_flight;
            self.in_flight.1 += told.requests;
            if found.len() < MOST_DISPATCHERS {
                found.push(told);
            }
        }
        self.heard = heard;
        if silent {
            let live: Vec<u32> = self.heard.iter().map(|(vm, ..)| *vm).collect();
            self.set_tellers(&live, cas);
        }
        found
    }

    /// Takes an agent's answer; `false` where the call was not this one's.
    pub fn on_answer(
        &mut self,
        token: u32,
        status: u32,
        body: &[u8],
        engine: &RefCell<Engine>,
    ) -> bool {
        let now = host::now();
        let random = self.random();
        let Ok(settings) = engine.try_borrow().map(|engine| engine.settings().clone()) else {
            return false;
        };
        if self.exchange.token == Some(token) {
            self.exchange.token = None;
            match read(status, body).and_then(|()| Answer::parse(body)) {
                Ok(answer) => {
                    let period = settings.period * (0.9 + 0.2 * random);
                    // Whoever has nothing has requests to refuse: it should not wait for a whole period.
                    self.hunger = match self.take_answer(&answer, now) {
                        true => (2.0 * self.hunger).max(LOOK),
                        false => 0.0,
                    };
                    let wait = if self.hunger > 0.0 {
                        self.hunger.min(period)
                    } else {
                        period
                    };
                    self.exchange.succeeded("shares", now + wait);
                }
                Err(problem) => self.exchange.failed("shares", problem, now, random),
            }
            return true;
        }
        if self.poll.token == Some(token) {
            self.poll.token = None;
            match self.take_ring(status, body, now, settings.lease) {
                // An agent that is behind need not be asked again at once.
                Ok(()) => self.poll.succeeded("ring", now + LOOK),
                Err(problem) => self.poll.failed("ring", problem, now, random),
            }
            return true;
        }
        false
    }

    /// Whether a worker has nothing of any bound.
    fn take_answer(&mut self, answer: &Answer, now: f64) -> bool {
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
        for (ordinal, name, ..) in &self.heard {
            match answer.shares(name) {
                Ok(shares) => {
                    is_hungry |= shares.are_none();
                    if let Ok(value) = serde_json::to_vec(&(number, shares)) {
                        host::share(&self.key(&format!("share/{ordinal}")), &value);
                    }
                }
                Err(problem) => log::debug!("shares of worker {ordinal}: {problem}"),
            }
        }
        self.numbers.0 = number;
        self.share_numbers();
        is_hungry
    }

    fn take_ring(&mut self, status: u32, body: &[u8], now: f64, lease: f64) -> Result<(), String> {
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
            host::share(&self.key("ring"), &ring.to_bytes());
            self.numbers.1 += 1;
            self.share_numbers();
        }
        self.ring = Some(ring);
        Ok(())
    }

    fn share_numbers(&self) {
        host::share(
            &self.key("numbers"),
            &pair_bytes(self.numbers.0, self.numbers.1),
        );
    }
}

fn read(status: u32, body: &[u8]) -> Result<(), String> {
    if status == 0 {
        return Err("an agent's answer breaks off".to_owned());
    }
    if status != 200 {
        let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST_PROBLEM)]);
        return Err(format!("an agent answers {status}: {}", text.trim()));
    }
    if body.len() >= LONGEST_ANSWER {
        return Err(format!("an agent answers more than {LONGEST_ANSWER} bytes"));
    }
    Ok(())
}

/// As a part of a query (RFC 3986).
fn in_query(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_at_checked(8)?;
    Some((
        u64::from_le_bytes(first.try_into().ok()?),
        u64::from_le_bytes(second.try_into().ok()?),
    ))
}

fn pair_bytes(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// The number of this VM in its process, and the process's own.
pub fn number_vm() -> (u32, u32) {
    for _ in 0..100 {
        let held = host::shared("plimsoll/vms");
        let cas = held.as_ref().map(|(_, cas)| *cas);
        let counted = held.and_then(|(value, _)| pair(&value));
        let (ordinal, nonce) = counted.unwrap_or((0, host::seed() >> 10 & 0xff_ffff));
        if host::share_if("plimsoll/vms", &pair_bytes(ordinal + 1, nonce), cas) {
            return (ordinal as u32, nonce as u32);
        }
    }
    // Others were always faster; any number that is nobody's will do.
    (host::seed() as u32 | 0x8000_0000, 0)
}
