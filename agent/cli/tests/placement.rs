//! Placement with real agents and a real Redis; dispatchers are simulated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;
#[path = "support/redis.rs"]
mod tools;

use std::process::Command;

use serde_json::{Value, json};
use support::{Agent, Service, http_post, wait_for};
use tools::{Redis, wait_logged};

/// An agent of cluster "c" with a ring and `[placement]`; not started.
fn member(service: &Service, redis: &Redis, node: &str, more: &str) -> Agent {
    let agent = tools::member(
        service,
        node,
        &format!("urls = [\"{}\"]\ntimeout = \"5s\"", redis.url()),
    );
    let text = agent.config()
        + &format!(
            "[placement]\ncluster = \"c\"\nperiod = \"100ms\"\nlease = \"1s\"\nrequest_limit = \"300ms\"\n{more}\n"
        );
    agent.write_config(&text);
    agent
}

/// The same with a lease that a busy machine keeps to.
fn patient(service: &Service, redis: &Redis, node: &str, more: &str) -> Agent {
    let mut agent = member(service, redis, node, more);
    let text = agent.config();
    agent.write_config(&text.replace("lease = \"1s\"", "lease = \"3s\""));
    agent.start_again();
    agent
}

fn started(service: &Service, redis: &Redis, node: &str, more: &str) -> Agent {
    let mut agent = member(service, redis, node, more);
    agent.start_again();
    agent
}

fn post(agent: &Agent, body: &Value) -> (u16, Value) {
    let (status, body) =
        http_post(agent.http_port, "/v1/placement", "", &body.to_string()).unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

fn show(agent: &Agent) -> Option<Value> {
    let (status, body) = agent.get("/v1/placement")?;
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

fn wait_show(agent: &Agent, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    wait_for(what, || show(agent).filter(|shown| is_so(shown)))
}

fn is_keeper(agent: &Agent) -> bool {
    agent.metric("plimsoll_placement_keeper") == Some(1.0)
}

/// A simulated dispatcher: it lets requests in and follows the table as told.
struct Dispatcher {
    id: String,
    generation: String,
    version: u64,
    table: std::collections::BTreeMap<String, String>,
}

impl Dispatcher {
    fn ask(agent: &Agent, id: &str) -> Value {
        let (status, answer) = post(agent, &json!({ "cluster": "c", "op": "join", "id": id }));
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn join(agent: &Agent, id: &str) -> Self {
        let answer = wait_for("a table is in force", || {
            let answer = Dispatcher::ask(agent, id);
            (answer["status"] == "open").then_some(answer)
        });
        let mut dispatcher = Dispatcher {
            id: id.into(),
            generation: answer["generation"].as_str().unwrap().into(),
            version: 0,
            table: Default::default(),
        };
        dispatcher.take(&answer);
        dispatcher
    }

    fn take(&mut self, answer: &Value) {
        if let Some(entries) = answer["entries"].as_array() {
            let word = |word: &Value| word.as_str().unwrap().to_owned();
            self.table = entries
                .iter()
                .map(|entry| (word(&entry[0]), word(&entry[1])))
                .collect();
        }
        for delta in answer["deltas"].as_array().into_iter().flatten() {
            let words: Vec<&str> = delta.as_str().unwrap().split(' ').collect();
            assert_eq!(words[0].parse::<u64>().unwrap(), self.version);
            self.version = words[1].parse().unwrap();
            for pair in words[2..].chunks_exact(2) {
                match pair[1] {
                    "-" => self.table.remove(pair[0]),
                    state => self.table.insert(pair[0].into(), state.into()),
                };
            }
        }
        self.version = answer["version"].as_u64().unwrap();
    }

    /// Tells; false where it is to join anew.
    fn report(&mut self, agent: &Agent, busy: &[&str], loads: &Value) -> bool {
        let body = json!({
            "op": "report", "id": self.id, "generation": self.generation,
            "version": self.version, "busy": busy, "loads": loads,
        });
        let (status, answer) = post(agent, &body);
        assert_eq!(status, 200, "{answer}");
        if answer["status"] == "unknown" {
            return false;
        }
        self.take(&answer);
        true
    }

    fn idle(&mut self, agent: &Agent) -> bool {
        self.report(agent, &[], &json!({}))
    }

    /// Reports until a set is as wished.
    fn until(&mut self, agent: &Agent, set: &str, state: &str) {
        wait_for(&format!("{set} is {state}"), || {
            assert!(self.idle(agent));
            (self.table.get(set).map(String::as_str) == Some(state)).then_some(())
        });
    }

    fn on(&self, node: &str) -> usize {
        self.table.values().filter(|state| *state == node).count()
    }
}

fn moved(agent: &Agent, set: &str, node: &str) -> (u16, Value) {
    post(agent, &json!({ "op": "move", "set": set, "node": node }))
}

fn cli(agent: &Agent, words: &[&str]) -> Result<String, String> {
    let out = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("placement")
        .args(words)
        .args(["--url", &format!("http://127.0.0.1:{}", agent.http_port)])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.success() {
        true => Ok(text(&out.stdout)),
        false => Err(text(&out.stderr)),
    }
}

#[test]
fn two_agents_that_start_together_make_one_table_and_one_keeper() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agents = ["node1", "node2"].map(|node| member(&service, &redis, node, ""));
    std::thread::scope(|scope| {
        for agent in &mut agents {
            scope.spawn(|| agent.start_again());
        }
    });
    let [first, second] = &agents;
    let shown = wait_show(first, "a table", |shown| shown["version"] != 0);
    let mut dispatcher = Dispatcher::join(first, "lb1/1#a");
    assert_eq!(dispatcher.table.len(), 64);
    assert_eq!(dispatcher.generation, shown["generation"].as_str().unwrap());
    let other = wait_show(second, "the same table", |other| {
        other["generation"] == shown["generation"] && other["known_version"] != 0
    });
    assert_eq!(other["keeper"], shown["keeper"]);
    assert_eq!(
        [first, second]
            .map(is_keeper)
            .iter()
            .filter(|is| **is)
            .count(),
        1
    );
    // What is carried by either is the same.
    assert!(dispatcher.idle(second));
    assert_eq!(shown["cluster"], "c");
}

#[test]
fn an_uneven_load_moves_and_what_is_busy_is_waited_for() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let first = started(&service, &redis, "node1", "initial = \"node1\"");
    let _second = started(&service, &redis, "node2", "initial = \"node1\"");
    tools::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    let mut late = Dispatcher::join(&first, "lb2/1#b");
    assert_eq!(dispatcher.on("node1"), 64);
    let loads: serde_json::Map<String, Value> = (0..8)
        .map(|rest| (format!("*{rest}"), json!(500_000.0)))
        .collect();
    let loads = Value::Object(loads);
    let leaving = wait_for("something leaves", || {
        assert!(dispatcher.report(&first, &[], &loads) && late.idle(&first));
        let mut entries = dispatcher.table.iter();
        let found = entries.find(|(_, state)| *state == ">node1");
        found.map(|(set, _)| set.clone())
    });
    // One of them has something under way; versions differ.
    for _ in 0..3 {
        assert!(dispatcher.idle(&first));
        assert!(late.report(&first, &[&leaving], &json!({})));
        assert_eq!(dispatcher.table[&leaving], ">node1");
    }
    wait_for("it is at node 2", || {
        assert!(late.idle(&first) && dispatcher.idle(&first));
        (dispatcher.table[&leaving] == "node2" && dispatcher.on("node2") == 4).then_some(())
    });
    wait_for("four are counted", || {
        let done = first.count("plimsoll_placement_hand_overs_total{outcome=\"done\"}");
        (done >= 4.0).then_some(())
    });
    assert_eq!(first.metric("plimsoll_placement_moving_sets"), Some(0.0));
    wait_for("the keeper shows it", || {
        let shown = first.metric("plimsoll_placement_sets{plimsoll_node=\"node2\"}");
        (shown == Some(dispatcher.on("node2") as f64)).then_some(())
    });
}

#[test]
fn a_keeper_that_is_killed_in_the_middle_of_a_hand_over_is_replaced() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut first = started(
        &service,
        &redis,
        "node1",
        "moves = false\ninitial = \"node1\"",
    );
    let second = started(
        &service,
        &redis,
        "node2",
        "moves = false\ninitial = \"node1\"",
    );
    tools::wait_nodes(&second, &["node1", "node2"]);
    wait_for("node 1 keeps", || is_keeper(&first).then_some(()));
    let mut dispatcher = Dispatcher::join(&second, "lb1/1#a");
    assert_eq!(moved(&second, "*5", "node2").0, 200);
    wait_for("*5 leaves", || {
        assert!(dispatcher.report(&second, &["*5"], &json!({})));
        (dispatcher.table["*5"] == ">node1").then_some(())
    });
    let epoch = show(&second).unwrap()["epoch"].as_u64().unwrap();
    first.kill();
    wait_for("node 2 keeps", || {
        dispatcher.report(&second, &["*5"], &json!({}));
        is_keeper(&second).then_some(())
    });
    dispatcher.until(&second, "*5", "node1");
    assert_eq!(moved(&second, "*5", "node2").0, 200);
    dispatcher.until(&second, "*5", "node2");
    assert_eq!(show(&second).unwrap()["epoch"], epoch + 1);
}

#[test]
fn a_keeper_that_was_paused_is_refused_and_follows() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let first = started(&service, &redis, "node1", "moves = false");
    wait_for("node 1 keeps", || is_keeper(&first).then_some(()));
    let second = started(&service, &redis, "node2", "moves = false");
    tools::wait_nodes(&second, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&second, "lb1/1#a");
    let from = dispatcher.table["*5"].clone();
    let to = if from == "node1" { "node2" } else { "node1" };
    assert_eq!(moved(&second, "*5", to).0, 200);
    wait_for("*5 leaves", || {
        assert!(dispatcher.report(&second, &["*5"], &json!({})));
        dispatcher.table["*5"].starts_with('>').then_some(())
    });
    first.process.as_ref().unwrap().signal("-STOP");
    wait_for("node 2 keeps", || {
        dispatcher.report(&second, &["*5"], &json!({}));
        is_keeper(&second).then_some(())
    });
    dispatcher.until(&second, "*5", &from);
    let version = dispatcher.version;
    first.process.as_ref().unwrap().signal("-CONT");
    wait_logged(&first, "no longer the keeper");
    wait_for("node 1 follows", || (!is_keeper(&first)).then_some(()));
    assert!(dispatcher.idle(&second));
    assert_eq!(dispatcher.version, version, "it wrote nothing");
    assert!(is_keeper(&second));
}

#[test]
fn a_redis_that_comes_up_empty_gets_the_table_back_as_another_generation() {
    let (service, mut redis) = (Service::start(), Redis::start(&[]));
    let first = started(
        &service,
        &redis,
        "node1",
        "moves = false\ninitial = \"node1\"",
    );
    let second = started(
        &service,
        &redis,
        "node2",
        "moves = false\ninitial = \"node1\"",
    );
    tools::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    assert_eq!(moved(&first, "=A17", "node2").0, 200);
    dispatcher.until(&first, "=A17", "node2");
    let (old, version) = (dispatcher.generation.clone(), dispatcher.version);
    for agent in [&first, &second] {
        wait_show(agent, "both agents know", |shown| {
            shown["known_version"] == version
        });
    }
    redis.kill();
    redis.start_again();
    wait_for("another generation", || {
        let shown = show(&first)?;
        (shown["version"] != 0 && shown["generation"] != old.as_str()).then_some(())
    });
    // Nobody is told of it before its time, and the one of before joins anew.
    assert!(!dispatcher.idle(&first));
    let shown = show(&first).unwrap();
    assert_eq!(shown["dispatchers"][0]["id"], "lb1/1#a");
    let mut next = Dispatcher::join(&first, "lb1/1#b");
    assert!(next.version > version);
    assert_eq!(
        (next.table["=A17"].as_str(), next.on("node1")),
        ("node2", 64)
    );
    assert!(next.idle(&first));
    wait_show(&first, "the doubt is over", |shown| {
        next.idle(&first) && shown["gone"] == json!([])
    });
    assert_eq!(moved(&first, "=A17", "node1").0, 200);
    next.until(&first, "=A17", "node1");
}

#[test]
fn a_silent_dispatcher_blocks_and_is_forgotten_by_an_operator() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let first = started(
        &service,
        &redis,
        "node1",
        "moves = false\ninitial = \"node1\"",
    );
    let _second = started(
        &service,
        &redis,
        "node2",
        "moves = false\ninitial = \"node1\"",
    );
    tools::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    let _silent = Dispatcher::join(&first, "lb2/1#b");
    // Begun while it was heard: it goes back.
    assert_eq!(moved(&first, "*1", "node2").0, 200);
    dispatcher.until(&first, "*1", ">node1");
    dispatcher.until(&first, "*1", "node1");
    assert!(first.count("plimsoll_placement_hand_overs_total{outcome=\"back\"}") >= 1.0);
    let silent = |shown: &Value| {
        let mut all = shown["dispatchers"].as_array().unwrap().iter();
        all.any(|it| it["id"] == "lb2/1#b" && it["is_silent"] == true)
    };
    wait_show(&first, "it is silent", |shown| {
        dispatcher.idle(&first) && silent(shown)
    });
    let (status, answer) = moved(&first, "*1", "node2");
    assert_eq!(status, 409);
    let problem = answer["problem"].as_str().unwrap();
    assert!(problem.contains("lb2/1#b has been silent"), "{problem}");
    let told = cli(&first, &["move", "*1", "node2"]).unwrap_err();
    assert!(told.contains("silent"), "{told}");
    let told = cli(&first, &["show"]).unwrap();
    assert!(
        told.contains("lb2/1#b") && told.contains("nothing moves"),
        "{told}"
    );
    wait_for("the metric says so", || {
        dispatcher.idle(&first);
        (first.metric("plimsoll_placement_silent_dispatchers") == Some(1.0)).then_some(())
    });
    assert!(
        cli(&first, &["forget", "lb9/1#x"])
            .unwrap_err()
            .contains("no dispatcher")
    );
    assert_eq!(
        cli(&first, &["forget", "lb2/1#b"]).unwrap(),
        "lb2/1#b is forgotten\n"
    );
    wait_show(&first, "the doubt is over", |shown| {
        dispatcher.idle(&first) && shown["gone"] == json!([])
    });
    assert!(cli(&first, &["move", "*1", "node2"]).is_ok());
    dispatcher.until(&first, "*1", "node2");
}

#[test]
fn those_that_hold_are_taken_for_gone() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let more = "moves = false\nwhen_lost = \"hold\"\ninitial = \"node1\"";
    let first = started(&service, &redis, "node1", more);
    let _second = started(&service, &redis, "node2", more);
    tools::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    let mut silent = Dispatcher::join(&first, "lb2/1#b");
    assert_eq!(Dispatcher::ask(&first, "lb3/1#c")["when_lost"], "hold");
    wait_show(&first, "they are gone", |shown| {
        dispatcher.idle(&first) && shown["dispatchers"].as_array().unwrap().len() == 1
    });
    wait_show(&first, "the doubt is over", |shown| {
        dispatcher.idle(&first) && shown["gone"] == json!([])
    });
    assert_eq!(moved(&first, "*1", "node2").0, 200);
    dispatcher.until(&first, "*1", "node2");
    assert!(!silent.idle(&first), "it joins anew");
}

#[test]
fn hold_is_refused_where_redis_goes_on_when_it_is_cut_off() {
    let words = ["--repl-diskless-sync-delay", "0"];
    let (service, redis) = (Service::start(), Redis::start(&words));
    let replica = Redis::replica_of(&redis);
    let set = |name: &str, value: &str| redis.cli(&["CONFIG", "SET", name, value]);
    let agent = patient(&service, &redis, "node1", "when_lost = \"hold\"");
    wait_logged(
        &agent,
        "takes no writes once a replica is put in its place: min-replicas-to-write is 0, must be at least 1",
    );
    assert_eq!(Dispatcher::ask(&agent, "lb1/1#a")["status"], "wait");
    set("min-replicas-to-write", "1");
    wait_logged(
        &agent,
        "min-replicas-max-lag is 10 s, must be at least 1 s and below placement.lease, 3 s",
    );
    set("min-replicas-max-lag", "1");
    wait_for("it keeps", || is_keeper(&agent).then_some(()));
    assert_eq!(
        redis
            .cli(&["HGET", "plimsoll:{c}:placement", "margin"])
            .trim(),
        "4000"
    );
    // While it keeps: nothing moves any more, and nobody is taken for gone.
    set("min-replicas-to-write", "0");
    wait_for("it does not keep", || (!is_keeper(&agent)).then_some(()));
    // One that took over has no replica, and somebody may be left with the one before.
    set("min-replicas-to-write", "1");
    wait_for("it keeps", || is_keeper(&agent).then_some(()));
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let promoted = patient(&service, &replica, "node2", "when_lost = \"hold\"");
    wait_logged(&promoted, "min-replicas-to-write is 0, must be at least 1");
}

#[test]
fn a_version_that_redis_lost_is_not_taken_for_a_later_one_of_its_number() {
    let words = ["--repl-diskless-sync-delay", "0"];
    let (service, mut old) = (Service::start(), Redis::start(&words));
    let new = Redis::replica_of(&old);
    let more = "moves = false\ninitial = \"node1\"";
    let both = ["node1", "node2"];
    let mut former = both.map(|node| patient(&service, &old, node, more));
    tools::wait_nodes(&former[0], &both);
    let mut dispatcher = Dispatcher::join(&former[0], "lb1/1#a");
    let kept = dispatcher.version;
    assert_eq!(old.cli(&["WAIT", "1", "10000"]).trim(), "1");
    new.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(moved(&former[0], "*5", "node2").0, 200);
    wait_for("*5 leaves", || {
        assert!(dispatcher.report(&former[0], &["*5"], &json!({})));
        (dispatcher.table["*5"] == ">node1").then_some(())
    });
    // The master, the keeper and all who knew of it die together, but for one dispatcher.
    former.iter_mut().for_each(Agent::kill);
    old.kill();
    let agents = both.map(|node| patient(&service, &new, node, more));
    tools::wait_nodes(&agents[0], &both);
    wait_for("another keeps", || {
        agents.iter().any(is_keeper).then_some(())
    });
    assert_eq!(moved(&agents[0], "*7", "node2").0, 200);
    let shown = wait_show(&agents[0], "*7 leaves", |shown| {
        shown["moving"] == json!(["*7"])
    });
    assert_eq!(shown["generation"], dispatcher.generation.as_str());
    assert!(shown["version"].as_u64() > Some(kept));
    assert!(!dispatcher.report(&agents[0], &["*5"], &json!({})));
    wait_for("it is told", || {
        let mut logs = agents.iter().map(Agent::log);
        let told = format!(
            "acted on version {}, which Redis has lost",
            dispatcher.version
        );
        logs.any(|log| log.contains(&told)).then_some(())
    });
    // What it may have sent is waited for.
    let mut next = Dispatcher::join(&agents[0], "lb1/1#b");
    assert_eq!(next.table["*5"], "node1");
    next.until(&agents[0], "*7", "node2");
}

#[test]
fn an_exhausted_numbering_starts_another_generation() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = started(&service, &redis, "node1", "");
    let before = Dispatcher::join(&agent, "lb1/1#a");
    agent.kill();
    let last = (1_u64 << 53) - 2;
    redis.cli(&[
        "HSET",
        "plimsoll:{c}:placement",
        "version",
        &last.to_string(),
    ]);
    agent.start_again();
    wait_logged(&agent, "there are no more versions after this one");
    wait_show(&agent, "another generation", |shown| {
        shown["generation"].as_str() > Some(&before.generation)
    });
    let mut after = Dispatcher::join(&agent, "lb1/1#b");
    assert!(after.version < last && after.idle(&agent));
}

#[test]
fn any_number_of_views_cost_one_call_of_redis_each_quarter_of_a_second() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, &redis, "node1", "");
    wait_show(&agent, "a table", |shown| shown["version"] != 0);
    redis.cli(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let since = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..25).for_each(|_| assert!(show(&agent).is_some())));
        }
    });
    let most = 2 + since.elapsed().as_millis() as usize / 250;
    let calls = || {
        let log = redis.cli(&["SLOWLOG", "GET", "-1"]);
        log.matches("plimsoll_placement_status").count()
    };
    assert!(calls() <= most, "{} and not {most}", calls());
    wait_for("it is asked again", || {
        assert!(show(&agent).is_some());
        (calls() > 0).then_some(())
    });
}

#[test]
fn pins_are_kept_and_a_node_that_dies_loses_the_rest() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let more = "moves = false\n[placement.pins]\n\"=A17\" = \"node2\"";
    let first = started(&service, &redis, "node1", more);
    let mut second = started(&service, &redis, "node2", more);
    tools::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    dispatcher.until(&first, "=A17", "node2");
    let (status, answer) = moved(&first, "=A17", "node1");
    assert_eq!(
        (status, answer["problem"].as_str().unwrap()),
        (409, "set: =A17 is pinned to node2 in placement.pins")
    );
    second.kill();
    wait_for("only what is pinned is left there", || {
        assert!(dispatcher.idle(&first));
        (dispatcher.on("node1") == 64).then_some(())
    });
    assert_eq!(dispatcher.table["=A17"], "node2");
}

#[test]
fn hostile_messages_are_refused_by_name() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, &redis, "node1", "");
    let dispatcher = Dispatcher::join(&agent, "lb1/1#a");
    let report = |key: &str, value: Value| {
        let mut body = json!({
            "op": "report", "id": "lb1/1#a", "generation": dispatcher.generation, "version": 1,
        });
        body[key] = value;
        body
    };
    let many: Vec<String> = (0..1025).map(|n| format!("={n}")).collect();
    for (body, wanted) in [
        (json!({}), "missing field `op`"),
        (json!({ "op": "fly" }), "unknown variant `fly`"),
        (json!({ "op": "join", "id": "a b#c" }), "id must be"),
        (
            json!({ "op": "join", "id": "x".repeat(300) + "#a" }),
            "id must be",
        ),
        (json!({ "op": "join", "id": "lb1/1#a" }), "never used twice"),
        (
            json!({ "op": "join", "id": "lb1/1#z", "zzz": 1 }),
            "unknown field `zzz`",
        ),
        (report("busy", json!(many)), "busy: may be 1024"),
        (
            report("busy", json!(["=a b"])),
            "busy: \"=a b\" is no object set",
        ),
        (report("busy", json!(["*64"])), "an object set is"),
        (report("loads", json!({ "x": 1 })), "loads must be"),
        (report("loads", json!({ "=a 1 =b": 1 })), "is no object set"),
        (report("loads", json!({ "=a": -1 })), "from 0 to 1e15"),
        (report("loads", json!({ "=a": 1e300 })), "from 0 to 1e15"),
        (report("generation", json!("a b")), "generation must be"),
        (report("version", json!(-1)), "version"),
        (
            json!({ "op": "move", "set": "A17", "node": "node1" }),
            "an object set is",
        ),
        (
            json!({ "op": "move", "set": "=A", "node": "node9" }),
            "not live; live: node1",
        ),
        (json!({ "op": "leave", "id": "" }), "id must be"),
    ] {
        let (status, answer) = post(&agent, &body);
        assert_eq!(status, 400, "{body}: {answer}");
        let problem = answer["problem"].as_str().unwrap();
        assert!(problem.contains(wanted), "{problem}, not {wanted}");
    }
    let other = json!({ "op": "join", "id": "a#b", "cluster": "d" });
    assert_eq!(post(&agent, &other).0, 404);
    // Versions that have never been, or cannot be, do not take the table away.
    for version in [999_999_999_u64, 1_000_000_000_000_000] {
        let (status, answer) = post(&agent, &report("version", json!(version)));
        assert_eq!((status, answer["status"].as_str()), (200, Some("unknown")));
    }
    wait_for("it is in force as before", || {
        let answer = Dispatcher::ask(&agent, "lb2/1#c");
        (answer["status"] == "open")
            .then(|| assert_eq!(answer["generation"], dispatcher.generation.as_str()))
    });
}

#[test]
fn an_agent_without_placement_says_so() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    assert_eq!(agent.get("/v1/placement").unwrap().0, 404);
    assert!(
        cli(&agent, &["show"])
            .unwrap_err()
            .contains("no [placement]")
    );
}

#[test]
fn what_cannot_be_configured_is_named() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    for (more, wanted) in [
        ("when_lost = \"panic\"", "placement.when_lost"),
        ("gain = 2", "placement.gain"),
        ("initial = \"a b\"", "placement.initial"),
        (
            "[placement.pins]\nA17 = \"node1\"",
            "placement.pins.A17: an object set is",
        ),
        ("[placement.pins]\n\"=A\" = \"a b\"", "placement.pins.=A"),
    ] {
        let agent = member(&service, &redis, "node1", more);
        let told = agent.start_refused();
        assert!(told.contains(wanted), "{told}");
    }
    let agent = member(&service, &redis, "node1", "");
    agent.write_config(&agent.config().replace(
        "[placement]\ncluster = \"c\"",
        "[placement]\ncluster = \"d\"",
    ));
    let told = agent.start_refused();
    assert!(
        told.contains("no [service.ring] of this agent has the cluster \"d\""),
        "{told}"
    );
}
