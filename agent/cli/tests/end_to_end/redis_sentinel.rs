//! Failover by real sentinels.

use crate::support::exchange;
use std::time::{Duration, Instant};

use crate::support::redis::{
    Redis, assert_undisturbed, member, mute, ring, sentinel, set_lease, started_by, wait_logged,
    wait_nodes, wait_reports,
};
use crate::support::{Service, wait_for};

#[test]
fn the_new_master_is_followed_and_no_key_moves() {
    let (service, mut master) = (
        Service::start(),
        Redis::start(&["--repl-diskless-sync-delay", "0"]),
    );
    let replica = Redis::replica_of(&master);
    let sentinel = sentinel(&master);
    // The first sentinel of the list hangs.
    let (_listener, mute) = mute();
    let table = format!(
        "mode = \"sentinel\"\nsentinel_master = \"stocks\"\nurls = [\"{mute}\", \"{}\"]\ntimeout = \"200ms\"",
        sentinel.url()
    );
    let nodes = ["node1", "node2"];
    let agents = nodes.map(|node| {
        let mut agent = member(&service, node, &table);
        set_lease(&agent, "1s");
        agent.start_again();
        agent
    });
    for agent in &agents {
        wait_nodes(agent, &nodes);
        wait_reports(agent, 2.0);
    }
    exchange::wait_granted(&agents[0]);
    let before = ring(&agents[0]).unwrap();
    wait_for("the sentinel knows the replica", || {
        let known = sentinel.cli(&["SENTINEL", "REPLICAS", "stocks"]);
        (known.contains(&replica.port.to_string()) && known.contains("\nslave\n")).then_some(())
    });
    wait_for("the replica has the ring", || {
        let held = replica.ring_field("version").parse::<u64>().ok()?;
        (before["version"] == held).then_some(())
    });

    let since = Instant::now();
    master.kill();
    assert_undisturbed(&agents[0]);
    wait_for("the replica is promoted", || {
        replica.cli(&["ROLE"]).starts_with("master").then_some(())
    });
    assert!(since.elapsed() > Duration::from_secs(1), "a lease");
    for agent in &agents {
        wait_logged(agent, "Redis: reconnected");
        wait_reports(agent, 5.0);
        assert_eq!(ring(agent).unwrap(), before, "no key moved");
    }
    exchange::wait_granted(&agents[0]);
    assert_eq!(replica.ring_field("sizes"), "500,500");

    // The old one comes back and takes itself for the master: nobody writes to it.
    master.start_again();
    for agent in &agents {
        wait_reports(agent, 5.0);
    }
    assert_eq!(master.cli(&["EXISTS", "plimsoll:{c}:nodes"]).trim(), "0");
}

#[test]
fn a_master_unknown_to_the_sentinels_is_reported() {
    let (service, master) = (Service::start(), Redis::start(&[]));
    let sentinel = sentinel(&master);
    let url = sentinel.url();
    let agent = started_by(
        &service,
        "node1",
        &format!("mode = \"sentinel\"\nurls = [\"{url}\"]"),
    );
    wait_logged(&agent, "the sentinel does not know master \"mymaster\"");
    let wrong_mode = started_by(&service, "node1", &format!("urls = [\"{url}\"]"));
    wait_logged(&wrong_mode, "is a sentinel: set redis.mode");
}
