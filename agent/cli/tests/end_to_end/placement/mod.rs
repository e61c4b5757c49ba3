//! Placement with real agents and a real Redis; dispatchers are simulated.

mod hostile;
mod loss;

use crate::support::redis;
use std::process::Command;

use crate::support::redis::{Redis, wait_logged};
use crate::support::{Agent, Service, http_post, wait_for};
use serde_json::{Value, json};

/// An agent of cluster "c" with a ring and `[placement]`; not started.
fn member(service: &Service, redis: &Redis, node: &str, more: &str) -> Agent {
    let agent = redis::member(
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
    redis::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    let mut late = Dispatcher::join(&first, "lb2/1#b");
    assert_eq!(dispatcher.on("node1"), 64);
    let loads: serde_json::Map<String, Value> = (0..8)
        .map(|rest| (format!("*{rest}"), json!(500_000.0)))
        .collect();
    let loads = Value::Object(loads);
    let leaving = wait_for("something leaves", || {
        // In this order: what one has seen, the other sees in the same turn, so neither has acknowledged it below.
        assert!(late.idle(&first) && dispatcher.report(&first, &[], &loads));
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
    redis::wait_nodes(&second, &["node1", "node2"]);
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
    redis::wait_nodes(&second, &["node1", "node2"]);
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
    redis::wait_nodes(&first, &["node1", "node2"]);
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
    redis::wait_nodes(&first, &["node1", "node2"]);
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
        told.contains("lb2/1#b") && told.contains("moves are blocked"),
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
        "lb2/1#b forgotten\n"
    );
    wait_show(&first, "the doubt is over", |shown| {
        dispatcher.idle(&first) && shown["gone"] == json!([])
    });
    assert!(cli(&first, &["move", "*1", "node2"]).is_ok());
    dispatcher.until(&first, "*1", "node2");
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
    redis::wait_nodes(&first, &["node1", "node2"]);
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
