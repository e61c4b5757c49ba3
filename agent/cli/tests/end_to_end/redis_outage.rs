//! Redis is slow, hangs, is full or may not be written to; the agent goes on.

use std::time::{Duration, Instant};

use crate::support::redis::{
    Redis, Tap, assert_undisturbed, failures, member, mute, reports, ring, set_lease, started,
    started_by, wait_failure, wait_logged, wait_nodes, wait_reports,
};
use crate::support::{Service, wait_for};

#[test]
fn down_at_start_and_then_up() {
    let service = Service::start();
    let mut redis = Redis::unstarted(&[]);
    let agent = started(&service, "node1", &redis);
    wait_failure(&agent);
    assert_undisturbed(&agent);
    assert_eq!(reports(&agent), 0.0);
    redis.start_again();
    wait_nodes(&agent, &["node1"]);
    wait_logged(&agent, "Redis: reconnected");
    let told = agent.log().matches("retrying").count();
    assert!(told < 4, "one trouble is one line: {}", agent.log());
}

#[test]
fn a_slow_redis_slows_nothing_else() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let tap = Tap::to(redis.port, 200);
    let redis_table = format!("urls = [\"{}\"]\ntimeout = \"1s\"", tap.url());
    let mut agent = member(&service, "node1", &redis_table);
    set_lease(&agent, "3s");
    agent.start_again();
    wait_nodes(&agent, &["node1"]);
    let since = Instant::now();
    wait_reports(&agent, 2.0);
    assert!(
        since.elapsed() > Duration::from_millis(400),
        "Redis is slow"
    );
    assert_undisturbed(&agent);
    assert_eq!(failures(&agent), 0.0, "{}", agent.log());
}

#[test]
fn a_redis_that_hangs_is_given_up_and_found_again() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = started(&service, "node1", &redis);
    wait_nodes(&agent, &["node1"]);
    redis.signal("-STOP");
    let since = Instant::now();
    wait_failure(&agent);
    assert!(
        since.elapsed() < Duration::from_secs(3),
        "500 ms and a period"
    );
    assert_undisturbed(&agent);
    redis.signal("-CONT");
    wait_reports(&agent, 2.0);
    wait_logged(&agent, "Redis: reconnected");
    // Nor does it keep the agent from ending.
    redis.signal("-STOP");
    wait_failure(&agent);
    let since = Instant::now();
    assert!(agent.stop().success());
    assert!(since.elapsed() < Duration::from_secs(5));
    redis.signal("-CONT");
}

#[test]
fn a_silence_longer_than_the_leases_moves_no_key() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let nodes = ["node1", "node2", "node3"];
    let agents = nodes.map(|node| started(&service, node, &redis));
    let before = agents.each_ref().map(|agent| {
        wait_nodes(agent, &nodes);
        ring(agent).unwrap()
    });
    redis.signal("-STOP");
    let since = Instant::now();
    agents.iter().for_each(wait_failure);
    wait_for("three leases", || {
        (since.elapsed() > Duration::from_millis(1500)).then_some(())
    });
    redis.signal("-CONT");
    for agent in &agents {
        wait_reports(agent, 5.0);
    }
    let version = redis.ring_field("version");
    assert_eq!(version, before[0]["version"].to_string());
    let after = agents.each_ref().map(|agent| ring(agent).unwrap());
    assert_eq!(after, before);
}

#[test]
fn a_full_redis_is_reported_and_recovers() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, "node1", &redis);
    wait_nodes(&agent, &["node1"]);
    redis.cli(&["SET", "filler", &"x".repeat(100_000)]);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    wait_logged(&agent, "Redis is full, see its maxmemory");
    wait_failure(&agent);
    assert_undisturbed(&agent);
    assert!(ring(&agent).is_some(), "the last ring is still served");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_reports(&agent, 2.0);
    wait_logged(&agent, "Redis: reconnected");
}

#[test]
fn a_lone_replica_is_reported_and_used_once_promoted() {
    let (service, master) = (Service::start(), Redis::start(&[]));
    let replica = Redis::replica_of(&master);
    let agent = started(&service, "node1", &replica);
    wait_logged(&agent, "is a replica, which accepts no writes");
    wait_failure(&agent);
    assert_undisturbed(&agent);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    wait_nodes(&agent, &["node1"]);
    // Demoted under its feet: the connection stays, the writes are refused.
    replica.cli(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
    wait_failure(&agent);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    wait_reports(&agent, 2.0);
}

#[test]
fn an_address_that_hangs_does_not_hide_the_next() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let (_listeners, mutes): (Vec<_>, Vec<_>) = (0..5).map(|_| mute()).unzip();
    let urls = format!(
        "urls = {:?}\ntimeout = \"100ms\"",
        [mutes, vec![redis.url()]].concat()
    );
    let agent = started_by(&service, "node1", &urls);
    wait_nodes(&agent, &["node1"]);
}
