//! The host's load, from the kernel's files to what schedulers are told.

use crate::support::redis;
use crate::support::redis::Redis;
use crate::support::{Agent, Service, wait_for};

/// The load in the node's record in Redis.
fn told(redis: &Redis) -> Option<f64> {
    let record = redis.cli(&["HGET", "plimsoll:{c}:nodes", "node1"]);
    record.split_ascii_whitespace().nth(4)?.parse().ok()
}

fn with_load(agent: &Agent, before: &str, table: &str) {
    let (base, _) = before.split_once("[service.ring]").unwrap();
    let rest = &before[base.len()..];
    agent.write_config(&format!("{base}[service.load]\n{table}\n{rest}"));
}

#[test]
fn schedulers_are_told_the_hosts_load_and_the_delays_where_it_is_unknown() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = redis::member(
        &service,
        "node1",
        &format!("urls = [\"{}\"]\ntimeout = \"5s\"", redis.url()),
    );
    redis::set_lease(&agent, "2s");
    let before = agent.config();
    // What the agent itself says on the loopback is more than this.
    let network = "kind = \"network\"\ninterface = \"lo\"\nspeed = 1e3";
    with_load(&agent, &before, network);
    agent.start_again();
    let near = |value: Option<f64>, wanted: f64| {
        value
            .filter(|value| (value - wanted).abs() < 1e-6)
            .map(drop)
    };
    wait_for("the load of a full link", || near(told(&redis), 99.0));
    near(agent.metric("plimsoll_load{service=\"stocks\"}"), 99.0).unwrap();
    let network_load = || agent.metric("plimsoll_network_load{service=\"stocks\"}");
    near(network_load(), 99.0).unwrap();
    let shown = agent.service("stocks");
    near(shown["load"].as_f64(), 99.0).unwrap();
    assert!(shown["host_load"]["cpu"].is_null(), "{shown}");

    // An interface that is not there: half a second of an SLA's target of 0.9 s.
    with_load(
        &agent,
        &before,
        "kind = \"network\"\ninterface = \"none0\"\nspeed = 1e3",
    );
    assert_eq!(agent.reload(), "applied");
    wait_for("the delay's load", || {
        told(&redis).filter(|load| *load > 0.0 && *load < 1.0)
    });
    let failures = "plimsoll_source_failures_total{kind=\"load\",service=\"stocks\"}";
    wait_for("the failure to be counted", || {
        (agent.count(failures) >= 1.0 && network_load().is_none()).then_some(())
    });
    let log = agent.log();
    assert!(log.contains("no interface none0"), "{log}");

    with_load(&agent, &before, "kind = \"cpu\"");
    assert_eq!(agent.reload(), "applied");
    wait_for("the load of the CPUs", || {
        agent.metric("plimsoll_cpu_load{service=\"stocks\"}")
    });
    wait_for("it to be told", || {
        let log = agent.log();
        log.contains("the host's load is known again").then_some(())
    });
    agent.write_config(&before);
    assert_eq!(agent.reload(), "applied");
    wait_for("the delay's load again", || {
        let gone = agent
            .metric("plimsoll_cpu_load{service=\"stocks\"}")
            .is_none();
        gone.then_some(())
    });
}
