//! Connections to a node's partition, and statements there, that are kept from query to query.

use std::collections::BTreeMap;

use crate::support::partition::Node;
use crate::support::wait_for;
use serde_json::{Value, json};

#[test]
fn connections_and_statements_are_kept() {
    let mut node = Node::start();
    // The process that answers, and how many statements are prepared there.
    let backend = |node: &Node| {
        let (status, lines) = node.query("backend", json!([]));
        assert_eq!(status, 200, "{lines:?}");
        let number = |at: usize| lines[1][at].as_u64().unwrap();
        (number(0), number(1))
    };
    let backends = |node: &Node| -> BTreeMap<u64, u64> { (0..20).map(|_| backend(node)).collect() };
    let before = backends(&node);
    // As many as may run at once: the next query does not wait for the last one's rollback.
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(before.len() <= cores, "{before:?}");
    assert_eq!(node.query("fails", json!([])).0, 200);
    assert_eq!(node.query("above", json!(["x"])).0, 422);
    assert_eq!(node.query("locks", json!([])).0, 200);
    node.wait_idle();
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(node.server.sql(locks).trim(), "0");
    let after = backends(&node);
    assert!(after.keys().all(|pid| before.contains_key(pid)) || before.len() < cores);
    assert!(
        after.values().all(|statements| *statements <= 4),
        "{after:?}"
    );
    assert!(node.connections("= 'idle'").parse::<usize>().unwrap() <= cores);

    // A statement that was prepared for another schema is prepared again.
    let all = |node: &Node| node.query("all", json!([])).1;
    assert_eq!(all(&node)[0], json!({"columns": ["id", "name", "size"]}));
    node.wait_idle();
    node.server.sql("ALTER TABLE items DROP COLUMN size");
    assert_eq!(
        all(&node)[..2],
        [json!({"columns": ["id", "name"]}), json!([1, "item 1"])]
    );

    // The server ends it, and then itself.
    node.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plimsoll-partition'");
    assert!(!after.contains_key(&backend(&node).0));
    node.server.kill();
    assert_eq!(node.query("backend", json!([])).0, 502);
    node.server.start_again();
    wait_for("an answer", || {
        (node.query("backend", json!([])).0 == 200).then_some(())
    });

    // Other words to log in with, and no such partition any more.
    let config = node.agent.config();
    node.agent
        .write_config(&config.replace("name = \"p1\"", "name = \"p2\""));
    assert_eq!(node.agent.reload(), "applied");
    assert_eq!(node.query("backend", json!([])).0, 404);
}

#[test]
fn a_connection_keeps_64_statements() {
    let node = Node::start();
    let config = node.agent.config();
    let queries: String = (0..70)
        .map(|n| format!("n{n} = \"SELECT 1000 + {n}\"\n"))
        .collect();
    let statements = "SELECT statement FROM pg_prepared_statements";
    let queries = format!("[partition.queries]\nstatements = \"{statements}\"\n{queries}");
    node.agent
        .write_config(&config.replacen("[partition.queries]\n", &queries, 1));
    assert_eq!(node.agent.reload(), "applied");
    let ask = |name: &str| -> Vec<Value> {
        let (status, lines) = node.query(name, json!([]));
        assert_eq!(status, 200, "{lines:?}");
        // Then it is kept for the next one.
        let running = "plimsoll_partition_queries_running{partition=\"p1\"}";
        wait_for("the connection is free", || {
            (node.agent.metric(running) == Some(0.0)).then_some(())
        });
        lines
    };
    for n in 0..70 {
        assert_eq!(ask(&format!("n{n}"))[1], json!([1000 + n]));
    }
    let opened = "plimsoll_partition_logins_total{partition=\"p1\",result=\"open\"}";
    assert_eq!(node.agent.metric(opened), Some(1.0));
    let lines = ask("statements");
    let has = |text: &str| {
        let mut rows = lines.iter().filter_map(|line| line[0].as_str());
        rows.any(|row| row.contains(text))
    };
    assert_eq!(lines.len(), 66, "{lines:?}");
    assert!(has(statements));
    for n in 0..70 {
        assert_eq!(has(&format!("1000 + {n}\n")), n > 6, "{n}: {lines:?}");
    }
    // What was dropped is prepared again.
    assert_eq!(ask("n0")[1], json!([1000]));
}
