//! A worker's part in placement: its messages to agents, the effect of their answers, and the requests it admits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use envoy_policy::{
    config::{self, Config, PrimarySettings},
    primaries::{Outcome, Primaries, Reason},
};
use serde_json::{Value, json};

fn parse(more: &str) -> Result<PrimarySettings, String> {
    let text = format!(
        r#"{{"position": "primary", "cluster": "stocks", "agents": "a", "object_set": {{"header": "x-set"}}{more}}}"#
    );
    match config::parse(text.as_bytes())? {
        Config::Primary(settings) => Ok(*settings),
        other => panic!("{other:?}"),
    }
}

struct Run {
    primaries: Primaries,
    now: f64,
}

impl Run {
    fn new() -> Self {
        let settings = parse(r#", "wait": 2"#).unwrap();
        Run {
            primaries: Primaries::new(settings, "envoy/1/0".into(), "i".into()),
            now: 0.0,
        }
    }

    fn told(&mut self) -> Value {
        serde_json::from_slice(&self.primaries.message(self.now)).unwrap()
    }

    fn hears(&mut self, answer: &Value) -> Result<f64, String> {
        let body = serde_json::to_vec(answer).unwrap();
        self.primaries.on_answer(&body, self.now, self.now)
    }

    /// Joins with a table that has all rests on node1, and `a` on node2.
    fn join(&mut self, when_lost: &str) {
        let message = self.told();
        assert_eq!(message["op"], "join");
        let mut entries: Vec<[String; 2]> = (0..64)
            .map(|rest| [format!("*{rest}"), "node1".to_owned()])
            .collect();
        entries.push(["=a".to_owned(), "node2".to_owned()]);
        let answer = json!({
            "status": "open", "generation": "g", "version": 7, "lease_ms": 3000, "request_limit_ms": 10_000,
            "when_lost": when_lost, "entries": entries,
        });
        assert_eq!(self.hears(&answer), Ok(self.now));
    }

    fn begin(&mut self, stream: u32, name: &str) -> Outcome {
        self.primaries
            .begin(stream, Some(name.as_bytes()), 2.0, self.now)
    }

    fn change(&mut self, text: &str) {
        let answer = json!({"status": "ok", "version": 9, "deltas": [text]});
        self.hears(&answer).unwrap();
    }
}

/// The outcome with a table of this version, formatted so that texts sort in the order of tables.
fn go(node: &str, version: u64) -> Outcome {
    Outcome::Go {
        node: node.to_owned(),
        fence: format!("g 000000000000000{version}"),
    }
}

#[test]
fn settings_have_defaults_and_faults_are_named() {
    let settings = parse("").unwrap();
    assert_eq!(
        (settings.wait, settings.period, settings.retry_after),
        (0.5, 1.0, 1)
    );
    assert_eq!(
        (settings.header.as_str(), settings.prefix.as_str()),
        ("x-plimsoll-primary", "")
    );
    for (more, problem) in [
        (
            r#", "wait": 31"#,
            "wait: must be a number within 0..30 s, is 31",
        ),
        (r#", "header": "X-Set""#, "header: must be a header's name"),
        (r#", "prefix": "a b""#, "prefix: must be at most"),
        (r#", "policy": "fc_hash""#, "unknown field"),
    ] {
        let said = parse(more).unwrap_err();
        assert!(said.contains(problem), "{said}");
    }
    let missing = r#"{"position": "primary", "cluster": "c", "agents": "a"}"#;
    let said = config::parse(missing.as_bytes()).unwrap_err();
    assert!(said.contains("object_set"), "{said}");
}

#[test]
fn a_leaving_set_is_reported_busy_until_its_requests_have_ended() {
    let mut run = Run::new();
    run.join("serve");
    assert_eq!(run.begin(1, "a"), go("node2", 7));
    assert_eq!(run.begin(2, "b"), go("node1", 7));
    run.change("7 8 =a >node2");
    assert!(run.primaries.is_due(run.now));
    let told = run.told();
    assert_eq!(
        (&told["version"], &told["busy"]),
        (&json!(8), &json!(["=a"]))
    );
    assert_eq!(told["loads"], json!({"=a": 2.0, "*15:b": 2.0}));
    assert_eq!(run.begin(3, "a"), Outcome::Wait);
    run.primaries.ended(1, run.now, true);
    assert!(run.primaries.is_due(run.now));
    assert_eq!(run.told()["busy"], json!([]));
    run.change("8 9 =a node1");
    assert_eq!(run.primaries.again(run.now), [(3, go("node1", 9))]);
}

#[test]
fn a_request_without_an_answer_is_doubted_for_as_long_as_one_may_run() {
    let mut run = Run::new();
    run.join("serve");
    for stream in 1..=2 {
        assert_eq!(run.begin(stream, "a"), go("node2", 7));
    }
    run.primaries.ended(1, 1.0, false);
    run.primaries.ended(2, 5.0, false);
    run.change("7 8 =a >node2");
    for (now, busy) in [(11.5, json!(["=a"])), (15.0, json!([]))] {
        run.now = now;
        assert_eq!(run.told()["busy"], busy);
    }
    assert_eq!(run.primaries.counts().doubted, 2);
}

#[test]
fn who_waits_too_long_or_left_is_not_placed() {
    let mut run = Run::new();
    assert_eq!(run.begin(1, "a"), Outcome::Wait);
    assert_eq!(run.begin(2, "a"), Outcome::Wait);
    run.primaries.ended(2, run.now, false);
    run.now = 2.0;
    assert_eq!(
        run.primaries.again(run.now),
        [(1, Outcome::Refuse(Reason::Suspended))]
    );
    run.join("serve");
    assert_eq!(run.primaries.again(run.now), []);
    for name in ["", "a b", "sch\u{f6}n", &"x".repeat(129)] {
        assert_eq!(run.begin(3, name), Outcome::Refuse(Reason::Name));
    }
    assert_eq!(
        run.primaries.begin(3, None, 1.0, 0.0),
        Outcome::Refuse(Reason::Name)
    );
}

#[test]
fn after_a_lease_of_silence_hold_admits_no_requests() {
    for (when_lost, then) in [("serve", go("node2", 7)), ("hold", Outcome::Wait)] {
        let mut run = Run::new();
        run.join(when_lost);
        run.now = 3.1;
        assert_eq!(run.begin(1, "a"), then);
    }
}

#[test]
fn an_id_is_never_used_twice() {
    let mut run = Run::new();
    let first = run.told()["id"].clone();
    assert_eq!(
        run.hears(&json!({"status": "wait", "wait_ms": 200})),
        Ok(0.2)
    );
    assert_ne!(run.told()["id"], first);
    run.join("serve");
    assert_eq!(run.told()["op"], "report");
    assert_eq!(run.hears(&json!({"status": "unknown"})), Ok(0.0));
    assert_eq!(run.begin(1, "a"), Outcome::Wait);
    assert_eq!(run.told()["op"], "join");
}

#[test]
fn malformed_answers_are_rejected_without_effect() {
    let mut run = Run::new();
    // Nodes get it in a header.
    let open = json!({
        "status": "open", "generation": "g\r\na: b", "version": 7, "lease_ms": 3000, "request_limit_ms": 10_000,
        "when_lost": "serve", "entries": [],
    });
    let said = run.hears(&open).unwrap_err();
    assert!(said.contains("generation"), "{said}");
    run.join("serve");
    for answer in [
        json!({"status": "ok", "deltas": ["7 8 =a"]}),
        json!({"status": "ok", "deltas": ["7 8 *64 node1"]}),
        json!({"status": "ok", "deltas": ["7 8 =a node 1"]}),
        json!({"status": "ok", "deltas": ["8 9 =a node1"]}),
        json!({"status": "ok", "deltas": ["7 9007199254740992 =a node1"]}),
        json!({"status": "table", "generation": "g", "version": 9, "entries": [["*0", "node1"]]}),
        json!({"status": "fine"}),
        json!([1]),
    ] {
        assert!(run.hears(&answer).is_err(), "{answer}");
    }
    assert_eq!(run.begin(1, "a"), go("node2", 7));
    assert_eq!(run.told()["version"], 7);
}

#[test]
fn thousands_of_names_take_a_bounded_report() {
    let mut run = Run::new();
    run.join("serve");
    for number in 0..20_000 {
        assert_eq!(run.begin(number, &format!("n{number}")), go("node1", 7));
        run.primaries.ended(number, run.now, true);
    }
    let told = run.told();
    let loads = told["loads"].as_object().unwrap();
    assert!(loads.len() <= 128, "{}", loads.len());
    let sum: f64 = loads.values().map(|cost| cost.as_f64().unwrap()).sum();
    assert_eq!(sum, 40_000.0);
}
