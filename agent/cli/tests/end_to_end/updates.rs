//! Update periods of the real agent, for a service whose list of items the test writes.

use crate::support::{
    Agent, http_get_with,
    peer::{Peer, Script, answer},
    wait_for,
};
use serde_json::{Value, json};

const FULL: Script = Script::Work(100, 5.0);
const LIGHT: Script = Script::Work(100, 0.005);
const MAX_PERIOD: f64 = 5.0;

/// A service of twenty items, of which the first is read a hundred times a second or so, and its agent.
struct Setup {
    work: Peer,
    items: Peer,
    agent: Agent,
    reads: std::cell::Cell<u32>,
}

impl Setup {
    fn new() -> Self {
        let (work, items) = (Peer::start(LIGHT), Peer::start(list(0)));
        let agent = Agent::with(&service(&work, &items));
        Setup {
            work,
            items,
            agent,
            reads: 0.into(),
        }
    }

    /// Waits for a condition while the hot item is read on.
    fn wait<T>(&self, what: &str, mut condition: impl FnMut(&Value) -> Option<T>) -> T {
        wait_for(what, || {
            self.reads.set(self.reads.get() + 10);
            self.items.play(list(self.reads.get()));
            condition(&self.wanted())
        })
    }

    fn relax(&self) -> Value {
        self.work.play(FULL);
        self.wait("cold items are relaxed", |wanted| {
            (wanted["periods"].as_object()?.len() == 19).then(|| wanted.clone())
        })
    }

    fn wanted(&self) -> Value {
        let (status, body) = self.agent.get("/v1/updates").unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn count(&self, name: &str) -> f64 {
        self.agent.count(name)
    }

    /// The agent reads this list, and counts a failure of a kind.
    fn fails_with(&self, kind: &str, script: Script) {
        let name =
            format!("plimsoll_update_list_failures_total{{kind=\"{kind}\",service=\"stocks\"}}");
        let before = self.count(&name);
        self.items.play(script);
        wait_for(kind, || (self.count(&name) > before).then_some(()));
    }
}

fn list(reads: u32) -> Script {
    let item = |n: u32| {
        let accesses = if n == 0 { reads } else { 7 };
        json!({ "name": format!("S{n:04}"), "period_seconds": 0.5, "accesses": accesses })
    };
    let items: Vec<Value> = (0..20).map(item).collect();
    let body = json!({ "items": items, "updates": 40 * reads });
    Script::answer(200, body.to_string())
}

fn service(work: &Peer, items: &Peer) -> String {
    let (url, port) = (work.url(), items.port);
    format!(
        r#"
[[service]]
name = "stocks"
[service.sla]
delay = "1s"
[service.bound]
nominal = 64
[service.source]
kind = "prometheus"
url = "{url}"
histogram = "work_seconds"
[service.jobs]
kind = "prometheus"
gauge = "work_jobs"
[service.updates]
url = "http://127.0.0.1:{port}/accesses"
update_cost = 0.5
"#
    )
}

#[test]
fn cold_items_give_way_under_overload_and_come_back_after_it() {
    let setup = Setup::new();
    let at_first = setup.wanted();
    assert_eq!(at_first["service"], "stocks");
    assert_eq!(
        (&at_first["version"], &at_first["periods"]),
        (&json!(0), &json!({}))
    );
    let relaxed = setup.relax();
    assert_eq!(relaxed["longest"], MAX_PERIOD);
    let periods = relaxed["periods"].as_object().unwrap();
    assert!(!periods.contains_key("S0000"), "hot: {relaxed}");
    for period in periods.values() {
        let period = period.as_f64().unwrap();
        assert!(0.5 < period && period <= MAX_PERIOD, "{relaxed}");
    }
    let gauge = |name: &str| setup.count(&format!("plimsoll_update_{name}"));
    setup.wait("the metrics", |_| {
        let own = gauge("rate{periods=\"own\",service=\"stocks\"}");
        let wanted = gauge("rate{periods=\"wanted\",service=\"stocks\"}");
        let sound = gauge("items{service=\"stocks\"}") == 20.0
            && gauge("items_relaxed{service=\"stocks\"}") == 19.0
            && gauge("longest_period_seconds{service=\"stocks\"}") <= MAX_PERIOD
            && gauge("made_total{service=\"stocks\"}") > 0.0;
        (sound && own == 40.0 && wanted < own).then_some(())
    });
    assert_eq!(setup.agent.service("stocks")["updates"]["relaxed"], 19);

    setup.work.play(LIGHT);
    setup.wait("all periods are back", |wanted| {
        (wanted["periods"] == json!({})).then_some(())
    });
    let version = setup.wanted()["version"].as_u64();
    assert!(version > relaxed["version"].as_u64());
}

#[test]
fn a_bad_list_leaves_the_last_good_periods() {
    let setup = Setup::new();
    let relaxed = setup.relax();
    let twice = |name: &str| format!(r#"{{"name":"{name}","period_seconds":1,"accesses":1}}"#);
    let cases = [
        ("garbage", Script::answer(200, "{\"items\": [")),
        ("garbage", Script::answer(200, "{\"items\": 7}")),
        (
            "garbage",
            Script::answer(
                200,
                r#"{"items":[{"name":7,"period_seconds":1,"accesses":1}]}"#,
            ),
        ),
        (
            "garbage",
            Script::answer(
                200,
                r#"{"items":[{"name":"a","period_seconds":NaN,"accesses":1}]}"#,
            ),
        ),
        (
            "garbage",
            Script::answer(
                200,
                r#"{"items":[{"name":"a","period_seconds":1e999,"accesses":1}]}"#,
            ),
        ),
        (
            "garbage",
            Script::answer(200, format!("{{\"items\":[{}]}}", twice("\u{7}"))),
        ),
        ("garbage", Script::answer(200, [0xff; 64])),
        ("status", Script::answer(500, "")),
        ("too_large", Script::answer(200, vec![b' '; (16 << 20) + 1])),
        (
            "truncated",
            Script::raw(&answer(200, "", "{\"items\": []}")[..40]),
        ),
        ("timeout", Script::Hang),
    ];
    for (kind, script) in cases {
        setup.fails_with(kind, script);
        let now = setup.wanted();
        assert_eq!(now["periods"], relaxed["periods"], "{kind}");
    }
    assert!(setup.agent.service("stocks")["updates"]["list_error"].is_string());
    let log = setup.agent.log();
    let causes: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("no list of items").map(|(_, cause)| cause))
        .collect();
    assert!(!causes.is_empty(), "{log}");
    // Once, until there is another cause: a slow machine adds timeouts between them.
    assert!(causes.windows(2).all(|two| two[0] != two[1]), "{log}");
    setup.work.play(LIGHT);
    setup.wait("it goes on", |wanted| {
        (wanted["periods"] == json!({})).then_some(())
    });
    assert!(
        setup
            .agent
            .log()
            .contains("the list of items is there again")
    );
}

#[test]
fn hostile_items_are_left_out_and_counted() {
    let (work, items) = (Peer::start(LIGHT), Peer::start(list(0)));
    let agent = Agent::with(&service(&work, &items));
    let mut bad = vec![json!({ "name": "good", "period_seconds": 1.0, "accesses": 5 })];
    for name in ["", "with blank", "good", "ä", "\u{0}", &"x".repeat(129)] {
        bad.push(json!({ "name": name, "period_seconds": 1.0, "accesses": 1 }));
    }
    for (period, accesses) in [(0.0, 1.0), (-1.0, 1.0), (1e300, 1.0), (1.0, -1.0)] {
        let name = format!("p{period}a{accesses}");
        bad.push(json!({ "name": name, "period_seconds": period, "accesses": accesses }));
    }
    bad.push(json!({ "name": "x".repeat(128), "period_seconds": 1.0, "accesses": 1e300 }));
    items.play(Script::answer(200, json!({ "items": bad }).to_string()));
    let gauge = |name: &str| agent.count(&format!("plimsoll_update_{name}{{service=\"stocks\"}}"));
    wait_for("the good ones are watched, the others counted", || {
        (gauge("items") == 2.0 && gauge("items_refused") == 10.0).then_some(())
    });
    let log = agent.log();
    assert!(
        log.contains("items[1]: the name of an item must be 1 to 128"),
        "{log}"
    );

    // More than are watched: the coldest are forgotten.
    let item = |n: u32| format!(r#"{{"name":"{n}","period_seconds":1,"accesses":0}}"#);
    let many: Vec<String> = (0..100_500).map(item).collect();
    let many = format!(r#"{{"items":[{}]}}"#, many.join(","));
    items.play(Script::answer(200, many));
    wait_for("what is too much is forgotten", || {
        (gauge("forgotten_total") > 0.0).then_some(())
    });
    assert!(gauge("items") <= 100_000.0);
    assert!(
        agent.log().contains("of which 100000 are watched"),
        "{}",
        agent.log()
    );
    // Items that are not there any more need no room.
    items.play(list(0));
    wait_for("the list is short again", || {
        (gauge("items") == 20.0).then_some(())
    });
}

#[test]
fn counts_of_a_service_that_started_again_are_counted_from_nothing() {
    let setup = Setup::new();
    setup.relax();
    setup.reads.set(0);
    let made = "plimsoll_update_made_total{service=\"stocks\"}";
    let before = setup.count(made);
    setup.wait("its updates are counted on", |_| {
        (setup.count(made) > before).then_some(())
    });
    // What falls is no burst of reads: the cold stay cold, and the hot one hot.
    let periods = setup.wanted()["periods"].take();
    assert_eq!(periods.as_object().unwrap().len(), 19, "{periods}");
}

#[test]
fn a_feed_that_has_the_periods_hears_nothing_new() {
    let mut setup = Setup::new();
    setup.relax();
    setup.work.play(Script::Hang);
    let port = setup.agent.http_port;
    let ask = |line: &str| http_get_with(port, "/v1/updates", line).unwrap();
    let (head, tag) = wait_for("nothing moves", || {
        let (_, head, _) = ask("");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: "))?;
        let (status, _, body) = ask(&format!("if-none-match: {tag}\r\n"));
        (status == 304 && body.is_empty()).then(|| (head.clone(), tag.to_owned()))
    });
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(
        ask(&format!("if-none-match: \"other\", W/{tag}\r\n")).0,
        304
    );
    assert_eq!(ask("if-none-match: \"other\"\r\n").0, 200);
    let (_, head, lines) = ask("accept: text/plain\r\n");
    assert!(head.contains("content-type: text/plain"), "{head}");
    let periods = setup.wanted();
    let mut lines = lines.lines();
    assert_eq!(
        lines.next().unwrap(),
        format!("{} {MAX_PERIOD}", periods["version"])
    );
    let lines: Vec<(&str, &str)> = lines.map(|it| it.split_once(' ').unwrap()).collect();
    assert_eq!(lines.len(), 19);
    for (name, period) in lines {
        assert_eq!(
            period.parse::<f64>().unwrap(),
            periods["periods"][name].as_f64().unwrap()
        );
    }

    let agent = &mut setup.agent;
    assert_eq!(agent.get("/v1/updates?service=stocks").unwrap().0, 200);
    assert_eq!(agent.get("/v1/updates?service=other").unwrap().0, 404);
    assert_eq!(agent.get("/v1/updates?since=1").unwrap().0, 400);

    // Another run knows nothing of it, and does not take the tag for its own.
    agent.kill();
    agent.start_again();
    let (status, _, body) = ask(&format!("if-none-match: {tag}\r\n"));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["periods"]), (200, &json!({})));
}

#[test]
fn a_reload_keeps_periods_where_the_settings_are_the_same() {
    let setup = Setup::new();
    let relaxed = setup.relax();
    let config = setup.agent.config();
    setup
        .agent
        .write_config(&config.replace("delay = \"1s\"", "delay = \"900ms\""));
    assert_eq!(setup.agent.reload(), "applied");
    wait_for("the new SLA", || {
        (setup.agent.service("stocks")["settings"]["sla"]["delay"] == 0.9).then_some(())
    });
    assert!(setup.wanted()["version"].as_u64() >= relaxed["version"].as_u64());
    assert_eq!(setup.wanted()["periods"].as_object().unwrap().len(), 19);

    setup
        .agent
        .write_config(&config.replace("update_cost = 0.5", "longest = \"2s\""));
    assert_eq!(setup.agent.reload(), "applied");
    setup.wait("the new longest", |wanted| {
        (wanted["longest"] == 2.0).then_some(())
    });

    let (without, _) = config.split_once("[service.updates]").unwrap();
    setup.agent.write_config(without);
    assert_eq!(setup.agent.reload(), "applied");
    wait_for("nothing is there to be asked", || {
        (setup.agent.get("/v1/updates")?.0 == 404).then_some(())
    });
    let gone = || {
        setup
            .agent
            .metric("plimsoll_update_items{service=\"stocks\"}")
    };
    wait_for("its metrics are gone", || gone().is_none().then_some(()));
}
