//! The service on PostgreSQL: responses, reads on standbys, and databases that become unavailable and return.

use crate::support;
use crate::support::postgres::{Databases, Server};
use crate::support::{Node, SMALL, until};

/// Quotes stand still, so that answers can be compared; and no time is spent on computed service.
const STILL: [&str; 8] = [
    "--price-update-min",
    "1h",
    "--price-update-max",
    "2h",
    "--process-latency",
    "1us",
    "--read-latency",
    "0us",
];
const MOVING: [&str; 4] = ["--price-update-min", "50ms", "--price-update-max", "100ms"];
const QUICK: [&str; 2] = ["--replication-timeout", "1500ms"];

#[test]
fn one_database() {
    let mut databases = Databases::new();
    answers_as_on_sqlite_of_the_same_seed(&databases);
    invalid_configurations_are_named(&databases);
    killed_database_is_reported_and_waited_for(&mut databases);
    a_node_waits_for_its_database(&mut databases);
}

#[test]
fn a_primary_and_its_standbys() {
    let databases = Databases::new();
    let master = databases
        .primary
        .node("master", "master", &[&QUICK[..], &MOVING].concat())
        .until_ready();
    let mut standbys = [databases.standby("a"), databases.standby("b")];
    let slaves = [
        standbys[0].node("a", "slave", &QUICK),
        standbys[1].node("b", "slave", &QUICK),
    ]
    .map(Node::until_ready);
    an_acknowledged_write_is_read_on_every_standby(&master, &slaves);
    quotes_move_on_every_standby(&slaves);
    commits_go_on_without_a_dead_standby_which_catches_up_later(&master, &mut standbys[0], &slaves);
    a_stopped_standby_answers_nothing_old(&master, &standbys[1], &slaves);
}

fn answers_as_on_sqlite_of_the_same_seed(databases: &Databases) {
    let sqlite = Node::start(&[&SMALL[..], &STILL].concat()).until_ready();
    let postgres = databases
        .primary
        .node("node1", "master", &STILL)
        .until_ready();
    let order = |symbol: &str, shares: u32| {
        format!(r#"{{"account":4,"symbol":"{symbol}","shares":{shares}}}"#)
    };
    for path in ["/purchase", "/sale", "/purchase?items=90"] {
        for (symbol, shares) in [("S0002", 3), ("S0299", 7), ("S0002", 1_000_000)] {
            let (ours, theirs) = (
                postgres.post(path, &order(symbol, shares)),
                sqlite.post(path, &order(symbol, shares)),
            );
            assert_eq!(ours.body, theirs.body, "{path} {symbol} {shares}");
            assert_eq!((ours.status, ours.items), (theirs.status, theirs.items));
        }
    }
    // The second time from the cache.
    for path in [
        "/stock/S0007?items=150",
        "/stock/S0299?items=1",
        "/portfolio/4",
        "/portfolio/49?items=1000",
        "/stock/S0007?items=150",
        "/portfolio/4",
        "/portfolio/50",
        "/stock/NOPE",
    ] {
        let (ours, theirs) = (postgres.get(path), sqlite.get(path));
        assert_eq!(ours.body, theirs.body, "{path}");
        assert_eq!((ours.status, ours.items), (theirs.status, theirs.items));
    }
    for series in ["stocks_cache_hits_total", "stocks_replication_sequence"] {
        assert_eq!(postgres.metric(series), sqlite.metric(series), "{series}");
    }
}

fn an_acknowledged_write_is_read_on_every_standby(master: &Node, slaves: &[Node; 2]) {
    until("commits wait for both", || {
        master.metric("stocks_replication_slaves") == 2.0
    });
    master.writes_are_read_on(slaves);
    assert_eq!(slaves[0].purchase(7).status, 405);
}

fn quotes_move_on_every_standby(slaves: &[Node; 2]) {
    for slave in slaves {
        let updates = || {
            let answer = slave.get("/stock/S0001?items=2");
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.body["rows"][1]["updates"].as_i64().unwrap()
        };
        let before = updates();
        until("the quote has moved, also in the cache", || {
            updates() > before
        });
    }
}

fn commits_go_on_without_a_dead_standby_which_catches_up_later(
    master: &Node,
    dying: &mut Server,
    [slave, other]: &[Node; 2],
) {
    dying.kill();
    for account in 0..5 {
        let answer = master.purchase(account);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(other.cash(account), master.cash(account));
    }
    assert_eq!(slave.get("/readyz").status, 503);
    assert_eq!(slave.get("/portfolio/1").status, 503);
    assert_eq!(master.metric("stocks_replication_slaves"), 1.0);
    assert_eq!(
        master.metric("stocks_replication_slaves_dropped_total"),
        1.0
    );
    dying.start();
    until("the slave is back", || slave.is_ready());
    for account in 0..5 {
        assert_eq!(slave.cash(account), master.cash(account));
    }
    let sequence = "stocks_replication_sequence";
    assert_eq!(slave.metric(sequence), master.metric(sequence));
}

fn a_stopped_standby_answers_nothing_old(
    master: &Node,
    stopped: &Server,
    [other, slave]: &[Node; 2],
) {
    stopped.pause();
    let answer = master.purchase(2);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!slave.is_ready());
    assert_eq!(other.cash(2), master.cash(2));
    stopped.go_on();
    slave.comes_back_level_with(master, 2);
}

fn killed_database_is_reported_and_waited_for(databases: &mut Databases) {
    let node = databases
        .primary
        .node("master", "master", &STILL)
        .until_ready();
    assert_eq!(node.purchase(1).status, 200);
    let cash = node.cash(1);
    databases.primary.kill();
    let answer = node.get("/stock/S0001");
    assert_eq!(answer.status, 503);
    assert!(
        answer.body["error"].as_str().unwrap().contains("database"),
        "{}",
        answer.body
    );
    until("the node is unready", || !node.is_ready());
    assert_eq!(node.get("/healthz").status, 200);
    assert_eq!(node.purchase(1).status, 503);
    databases.primary.start();
    let node = node.until_ready();
    // Every worker's connection ended; none fails a request for it.
    for _ in 0..20 {
        assert_eq!(node.get("/portfolio/1").status, 200);
    }
    assert_eq!(node.cash(1), cash);
    assert_eq!(node.purchase(1).status, 200);
}

fn a_node_waits_for_its_database(databases: &mut Databases) {
    databases.primary.kill();
    let node = databases.primary.node("master", "master", &[]);
    until("the node answers", || {
        std::net::TcpStream::connect(node.address).is_ok()
    });
    assert_eq!(node.get("/readyz").status, 503);
    let mut leaving = databases.primary.node("other", "master", &[]);
    until("the other node answers", || {
        std::net::TcpStream::connect(leaving.address).is_ok()
    });
    leaving.signal("-TERM");
    assert_eq!(leaving.ended(), Some(0));
    databases.primary.start();
    node.until_ready();
}

fn invalid_configurations_are_named(databases: &Databases) {
    let connection = databases.primary.connection();
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("password").display().to_string();
    let on = ["--database", connection.as_str()];
    for (flags, named) in [
        (vec!["--database", "host=/tmp nonsense=1"], "--database"),
        ([&on[..], &["--symbols", "7"]].concat(), "other dimensions"),
        (
            [&on[..], &["--statement-timeout", "1ms"]].concat(),
            "--statement-timeout",
        ),
        (
            [&on[..], &["--database-password-file", &absent]].concat(),
            absent.as_str(),
        ),
        (
            vec!["--database-password-file", &absent],
            "--database <CONNECTION>",
        ),
    ] {
        support::ends_naming(&[&["--listen", "127.0.0.1:0"], &flags[..]].concat(), named);
    }
}
