//! Proxies that exchange observations for shares through the real agent and a real Redis.

use crate::support::exchange::{IDLE, PATH, ask, ask_text, dispatcher, granted, one, problem};
use crate::support::redis::{Redis, member, patient, wait_nodes};
use crate::support::{Agent, Service, http_post, wait_for};
use serde_json::{Value, json};

/// node1, whose bound is 40, with an address.
fn node1(service: &Service, redis: &Redis) -> Agent {
    let agent = patient(service, "node1", redis);
    let name = "name = \"stocks\"\n";
    let config = agent.config();
    agent.write_config(&config.replace(name, &format!("{name}address = \"127.0.0.1:8101\"\n")));
    assert_eq!(agent.reload(), "applied");
    wait_nodes(&agent, &["node1"]);
    agent
}

#[test]
fn dispatchers_get_shares_and_all_nodes() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = node1(&service, &redis);
    let _second = patient(&service, "node2", &redis);
    let ring = wait_nodes(&agent, &["node1", "node2"]);
    let mut body = json!({"service": "stocks", "dispatchers": [
        dispatcher("envoy1/1", "1f.3a", 12.5), dispatcher("envoy1/2", "1f.3a", 12.5),
    ]});
    body["dispatchers"][0]["nodes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "gone", "demand": 1, "observation": IDLE}));
    ask(&agent, &body);
    let (status, answer) = ask(&agent, &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["version"], ring["version"]);
    let node = json!({
        "address": "127.0.0.1:8101", "bound_jobs": 40.0, "mean_cost": 1.0,
        "jobs": answer["nodes"]["node1"]["jobs"], "load": answer["nodes"]["node1"]["load"],
    });
    assert_eq!(answer["nodes"]["node1"], node);
    assert_eq!(answer["nodes"]["node2"]["address"], Value::Null);
    assert_eq!(answer["nodes"].as_object().unwrap().len(), 2);
    for name in ["envoy1/1", "envoy1/2"] {
        let dispatcher = &answer["dispatchers"][name];
        assert_eq!(dispatcher["count"], 2, "{answer}");
        // What is gone, or was not asked for, is granted to nobody.
        assert_eq!(dispatcher["granted"].as_object().unwrap().len(), 1);
    }
    let both = granted(&answer, "envoy1/1") + granted(&answer, "envoy1/2");
    assert!((both - 40.0).abs() < 1e-6, "{answer}");
    let seen = redis.cli(&["HGET", "plimsoll:{c}:observations", "node1 envoy1/1"]);
    assert_eq!(seen.trim(), IDLE);
    assert_eq!(
        agent.count("plimsoll_exchanges_total{result=\"carried\"}"),
        2.0
    );
}

#[test]
fn one_that_leaves_gives_its_shares_back() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = node1(&service, &redis);
    let first = ask(&agent, &one("envoy1/1", 10.0)).1;
    assert_eq!(granted(&first, "envoy1/1"), 20.0, "half of what is free");
    let first = ask(&agent, &one("envoy1/1", 10.0)).1;
    assert_eq!(granted(&first, "envoy1/1"), 40.0);
    let second = ask(&agent, &one("envoy2/1", 10.0)).1;
    assert_eq!(granted(&second, "envoy2/1"), 0.0, "the first holds it all");
    let mut body = one("envoy1/1", 10.0);
    body["dispatchers"][0]["lease_seconds"] = json!(0);
    let (status, left) = ask(&agent, &body);
    assert_eq!(status, 200);
    assert_eq!(
        left["dispatchers"]["envoy1/1"],
        json!({"count": 1, "granted": {}})
    );
    let second = ask(&agent, &one("envoy2/1", 10.0)).1;
    assert_eq!(granted(&second, "envoy2/1"), 40.0);
}

#[test]
fn of_two_instances_of_one_name_the_last_one_holds_the_shares() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = node1(&service, &redis);
    for instance in ["old", "new", "old"] {
        let body = json!({"dispatchers": [dispatcher("envoy1/1", instance, 10.0)]});
        let (_, answer) = ask(&agent, &body);
        assert_eq!(answer["dispatchers"]["envoy1/1"]["count"], 1);
        assert_eq!(granted(&answer, "envoy1/1"), 20.0, "a new one's");
        let held = redis.cli(&["HGET", "plimsoll:{c}:proxies", "envoy1/1"]);
        assert!(held.trim().ends_with(instance), "{held}");
    }
}

#[test]
fn two_hundred_and_fifty_six_at_once() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = node1(&service, &redis);
    let all: Vec<Value> = (0..256)
        .map(|n| dispatcher(&format!("envoy1/{n}"), "i", f64::from(n)))
        .collect();
    let mut body = json!({"dispatchers": all});
    let answer = wait_for("all have a share", || {
        let (status, answer) = ask(&agent, &body);
        assert_eq!(status, 200, "{answer}");
        let shares = answer["dispatchers"].as_object().unwrap();
        assert_eq!(shares.len(), 256);
        // On a busy machine the node's lease may be over.
        let given = |share: &Value| share["granted"]["node1"].is_number();
        shares.values().all(given).then_some(answer)
    });
    let names = (0..256).map(|n| format!("envoy1/{n}"));
    let sum: f64 = names.map(|name| granted(&answer, &name)).sum();
    assert!(sum <= 40.0 * (1.0 + 1e-9), "{sum}");
    body["dispatchers"]
        .as_array_mut()
        .unwrap()
        .push(dispatcher("one-more", "i", 1.0));
    assert_eq!(
        problem(&agent, &body.to_string()),
        (400, "dispatchers: 257, maximum 256".into())
    );
}

#[test]
fn a_call_rejected_by_the_library_fails_for_its_dispatcher_only() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = node1(&service, &redis);
    assert_eq!(ask(&agent, &one("first", 1.0)).0, 200);
    let script = "local t = redis.call('TIME') for i = 1, 4095 do \
                  redis.call('HSET', KEYS[1], 'p' .. i, (t[1] + 60) .. '000 60000 0 i') end";
    redis.cli(&["EVAL", script, "1", "plimsoll:{c}:proxies"]);
    let body =
        json!({"dispatchers": [dispatcher("one-more", "i", 1.0), dispatcher("first", "i", 1.0)]});
    let (status, answer) = ask(&agent, &body);
    assert_eq!(status, 200);
    assert_eq!(
        answer["dispatchers"]["one-more"],
        json!({"problem": "the cluster has 4096 proxies, which is the most"})
    );
    assert_eq!(answer["dispatchers"]["first"]["count"], 4096);
}

#[test]
fn bad_input_is_named_by_its_path() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = node1(&service, &redis);
    let good = one("envoy1/1", 10.0).to_string();
    let long = "x".repeat(129);
    let much = "x".repeat(2049);
    let swap = |from: &str, to: &str| {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        bad
    };
    let node = format!("{{\"name\":\"node1\",\"demand\":1,\"observation\":\"{IDLE}\"}}");
    let nodes = |count: usize| {
        let all: Vec<_> = (0..count)
            .map(|n| node.replace("node1", &format!("n{n}")))
            .collect();
        format!(
            "{{\"dispatchers\":[{{\"name\":\"a\",\"instance\":\"i\",\"lease_seconds\":1,\"nodes\":[{}]}}]}}",
            all.join(",")
        )
    };
    for (body, told) in [
        (String::new(), "EOF while parsing"),
        ("[".into(), "EOF while parsing"),
        ("[]".into(), "invalid length 0"),
        ("null".into(), "invalid type: null"),
        (good[..good.len() - 1].into(), "EOF while parsing"),
        (format!("{good} x"), "trailing characters"),
        ("\u{fffd}".into(), "expected value"),
        ("[".repeat(10_000), "[0]: invalid type: sequence"),
        ("{}".into(), "missing field `dispatchers`"),
        ("{\"dispatchers\":3}".into(), "dispatchers: invalid type"),
        (
            swap("{\"dispatchers\"", "{\"x\":1,\"dispatchers\""),
            "x: unknown field `x`",
        ),
        (
            swap("\"instance\"", "\"lease\":1,\"instance\""),
            "dispatchers[0].lease: unknown field `lease`",
        ),
        (
            swap("\"instance\":\"i\",", ""),
            "dispatchers[0]: missing field `instance`",
        ),
        (
            swap("\"demand\"", "\"x\":1,\"demand\""),
            "dispatchers[0].nodes[0].x: unknown field `x`",
        ),
        (
            swap("10.0", "\"10\""),
            "dispatchers[0].nodes[0].demand: invalid type: string",
        ),
        (
            swap("10.0", "null"),
            "dispatchers[0].nodes[0].demand: invalid type: null",
        ),
        (
            swap("10.0", "NaN"),
            "dispatchers[0].nodes[0].demand: expected value",
        ),
        (
            swap("10.0", "1e400"),
            "dispatchers[0].nodes[0].demand: number out of range",
        ),
        (
            swap("10.0", "-1"),
            "dispatchers[0].nodes[0].demand: must be from 0 to 1e15, is -1",
        ),
        (
            swap("10.0", "1e16"),
            "dispatchers[0].nodes[0].demand: must be from 0 to 1e15",
        ),
        (
            swap(IDLE, &much),
            "dispatchers[0].nodes[0].observation: must be at most 2048",
        ),
        (
            swap(IDLE, "a\\nb"),
            "dispatchers[0].nodes[0].observation: must be at most 2048 printable",
        ),
        (
            swap("node1", ""),
            "dispatchers[0].nodes[0].name: must be 1 to 128",
        ),
        (
            swap("node1", "a b"),
            "dispatchers[0].nodes[0].name: must be 1 to 128",
        ),
        (
            swap("node1", &long),
            "dispatchers[0].nodes[0].name: must be 1 to 128",
        ),
        (
            swap("envoy1/1", ""),
            "dispatchers[0].name: must be 1 to 128",
        ),
        (
            swap("envoy1/1", "é"),
            "dispatchers[0].name: must be 1 to 128",
        ),
        (
            swap("\"i\"", "\"a,b\""),
            "dispatchers[0].instance: must be 1 to 128",
        ),
        (
            swap("\"i\"", "3"),
            "dispatchers[0].instance: invalid type: integer",
        ),
        (
            swap("60.0", "-1"),
            "dispatchers[0].lease_seconds: must be 0, or from 0.1 to 3600, is -1",
        ),
        (
            swap("60.0", "3601"),
            "dispatchers[0].lease_seconds: must be 0, or from 0.1 to 3600",
        ),
        (
            swap("60.0", "1e-9"),
            "dispatchers[0].lease_seconds: must be 0, or from 0.1",
        ),
        (nodes(256), "dispatchers[0].nodes: 256, maximum 255"),
        (
            nodes(2).replace("n1", "n0"),
            "dispatchers[0].nodes[1].name: duplicate \"n0\"",
        ),
        (
            json!({"dispatchers": [dispatcher("a", "i", 1.0), dispatcher("a", "j", 1.0)]})
                .to_string(),
            "dispatchers[1].name: duplicate \"a\"",
        ),
        (
            swap("{\"dispatchers\"", "{\"service\":7,\"dispatchers\""),
            "service: invalid type",
        ),
    ] {
        let (status, said) = problem(&agent, &body);
        assert_eq!(
            (status, said.starts_with(told)),
            (400, true),
            "{told}: {said}"
        );
    }
    assert_eq!(ask_text(&agent, &nodes(255)).0, 200);
    assert_eq!(ask_text(&agent, "{\"dispatchers\":[]}").0, 200);
    let elsewhere = swap(
        "{\"dispatchers\"",
        "{\"service\":\"orders\",\"dispatchers\"",
    );
    assert_eq!(
        problem(&agent, &elsewhere),
        (
            404,
            "service: this agent follows no ring of \"orders\"".into()
        )
    );
    assert_eq!(agent.get(PATH).unwrap().0, 405);
    assert_eq!(
        http_post(agent.http_port, "/v1/ring", "", "{}").unwrap().0,
        405
    );
}

#[test]
fn exchanges_without_a_ring_are_rejected() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    assert_eq!(
        problem(&agent, &one("a", 1.0).to_string()),
        (404, "this agent follows no ring".into())
    );
}

#[test]
fn the_token_is_asked_for_and_read_again() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = member(&service, "node1", &format!("urls = [\"{}\"]", redis.url()));
    let file = agent.directory.path().join("token");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let config = agent.config();
    agent.write_config(&config.replace("[http]\n", "[http]\ntoken_file = \"DIR/token\"\n"));
    agent.start_again();
    wait_nodes(&agent, &["node1"]);
    let body = one("a", 1.0).to_string();
    let with = |head: &str| http_post(agent.http_port, PATH, head, &body).unwrap().0;
    let good = "authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(with(good), 200);
    for bad in [
        "",
        "authorization: Bearer 0123456789abcdeg\r\n",
        "authorization: Bearer 0123456789abcde\r\n",
        "authorization: Bearer 0123456789abcdeff\r\n",
        "authorization: Bearer \r\n",
        "authorization: Basic 0123456789abcdef\r\n",
        "authorization: B\r\n",
    ] {
        assert_eq!(with(bad), 401, "{bad}");
    }
    assert_eq!(agent.get("/v1/ring").unwrap().0, 200, "reading needs none");
    std::fs::write(&file, "fedcba9876543210").unwrap();
    assert_eq!(agent.reload(), "applied");
    assert_eq!(with(good), 401);
    assert_eq!(with("authorization: bearer fedcba9876543210\r\n"), 200);
    for bad in ["short", "", "0123456789 abcdef"] {
        std::fs::write(&file, bad).unwrap();
        assert_eq!(agent.reload(), "refused");
        wait_for("it is told", || {
            let told = agent.log().contains("http.token_file");
            told.then_some(())
        });
    }
    assert_eq!(with("authorization: Bearer fedcba9876543210\r\n"), 200);
    assert!(!agent.log().contains("fedcba9876543210"));
}
