//! Queries to all partitions, on real agents with real PostgreSQL databases.

use crate::support::gather;
use std::time::{Duration, Instant};

use crate::support::cluster::Cluster;
use crate::support::gather::drain;
use crate::support::lines::problem;
use crate::support::{http_get, http_post, wait_for};
use serde_json::{Value, json};

/// A field of each partition in the last line.
fn each<'a>(lines: &'a [Value], field: &str) -> Vec<&'a Value> {
    let last = lines.last().unwrap();
    let told = last.get("end").or(last.get("error")).unwrap();
    let partitions = told["partitions"].as_array().unwrap();
    partitions.iter().map(|it| &it[field]).collect()
}

#[test]
fn rows_are_merged_concatenated_and_reduced() {
    let cluster = Cluster::start();
    let order = json!([{"column": "size", "descending": true}, {"column": "name"}]);
    let question = json!({"query": "items", "parameters": [1.0], "order_by": order});
    let lines = cluster.whole(question.clone());
    assert_eq!(lines[0], json!({"columns": ["id", "name", "size"]}));
    let mut wanted: Vec<(i64, String)> = (9..=40).map(|i| (i, format!("item {i}"))).collect();
    wanted.sort_by(|(a, one), (b, other)| (b / 3).cmp(&(a / 3)).then_with(|| one.cmp(other)));
    let ids = |lines: &[Value]| -> Vec<i64> {
        let rows = lines.iter().filter_map(|row| row[0].as_i64());
        rows.collect()
    };
    let wanted: Vec<i64> = wanted.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids(&lines), wanted);
    let end = &lines.last().unwrap()["end"];
    assert_eq!((&end["rows"], &end["complete"]), (&json!(32), &json!(true)));
    assert_eq!(each(&lines, "name"), ["p1", "p2", "p3", "p4"]);
    assert_eq!(each(&lines, "state"), ["answered"; 4]);
    assert_eq!(each(&lines, "rows"), [8; 4]);
    assert_eq!(each(&lines, "node")[1..], ["node1", "node2", "node2"]);
    assert!(
        each(&lines, "delay_seconds")
            .iter()
            .all(|it| it.as_f64() > Some(0.0))
    );

    let mut limited = question.clone();
    limited["limit"] = json!(5);
    let lines = cluster.whole(limited);
    assert_eq!(ids(&lines), wanted[..5]);
    assert_eq!(lines.last().unwrap()["end"]["complete"], json!(true));

    let mut ids_of_some =
        ids(&cluster
            .whole(json!({"query": "items", "parameters": [-1], "partitions": ["p4", "p2"]})));
    ids_of_some.sort_unstable();
    assert_eq!(ids_of_some, (1..=20).map(|i| 2 * i).collect::<Vec<i64>>());

    let reduce = json!([{"function": "count"}, {"function": "sum", "column": "id"},
        {"function": "min", "column": "name"}, {"function": "max", "column": "size"}]);
    let lines = cluster.whole(json!({"query": "items", "parameters": [-1], "reduce": reduce}));
    assert_eq!(
        lines[..2],
        [
            json!({"columns": ["count", "sum(id)", "min(name)", "max(size)"]}),
            json!([40, 820, "item 1", 6.5])
        ]
    );

    // As one object.
    let head = format!(
        "authorization: Bearer {}\r\naccept: application/json\r\n",
        gather::TOKEN
    );
    let ask = |question: &Value| {
        let told = http_post(
            cluster.gather.port,
            "/v1/gather",
            &head,
            &question.to_string(),
        );
        let (status, body) = told.unwrap();
        // Without the sizes of chunks.
        let own = |line: &&str| line.starts_with(['{', '[', ']', ',']);
        let body: String = body.lines().filter(own).collect();
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (status, object) = ask(&question);
    assert_eq!((status, &object["columns"][2]), (200, &json!("size")));
    assert_eq!(ids(object["rows"].as_array().unwrap()), wanted);
    assert_eq!(object["end"]["rows"], json!(32));
    let (_, object) = ask(&json!({"query": "items", "parameters": [1000]}));
    assert_eq!(
        (&object["rows"], &object["end"]["complete"]),
        (&json!([]), &json!(true))
    );
    let (_, object) = ask(&json!({"query": "fails"}));
    assert_eq!(object["error"]["state"], json!("refused"));
    cluster.wait_idle();
    assert!(
        cluster
            .gather
            .metric("plimsoll_gathers_total{outcome=\"whole\"}")
            >= 5.0
    );
    assert_eq!(cluster.gather.metric("plimsoll_gather_running"), 0.0);
}

#[test]
fn what_is_wrong_is_refused_with_a_reason() {
    let cluster = Cluster::start();
    for (question, status, said) in [
        (json!({"query": "no"}), 422, "it has [\"fails\""),
        (json!({}), 400, "either"),
        (json!({"sql": "SELECT 1"}), 403, "by name only"),
        (json!({"query": "one", "rows": 1}), 400, "rows"),
        (json!({"query": "one", "limit": 0}), 400, "limit"),
        (
            json!({"query": "one", "deadline_seconds": 0}),
            400,
            "above 0",
        ),
        (
            json!({"query": "one", "deadline_seconds": 61}),
            400,
            "to 60",
        ),
        (json!({"query": "one", "partitions": ["p9"]}), 400, "\"p9\""),
        (
            json!({"query": "one", "partitions": []}),
            400,
            "at least one",
        ),
        (
            json!({"query": "one", "parameters": vec![1; 101]}),
            400,
            "maximum 100",
        ),
        (
            json!({"query": "one", "order_by": [{"column": "two"}]}),
            422,
            "no column \"two\"",
        ),
        (
            json!({"query": "one", "order_by": [{"column": "one"}], "reduce": [{"function": "count"}]}),
            400,
            "order_by",
        ),
        (
            json!({"query": "one", "reduce": [{"function": "mean", "column": "one"}]}),
            400,
            "reduce[0].function",
        ),
        (
            json!({"query": "one", "reduce": [{"function": "sum"}]}),
            400,
            "sum needs a column",
        ),
        (
            json!({"query": "one", "reduce": [{"function": "count"}], "limit": 1}),
            400,
            "no limit",
        ),
        (
            json!({"query": "items", "parameters": ["x"]}),
            422,
            "invalid input syntax",
        ),
        (
            json!({"query": "items", "parameters": [0], "reduce": [{"function": "sum", "column": "name"}]}),
            422,
            "has no sum",
        ),
        (
            json!({"query": "jumbled", "order_by": [{"column": "id"}]}),
            422,
            "not in order",
        ),
        (
            json!({"query": "mixed", "order_by": [{"column": "v"}]}),
            422,
            "column \"v\" has a",
        ),
    ] {
        let (got, lines) = cluster.gather.ask(&question);
        assert_eq!(got, status, "{question}: {lines:?}");
        assert!(problem(&lines).contains(said), "{question}: {lines:?}");
        assert_eq!(lines[0]["error"]["state"], json!("refused"));
    }
    let told = http_post(cluster.gather.port, "/v1/gather", "", "{}").unwrap();
    assert_eq!(told.0, 401);
    cluster.wait_idle();
}

#[test]
fn all_or_nothing_and_some() {
    let mut cluster = Cluster::start();
    // Late.
    let mut question = json!({"query": "own", "parameters": ["d3"], "deadline_seconds": 2});
    let (status, lines) = cluster.gather.ask(&question);
    assert_eq!((status, problem(&lines)), (504, "partition \"p3\" is late"));
    question["partial"] = json!(true);
    let lines = cluster.whole(question);
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[4]["end"]["complete"], json!(false));
    assert_eq!(
        each(&lines, "state"),
        ["answered", "answered", "late", "answered"]
    );
    cluster.wait_idle();

    // Broken off amid its rows: the last line tells.
    let lines = cluster.whole(json!({"query": "fails"}));
    assert_eq!(
        problem(&lines),
        "partition \"p4\" is refused: node node2: division by zero (22012)"
    );
    let lines = cluster.whole(json!({"query": "fails", "partial": true}));
    assert_eq!(
        each(&lines, "state"),
        ["answered", "answered", "answered", "refused"],
        "{:?}",
        lines.last()
    );
    assert_eq!(each(&lines, "rows"), [5000, 5000, 5000, 999]);
    assert_eq!(lines.len(), 2 + 15_999);
    cluster.wait_idle();

    // Without a node, the other one answers for the partition that it has, too.
    cluster.agents[0].kill();
    let one = json!({"query": "one", "partitions": ["p1", "p3"]});
    for _ in 0..4 {
        assert_eq!(
            each(&cluster.whole(one.clone()), "node"),
            ["node2", "node2"]
        );
    }
    let (status, lines) = cluster.gather.ask(&json!({"query": "one"}));
    assert_eq!(status, 502, "{lines:?}");
    assert!(
        problem(&lines).contains("partition \"p2\" is down: node node1: "),
        "{lines:?}"
    );
    let lines = cluster.whole(json!({"query": "one", "partial": true}));
    assert_eq!(
        each(&lines, "state"),
        ["answered", "down", "answered", "answered"]
    );
    let reduce = json!([{"function": "sum", "column": "one"}]);
    let lines = cluster.whole(json!({"query": "one", "partial": true, "reduce": reduce}));
    assert_eq!(lines[1], json!([3]));
    cluster.agents[0].start_again();
    let lines = cluster.whole(json!({"query": "one"}));
    assert_eq!(each(&lines, "state"), ["answered"; 4]);

    // Too many at once.
    cluster.gather.configure(&cluster.tables("at_once = 1"));
    cluster.gather.process.as_ref().unwrap().signal("-HUP");
    let reloads = "plimsoll_config_reloads_total{result=\"applied\"}";
    wait_for("the reload", || {
        (cluster.gather.metric(reloads) == 1.0).then_some(())
    });
    let held = cluster
        .gather
        .begin(&json!({"query": "sleep", "parameters": [600]}));
    wait_for("a query runs", || (cluster.running() > 0).then_some(()));
    let (status, lines) = cluster.gather.ask(&json!({"query": "one"}));
    assert_eq!(
        (status, problem(&lines)),
        (429, "1 gathers are under way, which is the most")
    );
    drop(held);
    cluster.wait_idle();
}

#[test]
fn memory_stays_small_whatever_the_size() {
    let cluster = Cluster::start();
    let question = json!({"query": "many", "parameters": [30_000], "order_by": [{"column": "i"}], "deadline_seconds": 60});
    let mut stream = cluster.gather.begin(&question);
    let mut end = Vec::new();
    let bytes = drain(&mut stream, |part| {
        end.extend_from_slice(part);
        end.drain(..end.len().saturating_sub(2000));
    });
    let end = String::from_utf8_lossy(&end);
    assert!(end.contains("{\"end\":{\"complete\":true"), "{end}");
    assert!(bytes > 120_000_000, "{bytes}");
    let most = cluster.gather.process.as_ref().unwrap().resident();
    assert!(most < 64 << 20, "{most} bytes");
}

#[test]
fn a_stop_lets_what_is_under_way_end() {
    let mut cluster = Cluster::start();
    let mut stream = cluster
        .gather
        .begin(&json!({"query": "sleep", "parameters": [0.5]}));
    wait_for("the query runs", || (cluster.running() > 0).then_some(()));
    assert!(cluster.gather.stop().success());
    let mut text = String::new();
    drain(&mut stream, |part| {
        text.push_str(&String::from_utf8_lossy(part))
    });
    assert!(text.contains("\"complete\":true"), "{text}");

    // Not for ever.
    cluster
        .gather
        .configure(&cluster.tables("shutdown_grace = \"200ms\""));
    cluster.gather.start_again();
    let _stream = cluster
        .gather
        .begin(&json!({"query": "sleep", "parameters": [600]}));
    wait_for("the query runs", || (cluster.running() > 0).then_some(()));
    let begun = Instant::now();
    assert!(cluster.gather.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(5));
    cluster.wait_idle();
    assert!(http_get(cluster.gather.port, "/healthz").is_none());
}
