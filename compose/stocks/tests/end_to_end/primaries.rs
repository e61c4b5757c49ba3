//! Slaves that take transactions: one order of them everywhere, none lost, none made twice, and
//! no object set written at two nodes at once without being noticed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Cluster, Node, Stop, until};
use rusqlite::Connection;
use serde_json::{Value, json};

const QUICK: [&str; 2] = ["--replication-timeout", "600ms"];

/// The orders of a node that has ended: account and change of shares by id.
fn orders(cluster: &Cluster, name: &str) -> BTreeMap<u64, (u32, i64)> {
    let db = Connection::open(cluster.directory(name).join("stocks.db")).unwrap();
    let query = "SELECT id, account_id, iif(side = 'sale', -shares, shares) FROM orders";
    let mut select = db.prepare(query).unwrap();
    let rows = select.query_map([], |row| {
        Ok((row.get::<_, i64>(0)? as u64, (row.get(1)?, row.get(2)?)))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Shares of S0001 that an account holds at a node that has ended.
fn held(cluster: &Cluster, name: &str, account: u32) -> i64 {
    let db = Connection::open(cluster.directory(name).join("stocks.db")).unwrap();
    let query =
        "SELECT coalesce(sum(shares), 0) FROM holdings WHERE account_id = ?1 AND stock_id = 1";
    db.query_row(query, [account], |row| row.get(0)).unwrap()
}

#[test]
fn a_write_at_any_primary_is_read_on_every_node() {
    let cluster = Cluster::new(&[]);
    let master = cluster.master().until_ready();
    let nodes = [
        cluster.primary("a").until_ready(),
        cluster.primary("b").until_ready(),
    ];
    for (round, at) in [0, 1, 1, 0, 1, 0].into_iter().enumerate() {
        let answer = nodes[at].purchase(7);
        assert_eq!(
            (answer.status, answer.items),
            (200, Some(6)),
            "{}",
            answer.body
        );
        let after = answer.body["cash_after"].as_i64().unwrap();
        for node in nodes.iter().chain([&master]) {
            assert_eq!(node.cash(7), after, "round {round}");
        }
        assert_eq!(answer.body["sequence"], round as u64 + 1);
    }
    // Refusals come from the master too, and change nothing.
    let order = r#"{"account":7,"symbol":"S0001","shares":1000000}"#;
    for path in ["/purchase", "/sale"] {
        let answer = nodes[0].post(path, order);
        assert_eq!(answer.status, 409, "{}", answer.body);
        assert!(answer.body["error"].is_string());
    }
    assert_eq!(nodes[0].purchase(50).status, 404);
    assert_eq!(
        nodes[0]
            .post("/purchase", &order.replace("1000000", "0"))
            .status,
        400
    );
    assert_eq!(master.metric("stocks_replication_sequence"), 6.0);
    // The work was theirs.
    let answered = r#"stocks_request_duration_seconds_count{class="transaction"}"#;
    assert_eq!(master.metric(answered), 0.0);
    assert_eq!(nodes[0].metric(answered) + nodes[1].metric(answered), 9.0);
}

#[test]
fn the_work_of_writes_is_shared_by_the_primaries() {
    let slow = ["--workers", "1", "--process-latency", "20ms"];
    let cluster = Cluster::new(&slow);
    let _master = cluster.master().until_ready();
    let nodes = [
        cluster.primary("a").until_ready(),
        cluster.primary("b").until_ready(),
    ];
    // A worker's time at the primary, not the master's, is what a write costs.
    let taken =
        |node: &Node| node.metric(r#"stocks_request_duration_seconds_sum{class="transaction"}"#);
    for node in &nodes {
        assert_eq!(node.purchase(1).status, 200);
        assert!(taken(node) >= 0.12, "{}", taken(node));
    }
}

const ACCOUNTS: u32 = 6;

/// Clients write at both primaries while the master is killed and started again, twice.
#[test]
fn acknowledged_writes_are_made_once_even_if_the_master_dies() {
    let cluster = Cluster::new(&QUICK);
    let mut master = cluster.master().until_ready();
    let nodes = [
        cluster.primary("a").until_ready(),
        cluster.primary("b").until_ready(),
    ];
    let acknowledged = Mutex::new(BTreeMap::new());
    let count = || acknowledged.lock().unwrap().len();
    let (in_doubt, stop) = (AtomicU64::new(0), Stop::default());
    let mut master = std::thread::scope(|scope| {
        for account in 0..ACCOUNTS {
            let node = &nodes[account as usize % 2];
            let (acknowledged, in_doubt, stop) = (&acknowledged, &in_doubt, &stop);
            scope.spawn(move || {
                for side in ["purchase", "sale"].iter().cycle() {
                    if stop.is_set() {
                        return;
                    }
                    let answer = node.try_order(side, account).unwrap();
                    match answer.status {
                        200 => {
                            let sequence = answer.body["sequence"].as_u64().unwrap();
                            let other = acknowledged.lock().unwrap().insert(sequence, account);
                            assert_eq!(other, None, "{sequence} was acknowledged twice");
                        }
                        500 => {
                            let text = answer.body["error"].as_str().unwrap();
                            assert!(text.contains("is not known"), "{text}");
                            in_doubt.fetch_add(1, Ordering::Relaxed);
                        }
                        // No cash left is an answer; without the master nothing is changed.
                        status => assert!([409, 503].contains(&status), "{status}"),
                    }
                }
            });
        }
        let _stop = stop.at_end();
        for _ in 0..2 {
            let so_far = count();
            until("writes are acknowledged", || count() > so_far + 20);
            master.kill();
            master = cluster.master().until_ready();
        }
        let so_far = count();
        until("writes are acknowledged again", || count() > so_far + 20);
        master
    });
    for node in &nodes {
        node.comes_back_level_with(&master, 1);
    }
    master.signal("-TERM");
    assert_eq!(master.ended(), Some(0));
    drop((master, nodes));
    let made = orders(&cluster, "master");
    let acknowledged = acknowledged.into_inner().unwrap();
    for (sequence, account) in &acknowledged {
        let order = made.get(sequence).map(|(of, _)| of);
        assert_eq!(order, Some(account), "{sequence} is lost");
    }
    let unknown = made.len() - acknowledged.len();
    assert!(
        unknown as u64 <= in_doubt.load(Ordering::Relaxed),
        "{unknown}"
    );
    // An account's state follows from the committed orders, each once.
    let before = Cluster::new(&[]);
    drop(before.master().until_ready());
    for account in 0..ACCOUNTS {
        let changes = made.values().filter(|(of, _)| *of == account);
        let change: i64 = changes.map(|(_, change)| change).sum();
        let expected = held(&before, "master", account) + change;
        assert_eq!(held(&cluster, "master", account), expected, "{account}");
    }
    for name in ["a", "b"] {
        assert_eq!(orders(&cluster, name), made, "{name}");
    }
}

#[test]
fn garbage_orders_are_harmless() {
    use std::io::Write;
    let cluster = Cluster::new(&QUICK);
    let master = cluster.master().until_ready();
    let node = cluster.primary("a").until_ready();
    let order =
        r#"{"type":"order","id":1,"order":{"side":"sale","account":1,"stock":1,"shares":-5}}"#;
    // Before any hello; the real ones go on.
    let mut stream = std::net::TcpStream::connect(cluster.replication).unwrap();
    writeln!(stream, "{order}").unwrap();
    assert_eq!(node.purchase(1).status, 200);
    assert_eq!(node.cash(1), master.cash(1));
    assert_eq!(master.metric("stocks_replication_sequence"), 1.0);
}

#[test]
fn two_primaries_of_a_set_are_detected() {
    let directory = tempfile::tempdir().unwrap();
    let claims = directory.path().join("claims").display().to_string();
    let slow = ["--workers", "1", "--process-latency", "50ms"];
    let witness = ["--witness-directory", &claims];
    let cluster = Cluster::new(&[&slow[..], &witness[..]].concat());
    let _master = cluster.master().until_ready();
    let nodes = [
        cluster.primary("a").until_ready(),
        cluster.primary("b").until_ready(),
    ];
    std::thread::scope(|scope| {
        let first = scope.spawn(|| nodes[0].purchase_of("G01", 1));
        until("the first is at its primary", || {
            nodes[0].metric("stocks_jobs") == 1.0
        });
        let second = nodes[1].purchase_of("G01", 1);
        assert_eq!(second.status, 500);
        let text = second.body["error"].as_str().unwrap();
        assert!(text.contains("G01") && text.contains("b and a"), "{text}");
        // Another set, and another write of the same set at the same node.
        assert_eq!(nodes[1].purchase_of("G/02", 2).status, 200);
        assert_eq!(nodes[0].purchase_of("G01", 3).status, 200);
        assert_eq!(first.join().unwrap().status, 200);
    });
    // Claims of answered requests have ended.
    assert_eq!(nodes[1].purchase_of("G01", 1).status, 200);
    assert_eq!(std::fs::read_dir(&claims).unwrap().count(), 0);
    for (node, checked, violations) in [(&nodes[0], 2.0, 0.0), (&nodes[1], 2.0, 1.0)] {
        assert_eq!(node.metric("stocks_primary_claims_total"), checked);
        assert_eq!(node.metric("stocks_primary_violations_total"), violations);
    }
    let unnamed = nodes[0].purchase(1);
    assert_eq!(unnamed.status, 400);
    assert!(
        unnamed.body["error"]
            .as_str()
            .unwrap()
            .contains("x-object-set")
    );
    assert_eq!(nodes[0].purchase_of(&"x".repeat(129), 1).status, 400);
}

#[test]
fn write_at_a_former_primary_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let claims = directory.path().display().to_string();
    let cluster = Cluster::new(&["--witness-directory", &claims]);
    let master = cluster.master().until_ready();
    let nodes = [
        cluster.primary("a").until_ready(),
        cluster.primary("b").until_ready(),
    ];
    let by = |version: u64| format!("0190-ab {version:016}");
    // Dispatchers know of more and of less, and the set is where it was.
    for version in [3, 9, 5] {
        assert_eq!(nodes[0].purchase_by("G01", &by(version)).status, 200);
    }
    assert_eq!(nodes[1].purchase_by("G01", &by(12)).status, 200);
    let late = nodes[0].purchase_by("G01", &by(9));
    assert_eq!((late.status, late.reason.as_deref()), (409, Some("fenced")));
    let text = late.body["error"].as_str().unwrap();
    for word in ["G01", "at b", &by(12), &by(9), "nothing was changed"] {
        assert!(text.contains(word), "{text}");
    }
    // A write without a token, a write to another set, and one at the new primary.
    assert_eq!(nodes[0].purchase_of("G01", 1).status, 409);
    assert_eq!(nodes[0].purchase_by("G02", &by(9)).status, 200);
    assert_eq!(nodes[1].purchase_by("G01", &by(11)).status, 200);
    assert_eq!(nodes[0].purchase_by("G01", "9").status, 400);
    assert_eq!(master.metric("stocks_replication_sequence"), 6.0);
    assert_eq!(nodes[0].metric("stocks_primary_late_total"), 2.0);
    assert_eq!(nodes[0].metric("stocks_primary_violations_total"), 0.0);
}

#[test]
fn the_journal_tells_what_begins_ends_and_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let claims = directory.path().join("claims").display().to_string();
    let journal = directory.path().join("journal");
    let written = ["--journal", journal.to_str().unwrap()];
    let cluster = Cluster::new(&[&["--witness-directory", &claims][..], &written].concat());
    let _master = cluster.master().until_ready();
    let node = cluster.primary("a").until_ready();
    let other = cluster.primary("b").until_ready();
    let by = |version: u64| format!("0190-ab {version:016}");
    assert_eq!(node.purchase_by("G01", &by(3)).status, 200);
    assert_eq!(other.purchase_by("G01", &by(5)).status, 200);
    assert_eq!(node.purchase_by("G01", &by(4)).status, 409);
    assert_eq!(node.get("/stock/S0001?items=20").status, 200);
    let text = std::fs::read_to_string(&journal).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["node"] == "a")
        .collect();
    let told = |key: &str| -> Vec<&Value> { lines.iter().map(|line| &line[key]).collect() };
    let none = Value::Null;
    assert_eq!(
        told("event"),
        ["start", "begin", "end", "refused", "begin", "end"]
    );
    assert_eq!(
        told("number"),
        [&none, &json!(0), &json!(0), &none, &json!(1), &json!(1)]
    );
    assert_eq!(lines[1]["class"], "transaction");
    assert_eq!(
        (&lines[1]["set"], &lines[1]["items"]),
        (&json!("G01"), &json!(6))
    );
    assert_eq!(
        (&lines[1]["fence"], &lines[3]["fence"]),
        (&json!(by(3)), &json!(by(4)))
    );
    assert_eq!(
        (&lines[3]["why"], &lines[4]["class"]),
        (&json!("late"), &json!("query"))
    );
    let times: Vec<f64> = told("at").iter().map(|at| at.as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn claims_of_a_killed_primary_end() {
    let directory = tempfile::tempdir().unwrap();
    let claims = directory.path().display().to_string();
    let cluster = Cluster::new(&[&QUICK[..], &["--witness-directory", &claims]].concat());
    let other = cluster.master().until_ready();
    let slow = Cluster::new(&["--process-latency", "10s", "--witness-directory", &claims]);
    let node = slow.master().until_ready();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The claim ends with the node.
            let body = r#"{"account":1,"symbol":"S0001","shares":1}"#;
            let config = ureq::Agent::config_builder().build();
            let request = ureq::Agent::from(config).post(node.url("/purchase"));
            assert!(request.header("x-object-set", "G01").send(body).is_err());
        });
        until("it has the claim", || node.metric("stocks_jobs") == 1.0);
        assert_eq!(other.purchase_of("G01", 1).status, 500);
        node.signal("-KILL");
    });
    until("the claim is free", || {
        other.purchase_of("G01", 1).status == 200
    });
}
