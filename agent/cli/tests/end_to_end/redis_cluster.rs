//! A real Redis Cluster of three masters and one replica.

use crate::support::exchange;
use crate::support::redis;
use std::time::{Duration, Instant};

use crate::support::redis::{
    Redis, assert_undisturbed, documented_acl, member, ring, set_lease, started_by, wait_nodes,
    wait_reports,
};
use crate::support::{Service, free_port, wait_for};

/// Three masters and a replica of the one that holds cluster "c"; that one and the replica are last.
fn cluster() -> Vec<Redis> {
    let mut nodes: Vec<(Redis, String)> = (0..4)
        .map(|_| {
            let bus = free_port().to_string();
            let more = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "500",
                "--cluster-port",
                &bus,
            ]
            .into_iter()
            .chain([
                "--repl-diskless-sync-delay",
                "0",
                "--cluster-replica-validity-factor",
                "0",
            ]);
            (Redis::start(&more.collect::<Vec<_>>()), bus)
        })
        .collect();
    let slot: u32 = nodes[0]
        .0
        .cli(&["CLUSTER", "KEYSLOT", "plimsoll:{c}:nodes"])
        .trim()
        .parse()
        .unwrap();
    let ranges = [(0, 5460), (5461, 10922), (10923, 16383)];
    let holder = ranges.iter().position(|(_, last)| slot <= *last).unwrap();
    for ((node, _), (first, last)) in nodes.iter().zip(ranges) {
        node.cli(&[
            "CLUSTER",
            "ADDSLOTSRANGE",
            &first.to_string(),
            &last.to_string(),
        ]);
    }
    for (node, bus) in &nodes[1..] {
        nodes[0]
            .0
            .cli(&["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string(), bus]);
    }
    nodes.swap(holder, 2);
    wait_for("all know all", || {
        nodes
            .iter()
            .all(|(node, _)| {
                node.cli(&["CLUSTER", "INFO"])
                    .contains("cluster_known_nodes:4")
            })
            .then_some(())
    });
    let id = nodes[2].0.cli(&["CLUSTER", "MYID"]);
    wait_for("the replica follows", || {
        nodes[3].0.cli(&["CLUSTER", "REPLICATE", id.trim()]);
        nodes[3]
            .0
            .cli(&["INFO", "replication"])
            .contains("master_link_status:up")
            .then_some(())
    });
    wait_for("the cluster is whole", || {
        let whole = |node: &Redis| {
            let told = node.cli(&["CLUSTER", "INFO"]);
            told.contains("cluster_state:ok")
                && node.cli(&["CLUSTER", "NODES"]).matches("slave").count() == 1
        };
        nodes.iter().all(|(node, _)| whole(node)).then_some(())
    });
    let nodes: Vec<Redis> = nodes.into_iter().map(|(node, _)| node).collect();
    for node in &nodes {
        let rule = documented_acl("agents") + " +cluster|slots";
        let said = node.cli(&rule.split_whitespace().collect::<Vec<_>>());
        assert_eq!(said.trim(), "OK", "{rule}");
    }
    nodes
}

#[test]
fn reports_find_their_master_and_survive_its_death() {
    let (service, mut nodes) = (Service::start(), cluster());
    // Each agent knows one member only, and neither is the one that holds the keys.
    let names = ["node1", "node2"];
    let agents = [0, 1].map(|seed| {
        let table = format!(
            "mode = \"cluster\"\nurls = [\"{}\"]\nuser = \"plimsoll\"\npassword_file = \"DIR/password\"",
            nodes[seed].url()
        );
        let mut agent = member(&service, names[seed], &table);
        std::fs::write(agent.directory.path().join("password"), "PASSWORD").unwrap();
        set_lease(&agent, "1s");
        agent.start_again();
        agent
    });
    for agent in &agents {
        wait_nodes(agent, &names);
    }
    assert_eq!(nodes[2].ring_field("sizes"), "500,500");
    for (agent, name) in agents.iter().zip(["envoy1/1", "envoy2/1"]) {
        let (status, answer) = exchange::ask(agent, &exchange::one(name, 1.0));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["nodes"].as_object().unwrap().len(), 2);
    }
    let before = ring(&agents[0]).unwrap();
    wait_for("the replica has the ring", || {
        nodes[3].cli(&["CLUSTER", "NODES"]);
        let offset = |node: &Redis, name: &str| {
            let told = node.cli(&["INFO", "replication"]);
            told.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let (sent, got) = (
            offset(&nodes[2], "master_repl_offset:")?,
            offset(&nodes[3], "slave_repl_offset:")?,
        );
        (sent.abs_diff(got) < 4096).then_some(())
    });
    let since = Instant::now();
    nodes[2].kill();
    assert_undisturbed(&agents[0]);
    wait_for("the replica takes over", || {
        nodes[3].cli(&["ROLE"]).starts_with("master").then_some(())
    });
    for agent in &agents {
        wait_reports(agent, 5.0);
    }
    wait_for("shares are given again", || {
        let (status, answer) = exchange::ask(&agents[0], &exchange::one("envoy1/1", 1.0));
        (status == 200 && answer["dispatchers"]["envoy1/1"]["granted"].is_object()).then_some(())
    });
    assert!(since.elapsed() > Duration::from_secs(1), "a lease");
    for agent in &agents {
        assert_eq!(ring(agent).unwrap(), before, "no key moved");
    }
    assert_eq!(nodes[3].ring_field("sizes"), "500,500");
}

#[test]
fn the_keeper_of_placement_asks_the_member_that_has_its_keys() {
    let (service, nodes) = (Service::start(), cluster());
    for (name, value) in [
        ("min-replicas-to-write", "1"),
        ("min-replicas-max-lag", "1"),
    ] {
        nodes[2].cli(&["CONFIG", "SET", name, value]);
    }
    // For `hold` with replicas.
    for node in &nodes {
        node.cli(&["ACL", "SETUSER", "plimsoll", "+config|get"]);
    }
    let table = format!(
        "mode = \"cluster\"\nurls = [\"{}\"]\nuser = \"plimsoll\"\npassword_file = \"DIR/password\"",
        nodes[0].url()
    );
    let mut agent = member(&service, "node1", &table);
    std::fs::write(agent.directory.path().join("password"), "PASSWORD").unwrap();
    let text = agent.config()
        + "[placement]\ncluster = \"c\"\nperiod = \"100ms\"\nlease = \"3s\"\nwhen_lost = \"hold\"\n";
    agent.write_config(&text);
    agent.start_again();
    wait_for("it keeps", || {
        (agent.metric("plimsoll_placement_keeper") == Some(1.0)).then_some(())
    });
    // Only there are these settings, and a replica that answers.
    let log = agent.log();
    let of_placement = |line: &str| line.contains("WARN") && line.contains("placement");
    assert!(!log.lines().any(of_placement), "{log}");
}

#[test]
fn a_server_that_is_not_a_cluster_is_reported() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let table = format!("mode = \"cluster\"\nurls = [\"{}\"]", redis.url());
    let agent = started_by(&service, "node1", &table);
    redis::wait_logged(&agent, "cluster");
    redis::wait_failure(&agent);
    assert_undisturbed(&agent);
}
