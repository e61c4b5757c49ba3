//! Queries in a node's partition, on a real PostgreSQL.

use std::{net::TcpStream, process::Command};

use crate::support::lines::{SCATTER, problem};
use crate::support::partition::Node;
use crate::support::{Agent, http_post, leave_at_random, wait_for};
use serde_json::json;

#[test]
fn rows_come_as_lines_and_parameters_stay_parameters() {
    let node = Node::start();
    let rows = |name, parameters| {
        let (status, lines) = node.query(name, parameters);
        assert_eq!(status, 200, "{lines:?}");
        lines
    };
    let above = [
        json!({"columns": ["id", "name", "size"]}),
        json!([4, "item 4", 2]),
        json!([5, "item 5", 2.5]),
        json!({"end": {"rows": 2}}),
    ];
    assert_eq!(rows("above", json!([1.9])), above);
    assert_eq!(rows("above", json!(["1.9"])), above);
    let question = json!({"partition": "p1", "query": "above", "parameters": [0], "limit": 1, "deadline_seconds": 20});
    assert_eq!(
        node.ask(question).1[1..],
        [json!([1, "item 1", 0.5]), json!({"end": {"rows": 1}})]
    );
    assert_eq!(rows("named", json!(["item 3"]))[1], json!([3]));
    for text in ["' OR true --", "item 3'; DELETE FROM items; --", "$1"] {
        assert_eq!(rows("named", json!([text])).len(), 2, "{text}");
    }
    assert_eq!(rows("named", json!([null])).len(), 2);
    let odd = &rows("odd", json!([]))[1];
    assert_eq!(odd[2], json!("NaN"));
    assert_eq!(odd[4], json!({"a": 1}));
    let many = rows("many", json!([2000]));
    assert_eq!(
        (many.len(), &many[2001]),
        (2002, &json!({"end": {"rows": 2000}}))
    );
    node.wait_idle();

    // A reload that has another query.
    let config = node.agent.config().replace("above =", "over =");
    node.agent.write_config(&config);
    assert_eq!(node.agent.reload(), "applied");
    assert_eq!(node.query("over", json!([1.9])).1, above);
    assert_eq!(node.query("above", json!([1.9])).0, 404);
}

#[test]
fn what_is_wrong_is_refused_and_nothing_is_written() {
    let node = Node::start();
    for (question, status, said) in [
        (
            json!({"partition": "p2", "query": "above", "deadline_seconds": 1}),
            404,
            "none named \"p2\"",
        ),
        (
            json!({"partition": "p1", "query": "no", "deadline_seconds": 1}),
            404,
            "it has [\"above\"",
        ),
        (
            json!({"partition": "p1", "sql": "SELECT 1", "deadline_seconds": 1}),
            403,
            "by name",
        ),
        (
            json!({"partition": "p1", "deadline_seconds": 1}),
            400,
            "either",
        ),
        (
            json!({"partition": "p1", "query": "above", "deadline_seconds": 0}),
            400,
            "deadline_seconds",
        ),
        (
            json!({"partition": "p1", "query": "above", "deadline_seconds": 61}),
            400,
            "to 60",
        ),
        (
            json!({"partition": "p1", "query": "above", "limit": -1, "deadline_seconds": 1}),
            400,
            "-1",
        ),
        (
            json!({"partition": "p1", "query": "above", "rows": 1, "deadline_seconds": 1}),
            400,
            "rows",
        ),
        (
            json!({"partition": "p1", "query": "named", "parameters": vec![1; 101], "deadline_seconds": 1}),
            400,
            "maximum 100",
        ),
        (
            json!({"partition": "p1", "query": "above", "deadline_seconds": 9}),
            422,
            "has 1 parameters, 0 were given",
        ),
        (
            json!({"partition": "p1", "query": "above", "parameters": ["x"], "deadline_seconds": 9}),
            422,
            "invalid input syntax",
        ),
        (
            json!({"partition": "p1", "query": "large", "deadline_seconds": 9}),
            422,
            "row 1 has more than 1048576 bytes",
        ),
        (
            json!({"partition": "away", "sql": "SELECT 1", "deadline_seconds": 9}),
            502,
            "cannot connect",
        ),
    ] {
        let (got, lines) = node.ask(question.clone());
        assert_eq!(got, status, "{question}: {lines:?}");
        assert!(problem(&lines).contains(said), "{question}: {lines:?}");
    }
    for (sql, said) in [
        ("INSERT INTO items VALUES (6)", "0 columns"),
        ("INSERT INTO items VALUES (6) RETURNING id", "syntax error"),
        (
            "WITH new AS (INSERT INTO items VALUES (6) RETURNING id) SELECT * FROM new",
            "must be at the top level",
        ),
        ("SELECT 1; DELETE FROM items", "multiple commands"),
        (
            "SELECT 1) AS asked (c0) OFFSET 0) AS lines (line); DELETE FROM items; --",
            "syntax error",
        ),
        (
            "SELECT set_config('transaction_read_only', 'off', true)",
            "before any query",
        ),
        ("no SQL", "syntax error"),
        ("", "0 columns"),
    ] {
        let (status, problem) = node.sql(sql);
        assert_eq!(status, 422, "{sql}: {problem}");
        assert!(problem.contains(said), "{sql}: {problem}");
    }
    assert_eq!(node.server.sql("SELECT count(*) FROM items").trim(), "5");

    // Rows were under way already: the last line says that they are not all.
    let (status, lines) = node.query("fails", json!([]));
    assert_eq!(status, 200);
    assert_eq!(
        (lines.len(), problem(&lines)),
        (301, "division by zero (22012)")
    );
    node.wait_idle();

    let told = http_post(node.agent.http_port, "/v1/partition-query", "", "{}").unwrap();
    assert_eq!(told.0, 401);
    let mut refused = Agent::new();
    let config = node.agent.config().replace("token_file", "# token_file");
    refused.write_config(&config);
    assert!(
        refused
            .start_refused()
            .contains("partition[1].free_sql: needs http.token_file")
    );
    refused.kill();
}

#[test]
fn a_query_that_writes_is_refused_by_the_database() {
    let node = Node::start();
    node.server.sql(
        "CREATE SEQUENCE numbers; GRANT ALL ON SEQUENCE numbers TO plimsoll; \
         CREATE FUNCTION add_item() RETURNS int LANGUAGE sql AS 'INSERT INTO items VALUES (6) RETURNING id'; \
         CREATE FUNCTION sneak() RETURNS int LANGUAGE plpgsql AS \
         'BEGIN SET TRANSACTION READ WRITE; INSERT INTO items VALUES (7); RETURN 7; END'",
    );
    for sql in [
        "SELECT add_item()",
        "SELECT nextval('numbers')",
        "SELECT id FROM items FOR UPDATE",
    ] {
        let (status, problem) = node.sql(sql);
        assert_eq!(status, 422, "{sql}: {problem}");
        assert!(
            problem.contains("in a read-only transaction (25006)"),
            "{sql}: {problem}"
        );
    }
    let (status, problem) = node.sql("SELECT sneak()");
    assert!(
        status == 422 && problem.contains("read-write mode"),
        "{problem}"
    );
    assert_eq!(node.server.sql("SELECT count(*) FROM items").trim(), "5");
    // So is every other transaction of the session.
    let setting = "SELECT current_setting('default_transaction_read_only') AS it";
    let question = json!({"partition": "free", "sql": setting, "deadline_seconds": 20});
    assert_eq!(node.ask(question).1[1], json!(["on"]));
}

#[test]
fn a_probe_names_a_user_that_may_write() {
    let node = Node::start();
    let probe = || {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["agent", "--check-config", "--probe", "--config"])
            .arg(node.agent.config_path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let line = said.lines().find(|line| line.contains("partition p1: "));
        line.unwrap().to_owned()
    };
    let told = probe();
    assert!(
        told.starts_with("FAIL") && told.contains("plimsoll may write to 1 of its tables"),
        "{told}"
    );
    node.server.sql("REVOKE INSERT ON items FROM plimsoll");
    let told = probe();
    assert!(
        told.starts_with("ok") && told.contains("writes to no table"),
        "{told}"
    );
}

#[test]
fn nothing_is_left_running() {
    let node = Node::start();
    let running = || node.connections("= 'active'");
    let question =
        json!({"partition": "p1", "query": "sleep", "parameters": [600], "deadline_seconds": 0.3});
    let (status, lines) = node.ask(question);
    assert_eq!((status, &lines[0]["error"]["state"]), (504, &json!("late")));
    node.wait_idle();

    // Before the first row, and amid rows that nobody reads.
    for (name, parameter) in [("sleep", 600), ("many", 100_000_000)] {
        let stream = node.begin(name, parameter);
        wait_for("the query runs", || (running() == "1").then_some(()));
        drop(stream);
        node.wait_idle();
    }
    // What was called off is not used again.
    assert_eq!(node.connections("= 'idle'"), "0");
}

#[test]
fn impossible_deadlines_do_not_lower_the_bound_and_late_answers_do() {
    let node = Node::start();
    let config = node.agent.config();
    let config = config.replacen("[[partition]]", "[[partition]]\nservice = \"scatter\"", 1);
    let service = SCATTER.replace("nominal = 2\nmin = 2\nmax = 2", "nominal = 64");
    node.agent.write_config(&format!("{config}{service}"));
    assert_eq!(node.agent.reload(), "applied");
    let ask = |query: &str, parameter: u64, seconds: f64| {
        node.ask(json!({"partition": "p1", "query": query, "parameters": [parameter], "deadline_seconds": seconds})).0
    };
    let state = || node.agent.service("scatter");
    let left = || {
        node.agent
            .count("plimsoll_requests_left_total{service=\"scatter\"}")
    };
    // Enough of each for a step of the controller, over and over.
    while left() < 100.0 {
        for _ in 0..5 {
            assert_eq!(ask("above", 0, 20.0), 200);
            assert_eq!(ask("sleep", 600, 1e-6), 504);
            assert_eq!(ask("sleep", 600, 0.005), 504);
        }
        let state = state();
        assert!(
            state["decision"]["bound"].as_f64().unwrap() >= 64.0,
            "{state}"
        );
    }
    let failed = "plimsoll_requests_total{result=\"failed\",service=\"scatter\"}";
    assert_eq!(node.agent.count(failed), 0.0);
    // Answers that are not there after the SLA's second.
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(ask("sleep", 600, 1.5), 504));
        }
    });
    wait_for("the bound falls", || {
        (state()["decision"]["bound"].as_f64()? < 64.0).then_some(())
    });
}

#[test]
fn queries_count_in_a_service_and_stop_at_its_bound() {
    let node = Node::start();
    let config = node.agent.config();
    let config = config.replacen("[[partition]]", "[[partition]]\nservice = \"scatter\"", 1);
    node.agent.write_config(&format!("{config}{SCATTER}"));
    assert_eq!(node.agent.reload(), "applied");
    let jobs = |count: f64, backlog: f64| {
        wait_for("the jobs", || {
            let state = node.agent.service("scatter");
            (state["jobs"] == json!(count) && state["backlog"] == json!(backlog)).then_some(())
        });
    };
    let sleeping: Vec<TcpStream> = (0..2).map(|_| node.begin("sleep", 600)).collect();
    jobs(2.0, 2.0);
    let (status, lines) = node.query("above", json!([0]));
    assert_eq!(
        (status, &lines[0]["error"]["state"]),
        (429, &json!("refused"))
    );
    assert_eq!(
        problem(&lines),
        "the backlog is 2.0, the bound 2.0 cost units"
    );
    drop(sleeping);
    jobs(0.0, 0.0);
    // Five rows are more than the bound: alone they are let in.
    for _ in 0..2 {
        node.wait_idle();
        assert_eq!(node.query("above", json!([0])).0, 200);
    }
    let finished = "plimsoll_finished_cost_total{service=\"scatter\"}";
    wait_for("the cost", || {
        (node.agent.count(finished) == 10.0).then_some(())
    });
    let sleeping = node.begin("sleep", 600);
    jobs(1.0, 5.0);
    assert_eq!(node.query("above", json!([0])).0, 429);
    let limited = json!({"partition": "p1", "query": "above", "parameters": [0], "limit": 1, "deadline_seconds": 20});
    assert_eq!(node.ask(limited).0, 200);
    drop(sleeping);
    node.wait_idle();

    let metric = |name: &str, labels: &str| {
        let name = format!("plimsoll_partition_{name}{{partition=\"p1\"{labels}}}");
        node.agent.metric(&name).unwrap()
    };
    let queries = |state: &str| metric("queries_total", &format!(",state=\"{state}\""));
    wait_for("the queries that were left", || {
        (queries("left") == 3.0).then_some(())
    });
    assert_eq!((queries("answered"), queries("refused")), (3.0, 2.0));
    assert_eq!(metric("rows_total", ""), 11.0);
    assert!(metric("bytes_total", "") > 11.0 * 10.0);
    assert_eq!(metric("query_delay_seconds_count", ""), 3.0);
    assert_eq!(
        (metric("queries_running", ""), metric("queries_waiting", "")),
        (0.0, 0.0)
    );
    assert!(metric("logins_total", ",result=\"open\"") >= 3.0);

    for (wrong, said) in [
        (
            config.replace("\"scatter\"", "\"no\""),
            "partition[0].service: no service \"no\"",
        ),
        (
            config.replace("\"scatter\"", "\"stocks\""),
            "the source of service \"stocks\" must be \"partitions\"",
        ),
        (
            format!("{config}{SCATTER}[service.jobs]\nkind = \"sockets\"\nport = 1\n"),
            "service[1].jobs.kind: does not apply",
        ),
    ] {
        let mut refused = Agent::new();
        refused.write_config(&wrong);
        let problem = refused.start_refused();
        assert!(problem.contains(said), "{problem}");
        refused.kill();
    }
}

#[test]
fn a_caller_that_does_not_read_is_no_stall_of_the_node() {
    let node = Node::start();
    let config = node.agent.config();
    let config = config.replacen("[[partition]]", "[[partition]]\nservice = \"scatter\"", 1);
    let service = SCATTER.replace("min = 2\nmax = 2", "min = 1\nmax = 1000");
    node.agent.write_config(&(config + &service));
    assert_eq!(node.agent.reload(), "applied");
    let steps = |reason: &str| {
        let text = node.agent.get("/metrics").unwrap().1;
        let own = text.lines().filter(|line| {
            line.starts_with("plimsoll_steps_total{")
                && line.contains("service=\"scatter\"")
                && line.contains(reason)
        });
        own.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum::<f64>()
    };
    let _unread = node.begin("many", 10_000_000);
    let running = "plimsoll_partition_queries_running{partition=\"p1\"}";
    wait_for("the query runs", || {
        (node.agent.metric(running) == Some(1.0)).then_some(())
    });
    // Until the caller's buffers are full it is the database's turn again and again, which a busy machine keeps waiting.
    wait_for("no stall for longer than the SLA allows", || {
        let (before, stalled) = (steps(""), steps("stalled"));
        wait_for("steps", || (steps("") >= before + 20.0).then_some(()));
        (steps("stalled") == stalled).then_some(())
    });
    assert_eq!(node.agent.service("scatter")["jobs"], json!(0.0));
}

fn cancel_at_random(queries: u64) {
    let node = Node::start();
    leave_at_random(queries, |name, parameter| node.begin(name, parameter));
    node.wait_idle();
    assert_eq!(node.connections("<> 'idle'"), "0");
    assert_eq!(node.query("above", json!([1.9])).0, 200);
    let ended = ["answered", "left", "late", "refused", "down"].map(|state| {
        let labels = format!("{{partition=\"p1\",state=\"{state}\"}}");
        node.agent
            .count(&format!("plimsoll_partition_queries_total{labels}"))
    });
    println!("answered, left, late, refused, down: {ended:?}");
    assert_eq!(ended[2..], [0.0, 0.0, 0.0]);
    assert!(ended[1] > 0.0);
}

#[test]
fn queries_that_are_cancelled_at_random_leave_nothing() {
    cancel_at_random(100);
}

#[test]
#[ignore = "takes a while"]
fn a_thousand_queries_that_are_cancelled_at_random_leave_nothing() {
    cancel_at_random(1000);
}
