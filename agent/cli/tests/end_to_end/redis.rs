//! The ring through a real Redis: reports, leases, restarts.

use std::{
    io::{Seek, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Agent, Process, Service, free_port, wait_for};
use serde_json::Value;

struct Redis {
    port: u16,
    process: Option<Process>,
    directory: tempfile::TempDir,
    more: Vec<String>,
}

impl Redis {
    fn start(more: &[&str]) -> Self {
        let mut redis = Redis {
            port: free_port(),
            process: None,
            directory: tempfile::tempdir().unwrap(),
            more: more.iter().map(|word| (*word).to_owned()).collect(),
        };
        redis.start_again();
        redis
    }

    fn start_again(&mut self) {
        let child = Command::new("redis-server")
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .arg("--dir")
            .arg(self.directory.path())
            .args(&self.more)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        self.process = Some(Process(child));
        wait_for("redis answers", || {
            let answer = self.cli(&["PING"]);
            (answer.contains("PONG") || answer.contains("NOAUTH")).then_some(())
        });
    }

    fn cli(&self, words: &[&str]) -> String {
        let out = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
    }
}

/// An agent whose node is in the ring of cluster "c".
fn member(service: &Service, redis: &Redis, node: &str, more: &str) -> Agent {
    let agent = Agent::unstarted(service, "");
    let mut text = agent.config();
    text += &format!(
        "[service.ring]\ncluster = \"c\"\nnode = \"{node}\"\nslots = 1000\nlease = \"500ms\"\n\
         [redis]\nurls = [\"redis://127.0.0.1:{}\"]\n{more}",
        redis.port
    );
    agent.write_config(&text);
    agent
}

fn started(service: &Service, redis: &Redis, node: &str) -> Agent {
    let mut agent = member(service, redis, node, "");
    agent.start_again();
    agent
}

fn ring(agent: &Agent) -> Option<Value> {
    let (status, body) = agent.get("/v1/ring")?;
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

/// Waits until the agent's ring has just these nodes.
fn wait_nodes(agent: &Agent, nodes: &[&str]) -> Value {
    wait_for(&format!("a ring of {nodes:?}"), || {
        let ring = ring(agent)?;
        let names = ring["nodes"].as_array().unwrap().iter();
        let mut held: Vec<&str> = names
            .filter_map(Value::as_str)
            .filter(|n| !n.is_empty())
            .collect();
        held.sort_unstable();
        (held == nodes).then_some(ring)
    })
}

#[test]
fn nodes_share_the_ring_and_one_that_dies_leaves_it() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let first = started(&service, &redis, "node1");
    let second = started(&service, &redis, "node2");
    for agent in [&first, &second] {
        let ring = wait_nodes(agent, &["node1", "node2"]);
        assert_eq!(ring["slots"], 1000);
        let sizes: u64 = ring["owners"]
            .as_array()
            .unwrap()
            .chunks(2)
            .map(|r| r[1].as_u64().unwrap())
            .sum();
        assert_eq!(sizes, 1000);
    }
    let version = ring(&first).unwrap()["version"].as_u64().unwrap();
    let mut second = second;
    second.kill();
    let after = wait_nodes(&first, &["node1"]);
    assert!(after["version"].as_u64().unwrap() > version);
    let since = first.get(&format!("/v1/ring?since={version}")).unwrap().1;
    let since: Value = serde_json::from_str(&since).unwrap();
    let moved: u64 = since["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run[1].as_u64().unwrap())
        .sum();
    assert_eq!(moved, 500, "only the dead node's keys move: {since}");
    let version = after["version"].as_u64().unwrap();
    assert_eq!(
        first.get(&format!("/v1/ring?since={version}")).unwrap().0,
        304
    );
    assert_eq!(first.get("/v1/ring?since=-1").unwrap().0, 400);
    assert_eq!(first.get("/v1/ring?wait=1e9").unwrap().0, 400);
}

#[test]
fn an_agent_that_stops_leaves_at_once_and_a_drained_node_owns_nothing() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let first = started(&service, &redis, "node1");
    let mut second = started(&service, &redis, "node2");
    wait_nodes(&first, &["node1", "node2"]);
    second.node(&["drain"]).unwrap();
    wait_for("node2 owns nothing", || {
        let sizes = redis.cli(&["HGET", "plimsoll:{c}:ring", "sizes"]);
        sizes
            .trim()
            .split(',')
            .any(|size| size == "1000")
            .then_some(())
    });
    second.node(&["ready"]).unwrap();
    wait_for("node2 is back", || {
        let sizes = redis.cli(&["HGET", "plimsoll:{c}:ring", "sizes"]);
        (sizes.trim() == "500,500").then_some(())
    });
    assert!(second.stop().success());
    assert!(
        !redis
            .cli(&["HKEYS", "plimsoll:{c}:nodes"])
            .contains("node2")
    );
}

#[test]
fn a_drain_is_in_redis_before_the_period_is_over() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = member(&service, &redis, "node1", "");
    let text = agent
        .config()
        .replace("period = \"100ms\"", "period = \"12s\"");
    agent.write_config(&text.replace("lease = \"500ms\"", "lease = \"60s\""));
    agent.start_again();
    // A record begins with the bound.
    let has_bound = || {
        let record = redis.cli(&["HGET", "plimsoll:{c}:nodes", "node1"]);
        let bound = record.split(' ').next()?.parse::<f64>().ok()?;
        Some(bound > 0.0)
    };
    wait_for("node1 has a bound", || has_bound().filter(|has| *has));
    let begun = Instant::now();
    agent.node(&["drain"]).unwrap();
    wait_for("node1 has none", || has_bound().filter(|has| !has));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn redis_down_at_start_lost_and_back_empty() {
    let service = Service::start();
    let mut redis = Redis::start(&[]);
    redis.process = None;
    let agent = started(&service, &redis, "node1");
    // It controls and answers without Redis, and says what is wrong.
    assert!(
        agent
            .check("queries/node1\n")
            .unwrap()
            .contains("maxconn:40")
    );
    wait_for("the trouble is logged", || {
        agent.log().contains("Redis: ").then_some(())
    });
    wait_for("and counted", || {
        agent
            .metric("plimsoll_redis_failures_total{service=\"stocks\"}")
            .filter(|n| *n >= 1.0)
    });
    redis.start_again();
    let ring = wait_nodes(&agent, &["node1"]);
    let version = ring["version"].as_u64().unwrap();
    redis.process = None;
    wait_for("the loss is noticed", || {
        (agent.log().matches("Redis: ").count() >= 3).then_some(())
    });
    assert_eq!(
        wait_nodes(&agent, &["node1"]),
        ring,
        "the last ring is still served"
    );
    redis.start_again();
    wait_for("the ring is restored and not begun anew", || {
        let held = redis.cli(&["HGET", "plimsoll:{c}:ring", "version"]);
        (held.trim().parse() == Ok(version)).then_some(())
    });
}

#[test]
fn two_agents_of_one_name_are_told() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let first = started(&service, &redis, "node1");
    wait_nodes(&first, &["node1"]);
    let second = started(&service, &redis, "node1");
    wait_for("the second is told", || {
        second
            .log()
            .contains("reported by another agent")
            .then_some(())
    });
    assert!(
        second
            .check("queries/node1\n")
            .unwrap()
            .contains("maxconn:40")
    );
}

#[test]
fn a_password_and_a_user_are_required_if_redis_requires_them() {
    let redis = Redis::start(&["--requirepass", "secret"]);
    let service = Service::start();
    let without = started(&service, &redis, "node1");
    wait_for("no password", || {
        without.log().contains("NOAUTH").then_some(())
    });

    let mut with = member(&service, &redis, "node2", "");
    let file = with.directory.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let config = with.directory.path().join("agent.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + &format!("password_file = {file:?}\n")).unwrap();
    with.start_again();
    wait_nodes(&with, &["node2"]);
    assert!(!with.log().contains("secret"));
}

#[test]
fn a_newer_library_is_left_alone() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let library = "#!lua name=plimsoll\nredis.register_function{function_name='plimsoll_version', callback=function() return 99 end, flags={'no-writes'}}";
    redis.cli(&["FUNCTION", "LOAD", library]);
    let agent = started(&service, &redis, "node1");
    wait_for("it says so", || {
        agent.log().contains("upgrade the agent").then_some(())
    });
    assert_eq!(
        redis.cli(&["FCALL_RO", "plimsoll_version", "0"]).trim(),
        "99"
    );
}

#[test]
fn a_replica_is_not_written_to() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &redis.port.to_string()]);
    let mut agent = member(&service, &replica, "node1", "");
    let config = agent.directory.path().join("agent.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let both = format!(
        "urls = [\"redis://127.0.0.1:{}\", \"redis://127.0.0.1:{}\"]",
        replica.port, redis.port
    );
    let one = format!("urls = [\"redis://127.0.0.1:{}\"]", replica.port);
    std::fs::write(&config, text.replace(&one, &both)).unwrap();
    agent.start_again();
    wait_nodes(&agent, &["node1"]);
    assert!(
        redis
            .cli(&["HKEYS", "plimsoll:{c}:nodes"])
            .contains("node1")
    );
}

fn plimsoll_ring(args: &[&str]) -> Result<String, String> {
    plimsoll_ring_of(b"", args)
}

fn plimsoll_ring_of(input: &[u8], args: &[&str]) -> Result<String, String> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("ring")
        .args(args)
        .stdin(file)
        .output()
        .unwrap();
    let (good, bad) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8(out.stderr).unwrap(),
    );
    if out.status.success() {
        Ok(good)
    } else {
        Err(bad)
    }
}

#[test]
fn keys_slots_and_owners_are_told() {
    // XXH32("a") is 550d7456.
    assert_eq!(
        plimsoll_ring(&["slot", "a", "b"]).unwrap(),
        "a\t5443\nb\t10371\n"
    );
    assert_eq!(
        plimsoll_ring(&["slot", "--slots", "1", "a"]).unwrap(),
        "a\t0\n"
    );
    assert!(plimsoll_ring(&["slot", "--slots", "0", "a"]).is_err());
    assert!(plimsoll_ring(&["slot"]).is_err());
    // Any bytes, an empty key, a last line without its end; U+FFFD is how this test reads the odd byte.
    assert_eq!(
        plimsoll_ring_of(b"a\n\n\xff b\r\nb", &["slot", "--stdin"]).unwrap(),
        "a\t5443\n\t179\n\u{fffd} b\r\t10648\nb\t10371\n"
    );
    assert!(plimsoll_ring_of(b"a\n", &["slot", "--stdin", "a"]).is_err());

    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, &redis, "node1");
    wait_nodes(&agent, &["node1"]);
    let url = format!("http://127.0.0.1:{}", agent.http_port);
    let before = agent.get("/v1/ring").unwrap().1;
    let file = agent.directory.path().join("before.json");
    std::fs::write(&file, before).unwrap();
    let _second = started(&service, &redis, "node2");
    wait_nodes(&agent, &["node1", "node2"]);

    let shown = plimsoll_ring(&["show", "--url", &url]).unwrap();
    assert!(
        shown.contains("1000 slots\nnode1\t500\t50.00 %\nnode2\t500\t50.00 %\n"),
        "{shown}"
    );
    let moved = plimsoll_ring(&["diff", file.to_str().unwrap(), &url]).unwrap();
    assert!(
        moved.contains("500 slots moved, 50.00 %\nnode1\tnode2\t500\n"),
        "{moved}"
    );
    let owners = plimsoll_ring(&["owner", "--url", &url, "a", "b"]).unwrap();
    assert!(
        owners.lines().all(|line| line.contains("\tnode")),
        "{owners}"
    );
    assert_eq!(owners.lines().count(), 2);
    let told = plimsoll_ring_of(b"a\nb\n", &["owner", "--url", &url, "--stdin"]).unwrap();
    assert_eq!(told, owners);

    let refused = plimsoll_ring(&["show", "--url", "http://127.0.0.1:1"]).unwrap_err();
    assert!(refused.contains("127.0.0.1:1"), "{refused}");
    std::fs::write(
        &file,
        "{\"version\":1,\"slots\":5,\"nodes\":[],\"owners\":[0,5]}",
    )
    .unwrap();
    let refused = plimsoll_ring(&["diff", file.to_str().unwrap(), &url]).unwrap_err();
    assert!(
        refused.contains("before.json") && refused.contains("owner 0"),
        "{refused}"
    );
}

#[test]
fn proxies_may_be_the_source() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = member(&service, &redis, "node1", "");
    let text = agent.config();
    let scrape = text
        .lines()
        .position(|line| line == "[service.source]")
        .unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.splice(scrape + 1..scrape + 4, ["kind = \"proxies\""]);
    agent.write_config(&lines.join("\n"));
    agent.start_again();
    wait_nodes(&agent, &["node1"]);
    let observe = |seen: &str| {
        let mut words = vec!["FCALL", "plimsoll_observe", "5"];
        let keys = ["nodes", "ring", "proxies", "shares", "observations"]
            .map(|part| format!("plimsoll:{{c}}:{part}"));
        words.extend(keys.iter().map(String::as_str));
        words.extend(["lb1", "i1", "60000", "node1", "100", seen]);
        redis.cli(&words)
    };
    observe("1 0 0 0 0 -");
    let mut count = 0;
    wait_for("what proxies saw is the delay", || {
        // 0.285 s is where bucket 31 ends.
        count += 5;
        observe(&format!(
            "1 {count} {} 0 {} 31:{count}",
            0.25 * f64::from(count),
            80 * count
        ));
        let state = agent.node_json()["services"]["stocks"].clone();
        let mean = state["delay"]["mean"].as_f64()?;
        ((mean - 0.25).abs() < 0.01 && state["decision"]["mean_cost"] != 1.0).then_some(())
    });
    observe("garbage");
    wait_for("garbage is told", || {
        agent.metric("plimsoll_source_failures_total{kind=\"garbage\",service=\"stocks\"}")
    });
}
