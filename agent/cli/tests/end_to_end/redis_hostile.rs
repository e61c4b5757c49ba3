//! Somebody else writes to the keys, or loads functions of the same names.

use std::process::{Command, Stdio};

use crate::support::redis::{
    Redis, assert_undisturbed, library_version, member, reports, ring, started, wait_failure,
    wait_logged, wait_nodes, wait_reports,
};
use crate::support::{Agent, Process, Service, wait_for};
use serde_json::Value;

const RING: &str = "plimsoll:{c}:ring";

fn version(agent: &Agent) -> u64 {
    ring(agent).map_or(0, |ring| ring["version"].as_u64().unwrap())
}

fn two(service: &Service, redis: &Redis) -> [Agent; 2] {
    let nodes = ["node1", "node2"];
    let agents = nodes.map(|node| started(service, node, redis));
    for agent in &agents {
        wait_nodes(agent, &nodes);
    }
    agents
}

/// The agents hold what Redis holds.
fn wait_agreed(agents: &[Agent], redis: &Redis, least: u64) -> Value {
    wait_for("all hold one ring", || {
        let held = redis.ring_field("version").parse::<u64>().ok()?;
        let rings: Option<Vec<Value>> = agents.iter().map(ring).collect();
        let rings = rings?;
        let agreed = rings
            .iter()
            .all(|ring| *ring == rings[0] && ring["version"] == held);
        (held >= least && agreed).then(|| rings[0].clone())
    })
}

fn library(body: &str) -> String {
    format!("#!lua name=other\n{body}")
}

#[test]
fn an_older_library_is_replaced() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let old = "redis.register_function{function_name='plimsoll_version', callback=function() return 0 end, flags={'no-writes'}}";
    redis.cli(&[
        "FUNCTION",
        "LOAD",
        &library(old).replace("other", "plimsoll"),
    ]);
    let agent = started(&service, "node1", &redis);
    wait_nodes(&agent, &["node1"]);
    assert_eq!(
        redis.cli(&["FCALL_RO", "plimsoll_version", "0"]).trim(),
        library_version()
    );
}

#[test]
fn a_foreign_library_with_the_same_names_is_reported_and_kept() {
    let service = Service::start();
    let no_number = "redis.register_function('plimsoll_version', function() return 'mine' end)";
    let a_number = &format!(
        "redis.register_function('plimsoll_version', function() return {} end)",
        library_version()
    );
    let no_version = "redis.register_function('plimsoll_report', function() return 'mine' end)";
    for (body, told) in [
        (
            no_number,
            "another library has that name; see FUNCTION LIST",
        ),
        (a_number, "plimsoll_report: "),
        (
            no_version,
            "another library has a function of that name; see FUNCTION LIST",
        ),
    ] {
        let redis = Redis::start(&[]);
        redis.cli(&["FUNCTION", "LOAD", &library(body)]);
        let agent = started(&service, "node1", &redis);
        wait_logged(&agent, told);
        wait_failure(&agent);
        assert_undisturbed(&agent);
        assert!(redis.cli(&["FUNCTION", "LIST"]).contains("other"));
        redis.cli(&["FUNCTION", "DELETE", "other"]);
        wait_nodes(&agent, &["node1"]);
    }
}

#[test]
fn functions_that_vanish_are_loaded_again() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agents = two(&service, &redis);
    redis.cli(&["FUNCTION", "FLUSH"]);
    wait_reports(&agents[0], 3.0);
    assert_eq!(
        redis.cli(&["FCALL_RO", "plimsoll_version", "0"]).trim(),
        library_version()
    );
}

#[test]
fn a_key_of_another_type_is_named() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agents = two(&service, &redis);
    let before = ring(&agents[0]).unwrap();
    for key in ["nodes", "ring", "proxies", "shares", "observations"] {
        let key = format!("plimsoll:{{c}}:{key}");
        redis.cli(&["SET", &key, "mine"]);
        wait_logged(
            &agents[0],
            &format!("key {key} holds a string and not a hash: delete it"),
        );
        assert_undisturbed(&agents[0]);
        assert_eq!(
            redis.cli(&["GET", &key]).trim(),
            "mine",
            "it is not ours to delete"
        );
        redis.cli(&["DEL", &key]);
        agents.iter().for_each(|agent| wait_reports(agent, 3.0));
    }
    let after = wait_agreed(&agents, &redis, 1);
    assert_eq!(after["owners"], before["owners"], "no key moved");
}

#[test]
fn a_version_that_went_back_goes_on_from_the_highest() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agents = two(&service, &redis);
    redis.cli(&["HSET", RING, "version", "1000"]);
    wait_agreed(&agents, &redis, 1000);
    redis.cli(&["HSET", RING, "version", "7"]);
    let ring = wait_agreed(&agents, &redis, 1001);
    assert_eq!(ring["nodes"], serde_json::json!(["node1", "node2"]));
    let told = |agent: &Agent| agent.log().contains("lost changes of the ring");
    assert!(agents.iter().any(told));
}

#[test]
fn another_table_under_a_known_version_gets_a_new_one() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agents = two(&service, &redis);
    let before = wait_agreed(&agents, &redis, 1);
    // As after a failover that lost the last change and then counted another.
    redis.cli(&["HSET", RING, "names", "node2\nnode1"]);
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let least = before["version"].as_u64().unwrap() + 1;
    let after = wait_agreed(&agents, &redis, least);
    assert_eq!(after["nodes"], serde_json::json!(["node2", "node1"]));
}

#[test]
fn the_last_version_there_can_be_is_survived() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agents = two(&service, &redis);
    redis.cli(&["HSET", RING, "version", "1000000000000000"]);
    wait_agreed(&agents, &redis, 1_000_000_000_000_000);
    agents[1].kill();
    wait_nodes(&agents[0], &["node1"]);
    assert!(version(&agents[0]) < 100);
    agents[1].start_again();
    wait_nodes(&agents[0], &["node1", "node2"]);
    wait_agreed(&agents, &redis, 1);
}

#[test]
fn a_damaged_table_is_mended_from_an_agents_memory() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agents = two(&service, &redis);
    let before = wait_agreed(&agents, &redis, 1);
    let garbled = "\u{7}".repeat(1000);
    let damages: [&[&str]; 5] = [
        &["owners", &garbled],
        &["owners", "short"],
        &["sizes", "nan,-1"],
        &["names", "a b\nc"],
        &["version", "1e308"],
    ];
    for damage in damages {
        let words = [&["HSET", RING], damage].concat();
        redis.cli(&words);
        // Where nothing but the bytes is wrong, only a reading shows it.
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        wait_for(&format!("{damage:?} is gone"), || {
            (redis.ring_field(damage[0]) != damage[1]).then_some(())
        });
        agents.iter().for_each(|agent| wait_reports(agent, 3.0));
        let after = wait_agreed(&agents, &redis, 1);
        assert_eq!(after["owners"], before["owners"], "{damage:?} moved keys");
    }
}

#[test]
fn garbage_among_the_nodes_is_dropped() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agents = two(&service, &redis);
    let before = wait_agreed(&agents, &redis, 1);
    let huge = "9".repeat(100_000);
    let mut words = vec!["HSET".to_owned(), "plimsoll:{c}:nodes".to_owned()];
    for n in 0..10_000 {
        words.extend([format!("x{n}"), "nan nan nan nan nan 1 1000 0 i".to_owned()]);
    }
    for record in [
        "1e308 1 1 1 1 99999999999999 1000 0 i",
        "-1 1 1 1 1 99999999999999 1000 0 i",
        &huge,
    ] {
        words.extend([format!("bad name {}", record.len()), record.to_owned()]);
        words.extend([format!("bad\n{}", record.len()), record.to_owned()]);
    }
    redis.cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
    wait_for("they are dropped", || {
        (redis.cli(&["HLEN", "plimsoll:{c}:nodes"]).trim() == "2").then_some(())
    });
    agents.iter().for_each(|agent| wait_reports(agent, 3.0));
    assert_eq!(wait_agreed(&agents, &redis, 1), before);
}

#[test]
fn the_second_of_one_name_waits_until_the_first_is_gone() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut first = started(&service, "node1", &redis);
    wait_nodes(&first, &["node1"]);
    let second = started(&service, "node1", &redis);
    wait_logged(&second, "node node1 is reported by another agent");
    wait_reports(&first, 5.0);
    assert_eq!(reports(&second), 0.0);
    assert_undisturbed(&second);
    assert!(!first.log().contains("Redis: "));
    first.kill();
    wait_reports(&second, 2.0);
}

#[test]
fn no_agents_clock_reaches_redis() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let seen = redis.directory.path().join("monitor");
    let child = Command::new("redis-cli")
        .args(["-p", &redis.port.to_string(), "MONITOR"])
        .stdout(std::fs::File::create(&seen).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _monitor = Process(child);
    wait_for("it listens", || {
        std::fs::read_to_string(&seen)
            .ok()
            .filter(|text| text.contains("OK"))
    });
    let agent = member(&service, "node1", &format!("urls = [\"{}\"]", redis.url()));
    let mut agent = agent;
    agent.start_again();
    wait_nodes(&agent, &["node1"]);
    redis.cli(&["DEL", RING]);
    wait_for("the ring is restored", || {
        std::fs::read_to_string(&seen)
            .ok()
            .filter(|text| text.contains("plimsoll_restore"))
    });
    wait_reports(&agent, 2.0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let text = std::fs::read_to_string(&seen).unwrap();
    // Each line is "<time> [<database> <client>] <words>"; what functions do says "lua".
    let said: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("\"FCALL\"") && !line.contains(" lua] "))
        .map(|line| line.split_once("] ").unwrap().1)
        .collect();
    assert!(said.len() > 4, "{text}");
    for line in said {
        for word in line.split(' ') {
            let Ok(number) = word.trim_matches('"').parse::<f64>() else {
                continue;
            };
            for unit in [1.0, 1e3, 1e6, 1e9] {
                let off = (number / unit - now).abs();
                assert!(off > 86_400.0, "{word} is a time of day: {line}");
            }
        }
    }
}
