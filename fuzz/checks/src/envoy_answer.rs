use std::borrow::Cow;

use envoy_policy::{
    config::{Config, PrimarySettings, Settings, parse},
    engine::{Admission, Engine},
    exchanger::{Exchanger, News, Purpose},
    primaries::{Outcome, Primaries},
    primary_link::PrimaryLink,
    worker::Worker,
};
use plimsoll_net::parse_body;
use plimsoll_wire::{Exchange, PlacementMessage, is_name};

const MAX_ANSWERS: usize = 64;

/// What agents answer one worker, a second apart and a line each: `s`, `r` or `p` for shares, ring and primaries, the
/// status in three digits, a blank and the body.
pub fn envoy_answer(data: &[u8]) {
    let mut process = Process::new();
    for (number, line) in (1..).zip(data.split(|byte| *byte == b'\n').take(MAX_ANSWERS)) {
        let Some((head, body)) = line.split_at_checked(5) else {
            continue;
        };
        let status = std::str::from_utf8(&head[1..4]).ok();
        let Some(status) = status.and_then(|it| it.parse().ok()) else {
            continue;
        };
        let now = f64::from(number);
        process.engine.on_time(now);
        match head[0] {
            b's' => process.shares(status, body, now),
            b'r' => process.ring(status, body, now),
            b'p' => process.primaries(status, body, now),
            _ => {}
        }
    }
}

struct Process {
    settings: Settings,
    exchanger: Exchanger,
    engine: Engine,
    worker: Worker,
    primaries: Primaries,
    link: PrimaryLink,
    token: u64,
}

impl Process {
    fn new() -> Self {
        let settings = settings();
        Process {
            exchanger: Exchanger::new(7),
            engine: Engine::new(settings.clone(), 7),
            worker: Worker::new("envoy/0".to_owned(), 7),
            primaries: Primaries::new(primary_settings(), "envoy/0".to_owned(), "i".to_owned()),
            link: PrimaryLink::new(7),
            token: 0,
            settings,
        }
    }

    fn shares(&mut self, status: u32, body: &[u8], now: f64) {
        self.exchanger.look(1, None, now);
        let told = vec![(0, self.worker.tell(&mut self.engine, now))];
        let (request, _) = self.exchanger.ask_shares(&self.settings, told, now);
        let asked: Exchange = parse_body(request.body.as_deref().unwrap()).unwrap();
        assert_eq!(asked.check(), Ok(()));
        self.token += 1;
        self.exchanger
            .called(Purpose::Shares, &request, Ok(self.token), now);
        let answered = Ok((status, body));
        let news = self
            .exchanger
            .on_answer(&self.settings, self.token, answered, now);
        if let Some(News::Shares(granted)) = news {
            for (_, shares) in granted {
                let number = self.exchanger.numbers().0;
                self.worker.take(&mut self.engine, number, shares, now);
            }
        }
        self.request(now);
    }

    fn ring(&mut self, status: u32, body: &[u8], now: f64) {
        let request = self.exchanger.ask_ring(&self.settings);
        assert!(request.path.bytes().all(|byte| byte.is_ascii_graphic()));
        self.token += 1;
        self.exchanger
            .called(Purpose::Ring, &request, Ok(self.token), now);
        let answered = Ok((status, body));
        let news = self
            .exchanger
            .on_answer(&self.settings, self.token, answered, now);
        if news == Some(News::Ring) {
            self.engine.take_ring(self.exchanger.ring().unwrap());
        }
        self.request(now);
    }

    /// One request, from its admission to its end.
    fn request(&mut self, now: f64) {
        let engine = &mut self.engine;
        let key = |name: &str| (name == "x-key").then_some(Cow::Borrowed(&b"A17"[..]));
        let Admission::Pass(ticket) = engine.admit(now, b"/a?b", key) else {
            return;
        };
        let hosts = engine.hosts(ticket);
        let host = hosts.split(',').next().unwrap_or_default();
        let mut attempt = engine.attempt(ticket, host, now).unwrap();
        assert!(engine.in_flight().1 <= 1);
        engine.answered(&mut attempt, now + 0.1, 200, Some(3.0));
        engine.attempt_ended(attempt, || now + 0.1, false);
        engine.end(ticket);
        let (cost, requests) = engine.in_flight();
        assert!(requests == 0 && cost.abs() < 1e-6);
    }

    fn primaries(&mut self, status: u32, body: &[u8], now: f64) {
        let Some(request) = self.link.ask(&mut self.primaries, now) else {
            return;
        };
        parse_body::<PlacementMessage>(request.body.as_deref().unwrap()).unwrap();
        self.token += 1;
        self.link.called(&request, Ok(self.token), now);
        let answered = Ok((status, body));
        assert!(
            self.link
                .on_answer(&mut self.primaries, self.token, answered, now)
        );
        for (stream, name) in [(1, "a"), (2, "b")] {
            if let Outcome::Go { node, fence } =
                self.primaries
                    .begin(stream, Some(name.as_bytes()), 1.0, now)
            {
                assert!(is_name(&node));
                assert!(
                    fence
                        .bytes()
                        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
                );
            }
        }
        self.primaries.again(now);
        self.primaries.ended(1, now, true);
        self.primaries.ended(2, now, false);
    }
}

fn settings() -> Settings {
    let text =
        br#"{"cluster": "stocks", "agents": "a", "service": "a b", "key": {"header": "x-key"}}"#;
    match parse(text) {
        Ok(Config::Downstream(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

fn primary_settings() -> PrimarySettings {
    let text = br#"{"position": "primary", "cluster": "stocks", "agents": "a", "object_set": {"header": "x-set"}}"#;
    match parse(text) {
        Ok(Config::Primary(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}
