//! Acknowledged writes are visible on every ready slave, and slaves may join and leave.

use std::time::{Duration, Instant};

use crate::support::{Cluster, Node, SMALL, until};

const QUICK: [&str; 2] = ["--replication-timeout", "600ms"];

#[test]
fn an_acknowledged_write_is_read_on_every_slave() {
    let cluster = Cluster::new(&[]);
    let master = cluster.master().until_ready();
    let slaves = [
        cluster.slave("a").until_ready(),
        cluster.slave("b").until_ready(),
    ];
    master.writes_are_read_on(&slaves);
}

#[test]
fn master_continues_without_a_killed_slave_which_catches_up_later() {
    let cluster = Cluster::new(&QUICK);
    let master = cluster.master().until_ready();
    let slave = cluster.slave("a").until_ready();
    assert_eq!(master.purchase(1).status, 200);
    slave.kill();
    for _ in 0..5 {
        let start = Instant::now();
        assert_eq!(master.purchase(1).status, 200);
        assert!(start.elapsed() < Duration::from_secs(2));
    }
    until("the master has dropped the slave", || {
        master.metric("stocks_replication_slaves") == 0.0
    });
    let slave = cluster.slave("a").until_ready();
    assert_eq!(slave.cash(1), master.cash(1));
    assert_eq!(slave.metric("stocks_replication_sequence"), 6.0);
    assert_eq!(slave.metric("stocks_replication_snapshots_total"), 0.0);
}

#[test]
fn gap_longer_than_the_log_needs_a_snapshot() {
    let cluster = Cluster::new(&["--replication-log", "3"]);
    let master = cluster.master().until_ready();
    cluster.slave("a").until_ready().kill();
    for account in 0..8 {
        assert_eq!(master.purchase(account).status, 200);
    }
    let slave = cluster.slave("a").until_ready();
    assert_eq!(slave.metric("stocks_replication_snapshots_total"), 1.0);
    for account in 0..8 {
        assert_eq!(slave.cash(account), master.cash(account));
    }
    // It continues from the snapshot.
    assert_eq!(master.purchase(3).status, 200);
    assert_eq!(slave.cash(3), master.cash(3));
}

#[test]
fn stopped_slave_is_dropped_and_serves_no_stale_data() {
    let cluster = Cluster::new(&QUICK);
    let master = cluster.master().until_ready();
    let slave = cluster.slave("a").until_ready();
    slave.pause();
    let start = Instant::now();
    assert_eq!(master.purchase(2).status, 200);
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(master.metric("stocks_replication_slaves"), 0.0);
    slave.signal("-CONT");
    slave.comes_back_level_with(&master, 2);
}

#[test]
fn a_slave_is_ready_only_while_its_master_lives() {
    let cluster = Cluster::new(&QUICK);
    let slave = cluster.slave("a");
    until("the slave answers", || {
        std::net::TcpStream::connect(slave.address).is_ok()
    });
    assert_eq!(slave.get("/readyz").status, 503);
    assert_eq!(slave.get("/healthz").status, 200);
    let master = cluster.master().until_ready();
    assert_eq!(master.purchase(1).status, 200);
    let slave = slave.until_ready();
    master.kill();
    until("the slave is unready", || !slave.is_ready());
    assert_eq!(slave.get("/stock/S0001").status, 503);
    // The master's log is gone with its process; its position is not.
    let master = cluster.master().until_ready();
    let slave = slave.until_ready();
    assert_eq!(slave.cash(1), master.cash(1));
}

#[test]
fn a_slave_of_other_data_ends_with_an_error() {
    let cluster = Cluster::new(&[]);
    let _master = cluster.master().until_ready();
    let address = cluster.replication.to_string();
    let mut flags = vec!["--role", "slave", "--master", &address, "--seed", "99"];
    flags.extend(SMALL);
    assert_eq!(Node::start(&flags).ended(), Some(1));
}

#[test]
fn garbage_on_the_replication_port_is_harmless() {
    use std::io::Write;
    let cluster = Cluster::new(&QUICK);
    let master = cluster.master().until_ready();
    let slave = cluster.slave("a").until_ready();
    for garbage in [&b"hello\n"[..], b"{\"type\":\"alive\"}\n", &[0xff; 100_000]] {
        let mut stream = std::net::TcpStream::connect(cluster.replication).unwrap();
        // The master may close before all is sent.
        let _ = stream.write_all(garbage);
    }
    assert_eq!(master.purchase(1).status, 200);
    assert_eq!(slave.cash(1), master.cash(1));
}
