//! Exchanges while Redis is away, slow or full, and by proxies that are too many or too slow.

use crate::support;
use crate::support::exchange;
use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::support::exchange::{PATH, ask, dispatcher, one, wait_granted};
use crate::support::redis::{
    Redis, Tap, assert_undisturbed, failures, library_version, member, patient, set_lease, started,
    wait_failure, wait_nodes, wait_reports,
};
use crate::support::{Agent, Service, http_get, wait_for};
use serde_json::{Value, json};

/// The exchange fails, at once or after `redis.timeout`, and the agent keeps running.
fn assert_away(agent: &Agent) {
    for _ in 0..3 {
        let (status, answer) = ask(agent, &one("envoy1/1", 1.0));
        assert_eq!(status, 503, "{answer}");
        let problem = answer["problem"].as_str().unwrap();
        assert!(problem.starts_with("Redis: "), "{problem}");
    }
    assert_undisturbed(agent);
}

#[test]
fn down_at_start_lost_and_back_empty() {
    let service = Service::start();
    let mut redis = Redis::unstarted(&[]);
    let agent = started(&service, "node1", &redis);
    assert_away(&agent);
    for _ in 0..2 {
        redis.start_again();
        wait_granted(&agent);
        redis.kill();
        assert_away(&agent);
    }
    assert!(agent.count("plimsoll_exchanges_total{result=\"redis\"}") >= 9.0);
}

#[test]
fn a_hanging_redis_delays_exchanges_only_briefly() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, "node1", &redis);
    wait_granted(&agent);
    redis.signal("-STOP");
    assert_away(&agent);
    redis.signal("-CONT");
    wait_granted(&agent);
}

#[test]
fn a_slow_redis_is_waited_for() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let tap = Tap::to(redis.port, 200);
    let table = format!("urls = [\"{}\"]\ntimeout = \"5s\"", tap.url());
    let mut agent = member(&service, "node1", &table);
    set_lease(&agent, "5s");
    agent.start_again();
    wait_nodes(&agent, &["node1"]);
    wait_granted(&agent);
    assert_undisturbed(&agent);
    assert_eq!(
        agent.count("plimsoll_exchanges_total{result=\"redis\"}"),
        0.0
    );
    assert_eq!(failures(&agent), 0.0, "{}", agent.log());
}

#[test]
fn a_redis_without_its_library_a_full_one_and_a_replica_are_mended() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, "node1", &redis);
    wait_granted(&agent);
    redis.cli(&["FUNCTION", "FLUSH"]);
    wait_granted(&agent);

    redis.cli(&["SET", "filler", &"x".repeat(100_000)]);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let (status, answer) = ask(&agent, &one("envoy1/1", 1.0));
    let problem = answer["problem"].as_str().unwrap_or_default();
    let told = problem.contains("Redis is full, see its maxmemory");
    assert_eq!((status, told), (503, true), "{answer}");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_granted(&agent);

    let master = Redis::start(&[]);
    redis.cli(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
    wait_failure(&agent);
    assert_away(&agent);
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    wait_granted(&agent);
}

#[test]
fn a_malformed_answer_of_redis_is_an_error_and_grants_no_share() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = patient(&service, "node1", &redis);
    wait_granted(&agent);
    let function = |name: &str, body: &str| {
        format!("redis.register_function('plimsoll_{name}', function() return {body} end)\n")
    };
    let load = |observe: &str, nodes: &str| {
        let library = "#!lua name=plimsoll\n".to_owned()
            + &function("version", library_version())
            + &function("observe", observe)
            + &function("nodes", nodes);
        let said = redis.cli(&["FUNCTION", "LOAD", "REPLACE", &library]);
        assert!(said.contains("plimsoll"), "{said}");
    };
    let (good_shares, good_nodes) = ("{1, 1}", "{1}");
    let garbage = [
        "1",
        "'x'",
        "nil",
        "{}",
        "{'x', 'y'}",
        "{{}}",
        "{err='plimsoll'}",
        "{err='ERR else'}",
        "string.rep('x', 1000000)",
    ];
    let bad_shares = ["{1}", "{-1}", "{1, 'x'}", "{1, {}}"].into_iter();
    let bad_shares = bad_shares.chain(garbage).map(|body| (body, good_nodes));
    let bad_nodes = garbage.map(|body| (good_shares, body));
    for (shares, nodes) in bad_shares.chain(bad_nodes) {
        load(shares, nodes);
        let problem = wait_for(&format!("trouble with {shares} and {nodes}"), || {
            let (status, answer) = ask(&agent, &one("envoy1/1", 1.0));
            (status == 503).then(|| answer["problem"].as_str().unwrap_or_default().to_owned())
        });
        assert!(problem.starts_with("Redis: "), "{problem}");
        assert!(problem.len() < 300, "{problem}");
        load(good_shares, good_nodes);
        wait_for("the next answer", || {
            (ask(&agent, &one("envoy1/1", 1.0)).0 == 200).then_some(())
        });
    }
    // What cannot be a number is no share, and no node.
    load(
        "{7, 1, 'node1', 'nan', '1', '1', '1', '1', 'node2', '-1', '1', '1', '1', '1', 'odd'}",
        "{7, 'a', '', 'nan', '-1', '1e300', 'inf', '0x', 'odd'}",
    );
    let (status, answer) = ask(&agent, &one("envoy1/1", 1.0));
    assert_eq!(status, 200);
    let none = json!({"count": 1, "granted": {}});
    assert_eq!(
        answer,
        json!({"version": 7, "nodes": {}, "dispatchers": {"envoy1/1": none}})
    );
    assert_undisturbed(&agent);
    redis.cli(&["FUNCTION", "FLUSH"]);
    wait_granted(&agent);
}

#[test]
fn a_reload_leads_to_another_redis() {
    let (service, first, second) = (Service::start(), Redis::start(&[]), Redis::start(&[]));
    let agent = started(&service, "node1", &first);
    wait_granted(&agent);
    let config = agent.config();
    agent.write_config(&config.replace(&first.url(), &second.url()));
    assert_eq!(agent.reload(), "applied");
    wait_granted(&agent);
    let proxies = second.cli(&["HKEYS", "plimsoll:{c}:proxies"]);
    assert_eq!(proxies.trim(), "envoy1/1");
}

#[test]
fn large_exchanges_hold_up_no_report() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = patient(&service, "node1", &redis);
    wait_nodes(&agent, &["node1"]);
    std::thread::scope(|scope| {
        for proxy in 0..4 {
            let agent = &agent;
            scope.spawn(move || {
                let name = |n| format!("envoy{proxy}/{n}");
                let all: Vec<Value> = (0..32).map(|n| dispatcher(&name(n), "i", 1.0)).collect();
                for _ in 0..5 {
                    let (status, answer) = ask(agent, &json!({"dispatchers": all}));
                    assert_eq!(status, 200, "{answer}");
                    assert_eq!(answer["dispatchers"].as_object().unwrap().len(), 32);
                }
            });
        }
        wait_reports(&agent, 3.0);
    });
    assert_eq!(failures(&agent), 0.0, "{}", agent.log());
}

/// A request whose body never comes.
fn begun(agent: &Agent, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", agent.http_port)).unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    write!(
        stream,
        "POST {PATH} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}\r\n{body}"
    )
    .unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn missing_bodies_do_not_block_others() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, "node1", &redis);
    wait_granted(&agent);
    let slow: Vec<_> = (0..70)
        .map(|_| begun(&agent, "content-length: 9\r\n", "{"))
        .collect();
    // Together they have no room.
    let large = " ".repeat((4 << 20) - 1);
    let _large: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = begun(&agent, "content-length: 4194304\r\n", "");
            // One that has to give way may be reset.
            let _ = stream.write_all(large.as_bytes());
            stream
        })
        .collect();
    let (status, answer_to_all) = ask(&agent, &one("envoy1/1", 1.0));
    assert_eq!(status, 200, "{answer_to_all}");
    assert_undisturbed(&agent);
    let status = |stream| answer(stream).get(9..12).map(str::to_owned);
    for stream in slow {
        let status = status(stream);
        assert!(
            matches!(status.as_deref(), Some("408" | "429")),
            "{status:?}"
        );
    }
    assert!(agent.count("plimsoll_exchanges_total{result=\"busy\"}") >= 1.0);
    assert!(agent.process.as_ref().unwrap().resident() < 64 << 20);
}

#[test]
fn exchanges_that_are_too_many_are_sent_away() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, "node1", &redis);
    wait_granted(&agent);
    redis.signal("-STOP");
    let asked = || ask(&agent, &one("envoy1/1", 1.0));
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..32).map(|_| scope.spawn(asked)).collect();
        let answers = asked.into_iter().map(|it| it.join().unwrap());
        let busy = answers.filter(|(status, _)| *status == 429);
        assert!(
            busy.map(|(_, answer)| assert!(answer["problem"].is_string()))
                .count()
                > 0
        );
    });
    redis.signal("-CONT");
    wait_granted(&agent);
    assert!(agent.count("plimsoll_exchanges_total{result=\"busy\"}") >= 1.0);
}

#[test]
fn too_large_is_sent_away() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = patient(&service, "node1", &redis);
    let told = answer(begun(&agent, "content-length: 4194305\r\n", ""));
    assert!(told.starts_with("HTTP/1.1 413 "), "{told}");
    assert!(
        told.ends_with("{\"problem\":\"the body may have 4194304 bytes\"}"),
        "{told}"
    );
    // One that does not say how large it is, and fills the last byte.
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65_536)).repeat(64);
    let told = answer(begun(
        &agent,
        "transfer-encoding: chunked\r\n",
        &(chunk + "1\r\n"),
    ));
    assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65_536)).repeat(64);
    let told = answer(begun(
        &agent,
        "transfer-encoding: chunked\r\n",
        &(chunk + "1\r\n \r\n"),
    ));
    assert!(told.starts_with("HTTP/1.1 413 "), "{told}");
    let body = format!("{}{{\"dispatchers\":[]}}", " ".repeat((4 << 20) - 18));
    wait_nodes(&agent, &["node1"]);
    assert_eq!(exchange::ask_text(&agent, &body).0, 200);
}

#[test]
fn an_address_that_is_none_is_left_out() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = patient(&service, "node1", &redis);
    wait_nodes(&agent, &["node1"]);
    let end = "99999999999999";
    let far = redis.cli(&["TIME"]);
    let far: u64 = far.lines().next().unwrap().parse::<u64>().unwrap() * 1000 + 60_000;
    for (name, address) in [
        ("good", "10.0.0.1:80"),
        ("header", "a:80,b:80"),
        ("path", "http://a:80/"),
        ("port", "10.0.0.1:0"),
        ("late", "10.0.0.1:80"),
    ] {
        let end = if name == "late" {
            end.to_owned()
        } else {
            far.to_string()
        };
        let record = format!("1 1 1 1 1 {end} 60000 0 i {address}");
        redis.cli(&["HSET", "plimsoll:{c}:nodes", name, &record]);
    }
    let (status, answer) = ask(&agent, &json!({"dispatchers": []}));
    assert_eq!(status, 200);
    let addresses = |name: &str| answer["nodes"][name]["address"].clone();
    assert_eq!(addresses("good"), "10.0.0.1:80");
    for name in ["header", "path", "port", "node1"] {
        assert!(answer["nodes"][name].is_object(), "{name}: {answer}");
        assert_eq!(addresses(name), Value::Null, "{name}");
    }
    assert!(answer["nodes"]["late"].is_null());
}

#[test]
fn followers_that_are_ahead_or_too_many_wait_their_turn() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = patient(&service, "node1", &redis);
    let ring = wait_nodes(&agent, &["node1"]);
    let version = ring["version"].as_u64().unwrap();
    let get = |query: &str| {
        let (status, body) = agent.get(&format!("/v1/ring?{query}")).unwrap();
        (
            status,
            serde_json::from_str::<Value>(&body).unwrap_or_default(),
        )
    };
    assert_eq!(get(&format!("since={version}&wait=0.1")).0, 304);
    // Redis lost everything: what there is, but only after a wait.
    assert_eq!(
        get(&format!("since={}&wait=0.1", version + 7)),
        (200, ring.clone())
    );
    assert_eq!(get(&format!("since={}", version + 7)), (200, ring));
    // Asked another agent before, which was faster: the change itself is no news, nor is it told twice.
    let ahead = version + 1;
    let port = agent.http_port;
    let waits =
        std::thread::spawn(move || http_get(port, &format!("/v1/ring?since={ahead}&wait=3")));
    let behind =
        std::thread::spawn(move || http_get(port, &format!("/v1/ring?since={version}&wait=60")));
    let _second = patient(&service, "node2", &redis);
    let (status, body) = behind.join().unwrap().unwrap();
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &told["version"]), (200, &json!(ahead)), "{told}");
    assert_eq!(waits.join().unwrap().unwrap().0, 304);
    // Each of these waits for a minute, but for those that come while there is no room.
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(
            stream,
            "GET /v1/ring?since={ahead}&wait=60 HTTP/1.1\r\nhost: a\r\n\r\n"
        )
        .unwrap();
        stream
    };
    let mut waiting = Vec::new();
    wait_for("one is too many", || {
        waiting.extend((0..16).map(|_| ask()));
        let (status, _) = get("since=1000000000&wait=0.001");
        (status == 429).then_some(())
    });
    assert_eq!(get("").0, 200, "who does not wait is answered");
    drop(waiting);
    // Long before their time is over.
    wait_for("there is room again", || {
        let (status, _) = get("since=1000000000&wait=0.001");
        (status == 200).then_some(())
    });
}
