//! Requests to agents, their timing, and the handling of answers. Agents are scripted; the workers are real.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use envoy_policy::{
    call::Request,
    config::{self, Config, Settings},
    engine::{Admission, Engine},
    exchanger::{Exchanger, LOOK, News, Purpose},
    primaries::Primaries,
    primary_link::PrimaryLink,
    worker::Worker,
};
use serde_json::{Value, json};

const HOLD_ALL: f64 = 1e15;

fn settings() -> Settings {
    let text =
        br#"{"cluster": "stocks", "agents": "plimsoll_agents", "service": "a b", "token": "secret",
        "policy": "fc_prop", "period": 1, "lease": 3, "timeout": 0.5}"#;
    match config::parse(text).unwrap() {
        Config::Downstream(settings) => *settings,
        other => panic!("{other:?}"),
    }
}

/// An exchanger, and workers in front of it.
struct Process {
    settings: Settings,
    exchanger: Exchanger,
    workers: Vec<(Engine, Worker)>,
    given_up: Option<u64>,
    tokens: u64,
}

impl Process {
    fn new(workers: u64) -> Self {
        let settings = settings();
        let worker = |number: u64| {
            let name = format!("envoy/{number}");
            (
                Engine::new(settings.clone(), number),
                Worker::new(name, number),
            )
        };
        Process {
            exchanger: Exchanger::new(7),
            workers: (0..workers).map(worker).collect(),
            given_up: None,
            tokens: 0,
            settings,
        }
    }

    fn is_due(&mut self, purpose: Purpose, now: f64) -> bool {
        self.exchanger.look(self.workers.len(), self.given_up, now);
        self.exchanger.is_due(&self.settings, purpose, now)
    }

    /// When it is due next, to a hundredth of a second.
    fn next(&mut self, purpose: Purpose, now: f64) -> f64 {
        let mut times = (0..10_000).map(|step| now + f64::from(step) / 100.0);
        times.find(|at| self.is_due(purpose, *at)).unwrap()
    }

    fn call(&mut self, purpose: Purpose, request: &Request, now: f64) -> u64 {
        self.tokens += 1;
        let called = Ok(self.tokens);
        self.exchanger.called(purpose, request, called, now);
        self.tokens
    }

    /// The body of an exchange, its token, and who is silent.
    fn exchange(&mut self, now: f64) -> (Value, u64, Vec<u32>) {
        assert!(self.is_due(Purpose::Shares, now));
        let workers = (0..).zip(&mut self.workers);
        let told = workers.map(|(id, (engine, worker))| (id, worker.tell(engine, now)));
        let told = told.collect();
        let (request, silent) = self.exchanger.ask_shares(&self.settings, told, now);
        assert_eq!((&*request.path, request.timeout), ("/v1/observe", 0.5));
        let token = self.call(Purpose::Shares, &request, now);
        let body = serde_json::from_slice(&request.body.unwrap()).unwrap();
        (body, token, silent)
    }

    fn answer(&mut self, token: u64, status: u32, body: &Value, now: f64) -> Option<News> {
        let body = body.to_string();
        let answered = Ok((status, body.as_bytes()));
        self.exchanger
            .on_answer(&self.settings, token, answered, now)
    }

    /// A whole exchange with an agent that grants this to each worker.
    fn grant(&mut self, granted: f64, now: f64) {
        let (_, token, _) = self.exchange(now);
        self.take(token, granted, now);
    }

    fn take(&mut self, token: u64, granted: f64, now: f64) {
        let answer = shares(1, granted, self.workers.len());
        let Some(News::Shares(news)) = self.answer(token, 200, &answer, now) else {
            panic!("no shares");
        };
        let number = self.exchanger.numbers().0;
        for (id, shares) in news {
            let (engine, worker) = &mut self.workers[id as usize];
            if worker.take(engine, number, shares, now) {
                self.given_up = Some(number);
            }
        }
    }

    /// The process runs until then, and hears of no agent.
    fn run(&mut self, from: f64, until: f64) {
        for step in 1..=((until - from) / LOOK).round() as u32 {
            for (engine, _) in &mut self.workers {
                engine.on_time(from + f64::from(step) * LOOK);
            }
        }
    }

    /// How many requests of cost 1 the first worker admits before it refuses one.
    fn admitted(&mut self, now: f64) -> usize {
        let (engine, _) = &mut self.workers[0];
        let mut tickets = Vec::new();
        while let Admission::Pass(ticket) = engine.admit(now, b"/", |_| None) {
            assert!(engine.host(ticket).is_some(), "the proxy decides");
            tickets.push(ticket);
        }
        let count = tickets.len();
        tickets.into_iter().for_each(|ticket| engine.end(ticket));
        count
    }

    fn ring(&mut self, status: u32, body: &Value, now: f64) -> (Request, Option<News>) {
        assert!(self.is_due(Purpose::Ring, now));
        let request = self.exchanger.ask_ring(&self.settings);
        let token = self.call(Purpose::Ring, &request, now);
        let news = self.answer(token, status, body, now);
        (request, news)
    }
}

fn shares(version: u64, granted: f64, workers: usize) -> Value {
    let grant = |id| {
        (
            format!("envoy/{id}"),
            json!({"count": workers, "granted": {"node1": granted}}),
        )
    };
    let dispatchers: serde_json::Map<_, _> = (0..workers).map(grant).collect();
    let node =
        json!({"address": "10.0.0.1:1", "bound_jobs": 9, "mean_cost": 1, "jobs": 0, "load": 0});
    json!({"version": version, "nodes": {"node1": node}, "dispatchers": dispatchers})
}

fn whole(version: u64, owner: u32) -> Value {
    json!({"version": version, "slots": 8, "nodes": ["node1", "node2"], "owners": [owner, 8]})
}

fn held(body: &Value, worker: usize) -> &Value {
    &body["dispatchers"][worker]["nodes"][0]["held"]
}

#[test]
fn all_workers_go_into_one_exchange_and_each_gets_its_shares() {
    let mut process = Process::new(2);
    let (body, token, _) = process.exchange(0.0);
    assert_eq!(body["service"], "a b");
    assert_eq!(body["dispatchers"][0]["name"], "envoy/0");
    assert_eq!(body["dispatchers"][1]["lease_seconds"], 3.0);
    process.take(token, 64.0, 0.0);
    let hosts: Vec<String> = process
        .workers
        .iter_mut()
        .map(|(engine, _)| match engine.admit(0.0, b"/", |_| None) {
            Admission::Pass(ticket) => engine.host(ticket).unwrap().to_owned(),
            full => panic!("{full:?}"),
        })
        .collect();
    assert_eq!(hosts, ["10.0.0.1:1", "10.0.0.1:1"]);
    // The next exchange sums what they have in flight, and says what each holds.
    let now = process.next(Purpose::Shares, 0.0);
    let (body, _, silent) = process.exchange(now);
    assert_eq!((held(&body, 0), silent), (&json!(64.0), vec![]));
    assert_eq!(process.exchanger.in_flight(), (2.0, 2));
}

#[test]
fn a_worker_that_does_not_know_its_newest_shares_holds_all() {
    let mut process = Process::new(1);
    process.grant(64.0, 0.0);
    let now = process.next(Purpose::Shares, 0.0);
    let (_, token, _) = process.exchange(now);
    let granted = process.answer(token, 200, &shares(1, 32.0, 1), now);
    assert!(matches!(granted, Some(News::Shares(_))));
    let now = process.next(Purpose::Shares, now);
    let (body, _, _) = process.exchange(now);
    assert_eq!(held(&body, 0), HOLD_ALL);
}

#[test]
fn a_process_that_was_stopped_for_a_lease_asks_before_it_fills_its_shares() {
    for seconds in [3.0, 60.0] {
        let mut process = Process::new(1);
        process.grant(8.0, 0.0);
        process.run(0.0, 0.5);
        assert_eq!(process.admitted(0.5), 8);
        let now = 0.5 + seconds;
        // More than one request at a node is what others may have now.
        assert_eq!(process.admitted(now), 1);
        process.run(now, now + 0.1);
        assert_eq!(process.admitted(now + 0.1), 1);
        process.grant(5.0, now + 0.1);
        assert_eq!(process.admitted(now + 0.1), 5);
    }
}

#[test]
fn shares_that_were_granted_before_the_process_was_stopped_are_not_taken() {
    let mut process = Process::new(1);
    process.grant(8.0, 0.0);
    process.run(0.0, 1.0);
    let now = process.next(Purpose::Shares, 1.0);
    let (_, token, _) = process.exchange(now);
    let now = now + 3.0;
    process.take(token, 8.0, now);
    assert_eq!(process.admitted(now), 1);
    let now = process.next(Purpose::Shares, now);
    process.grant(5.0, now);
    assert_eq!(process.admitted(now), 5);
}

#[test]
fn a_process_that_runs_fills_its_shares_while_agents_are_away() {
    let mut process = Process::new(1);
    process.grant(8.0, 0.0);
    process.run(0.0, 5.0);
    assert_eq!(process.admitted(5.0), 8);
    // Stopped as well, it waits for them, but not for long.
    assert_eq!(process.admitted(6.0), 1);
    process.run(6.0, 7.9);
    assert_eq!(process.admitted(7.9), 1);
    process.run(7.9, 8.2);
    assert_eq!(process.admitted(8.2), 8);
}

#[test]
fn a_process_that_was_stopped_for_less_than_its_lease_fills_its_shares() {
    let mut process = Process::new(1);
    process.grant(8.0, 0.0);
    process.run(0.0, 0.9);
    assert_eq!(process.admitted(2.9), 8);
}

#[test]
fn an_agent_with_a_name_of_120_bytes_does_not_cut_off_the_workers() {
    let mut process = Process::new(1);
    let name = "n".repeat(120);
    let (_, token, _) = process.exchange(0.0);
    let mut answer = shares(1, 5.0, 1);
    answer["nodes"][&name] = answer["nodes"]["node1"].clone();
    let news = process.answer(token, 200, &answer, 0.1);
    assert!(matches!(news, Some(News::Shares(granted)) if granted[0].1.is_some()));
    let mut table = whole(1, 1);
    table["nodes"][1] = json!(name);
    assert_eq!(process.ring(200, &table, 0.1).1, Some(News::Ring));
}

#[test]
fn a_silent_worker_is_left_out_after_a_lease() {
    let mut process = Process::new(1);
    let (engine, worker) = &mut process.workers[0];
    let told = worker.tell(engine, 0.0);
    let text = serde_json::to_vec(&told).unwrap();
    let mut ask = |now| {
        let told = serde_json::from_slice(&text).unwrap();
        let (request, silent) =
            process
                .exchanger
                .ask_shares(&process.settings, vec![(5, told)], now);
        let body: Value = serde_json::from_slice(&request.body.unwrap()).unwrap();
        (body["dispatchers"].as_array().unwrap().len(), silent)
    };
    assert_eq!(ask(0.0), (1, vec![]));
    assert_eq!(ask(3.0), (1, vec![]));
    assert_eq!(ask(3.1), (0, vec![5]));
}

#[test]
fn exchanges_are_early_for_who_is_new_or_has_nothing_and_else_once_a_period() {
    let mut process = Process::new(1);
    process.grant(64.0, 0.0);
    assert!(
        process.next(Purpose::Shares, 0.0) <= 2.0 * LOOK + 0.01,
        "it is new"
    );
    process.grant(64.0, 1.0);
    let wait = process.next(Purpose::Shares, 1.0) - 1.0;
    assert!((0.89..1.11).contains(&wait), "{wait}");
    // Whoever has nothing asks again soon, and ever later.
    let mut process = Process::new(1);
    let mut now = 0.0;
    for expected in [0.2, 0.4, 0.8] {
        now = process.next(Purpose::Shares, now);
        process.grant(0.0, now);
        let wait = process.next(Purpose::Shares, now) - now;
        assert!(
            (expected..expected + 0.02).contains(&wait),
            "{wait} for {expected}"
        );
    }
    // Of what is given up others should hear soon.
    let mut process = Process::new(1);
    for now in [0.0, 2.0, 4.0] {
        process.grant(64.0, now);
    }
    process.grant(8.0, 6.0);
    assert!(process.next(Purpose::Shares, 6.0) <= 6.0 + LOOK + 0.01);
    // A new worker is not kept waiting.
    process.grant(8.0, 8.0);
    assert!(!process.is_due(Purpose::Shares, 8.0));
    process.exchanger.look(2, None, 8.0);
    assert!(
        process
            .exchanger
            .is_due(&process.settings, Purpose::Shares, 8.0)
    );
}

#[test]
fn after_failures_the_wait_doubles_up_to_five_seconds() {
    let mut process = Process::new(1);
    let mut now = 0.0;
    for wait in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0] {
        let (_, token, _) = process.exchange(now);
        assert_eq!(process.answer(token, 503, &json!("busy"), now), None);
        process.exchanger.look(1, None, now);
        let next = process.next(Purpose::Shares, now);
        let waited = next - now;
        assert!(
            (0.49 * wait..1.52 * wait + 0.01).contains(&waited),
            "{waited} for {wait}"
        );
        now = next;
    }
    // One that cannot be made counts as well.
    let request = process.exchanger.ask_ring(&process.settings);
    process
        .exchanger
        .called(Purpose::Ring, &request, Err("no cluster".into()), now);
    assert!(!process.is_due(Purpose::Ring, now));
    // And one that succeeds ends it.
    process.grant(64.0, now);
    let now = process.next(Purpose::Shares, now);
    process.grant(64.0, now);
    assert!(process.next(Purpose::Shares, now) > now + 0.85);
}

#[test]
fn an_answer_after_its_timeout_is_ignored() {
    let mut process = Process::new(1);
    let (_, lost, _) = process.exchange(0.0);
    assert!(!process.is_due(Purpose::Shares, 1.4));
    let (_, token, _) = process.exchange(1.6);
    assert_eq!(process.answer(lost, 200, &shares(1, 64.0, 1), 1.6), None);
    process.take(token, 64.0, 1.6);
    assert_eq!(process.answer(token, 200, &shares(1, 64.0, 1), 1.6), None);
}

#[test]
fn the_ring_is_followed_from_version_to_version() {
    let mut process = Process::new(1);
    let (request, news) = process.ring(200, &whole(3, 0), 0.0);
    assert_eq!(request.path, "/v1/ring?wait=25&service=a%20b");
    assert_eq!((request.body, request.timeout), (None, 25.5));
    assert_eq!(news, Some(News::Ring));
    let moved = json!({"version": 4, "since": 3, "slots": 8, "nodes": ["node1", "node2"], "changes": [[0, 1, 1]]});
    let (request, news) = process.ring(200, &moved, 1.0);
    assert_eq!(request.path, "/v1/ring?wait=25&since=3&service=a%20b");
    assert_eq!((news, process.exchanger.numbers().1), (Some(News::Ring), 2));
    assert_eq!(
        process.exchanger.ring().unwrap().table.owners()[..2],
        [1, 0]
    );
    // Nothing new, and the same once more.
    assert_eq!(process.ring(304, &json!(null), 2.0).1, None);
    assert_eq!(process.ring(200, &moved, 3.0).1, None);
    // Changes of that version do not fit any more: the whole table is asked for.
    let now = process.next(Purpose::Ring, 3.0);
    let (request, _) = process.ring(304, &json!(null), now);
    assert_eq!(request.path, "/v1/ring?wait=25&service=a%20b");
}

#[test]
fn an_older_ring_is_taken_only_where_no_agent_has_known_the_newer_one_for_a_lease() {
    let mut process = Process::new(1);
    process.ring(200, &whole(5, 0), 0.0);
    let (_, news) = process.ring(200, &whole(4, 1), 2.0);
    assert_eq!(news, None);
    let now = process.next(Purpose::Ring, 3.1);
    let (_, news) = process.ring(200, &whole(4, 1), now);
    assert_eq!(news, Some(News::Ring));
    assert_eq!(process.exchanger.ring().unwrap().table.version(), 4);
}

#[test]
fn an_agent_that_is_behind_is_not_waited_for() {
    let mut process = Process::new(1);
    process.ring(200, &whole(1, 0), 0.0);
    assert!(process.is_due(Purpose::Ring, 1.0));
    let request = process.exchanger.ask_ring(&process.settings);
    process.call(Purpose::Ring, &request, 1.0);
    // The exchange tells of a newer ring.
    let (_, token, _) = process.exchange(1.0);
    process.answer(token, 200, &shares(2, 64.0, 1), 1.0);
    assert!(!process.is_due(Purpose::Ring, 1.4));
    assert!(process.is_due(Purpose::Ring, 1.6));
}

#[test]
fn a_takeover_continues_from_the_distributed_numbers() {
    let mut first = Process::new(1);
    first.ring(200, &whole(5, 0), 0.0);
    let mut second = Process::new(1);
    second
        .exchanger
        .remember(first.exchanger.ring().unwrap().clone());
    second.exchanger.take_over((8, 2), 9.0);
    let (request, news) = second.ring(200, &whole(4, 0), 9.0);
    assert!(request.path.contains("since=5"));
    assert_eq!((news, second.exchanger.numbers()), (None, (8, 2)));
}

#[test]
fn threads_may_hand_it_all_over() {
    fn is_send<T: Send>() {}
    is_send::<(Engine, Worker, Exchanger, Primaries, PrimaryLink)>();
}
