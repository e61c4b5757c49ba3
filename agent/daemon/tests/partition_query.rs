//! Queries in a node's partition, on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/databases.rs"]
mod databases;
#[path = "support/lines.rs"]
mod lines;
mod support;

use std::{collections::BTreeMap, net::TcpStream, time::Duration};

use databases::PostgreSql;
use lines::{QUERY, problem};
use serde_json::{Value, json};
use support::{Agent, Service, http_post, wait_for};

const TOKEN: &str = "0123456789abcdef";

struct Node {
    server: PostgreSql,
    agent: Agent,
    _service: Service,
}

fn start() -> Node {
    let (service, server) = (Service::start(), PostgreSql::start());
    server.sql(
        "CREATE TABLE items (id int PRIMARY KEY, name text, size float8); \
         INSERT INTO items SELECT i, 'item ' || i, i / 2.0 FROM generate_series(1, 5) AS i; \
         GRANT pg_read_all_data TO plimsoll; GRANT INSERT ON items TO plimsoll",
    );
    let mut agent = Agent::unstarted(&service, "");
    std::fs::write(agent.directory.path().join("token"), TOKEN).unwrap();
    let address = server.socket().display().to_string();
    let config = agent
        .config()
        .replace("[http]", "[http]\ntoken_file = \"DIR/token\"");
    agent.write_config(&format!(
        r#"{config}
[[partition]]
name = "p1"
address = "unix://{address}"
user = "plimsoll"
database = "postgres"
[partition.queries]
above = "SELECT id, name, size FROM items WHERE size > $1 ORDER BY id -- all of them"
named = "SELECT id FROM items WHERE name = $1;"
odd = '''SELECT NULL, true, 'NaN'::float8, 12345678901234567890::numeric, E'{{"a":\n1}}'::json'''
many = "SELECT generate_series(1, $1) AS i, repeat('x', 1000)"
fails = "SELECT 1 / (i - 300), repeat('x', 1000) FROM generate_series(1, 1000) AS i"
large = "SELECT repeat('x', 1048576)"
sleep = "SELECT pg_sleep($1)"
nap = "SELECT pg_sleep($1 / 1000.0)"
backend = "SELECT pg_backend_pid(), (SELECT count(*) FROM pg_prepared_statements)"
locks = "SELECT pg_advisory_lock(1)::text"
all = "SELECT * FROM items ORDER BY 1"
[[partition]]
name = "free"
address = "unix://{address}"
user = "plimsoll"
database = "postgres"
free_sql = true
[[partition]]
name = "away"
address = "unix://{address}.away"
user = "plimsoll"
database = "postgres"
free_sql = true
"#
    ));
    agent.start_again();
    Node {
        server,
        agent,
        _service: service,
    }
}

impl Node {
    fn ask(&self, question: Value) -> (u16, Vec<Value>) {
        lines::ask(self.agent.http_port, QUERY, TOKEN, &question)
    }

    fn query(&self, name: &str, parameters: Value) -> (u16, Vec<Value>) {
        self.ask(json!({"partition": "p1", "query": name, "parameters": parameters, "deadline_seconds": 20}))
    }

    /// A question whose answer nobody reads.
    fn begin(&self, name: &str, parameter: u64) -> TcpStream {
        let question = json!({"partition": "p1", "query": name, "parameters": [parameter], "deadline_seconds": 60});
        lines::begin(self.agent.http_port, QUERY, TOKEN, &question)
    }

    fn sql(&self, sql: &str) -> (u16, String) {
        let (status, lines) =
            self.ask(json!({"partition": "free", "sql": sql, "deadline_seconds": 20}));
        (status, problem(&lines).to_owned())
    }

    /// Of those whose state is such.
    fn connections(&self, state: &str) -> String {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plimsoll-partition' AND state {state}"
        );
        self.server.sql(&sql).trim().to_owned()
    }

    fn wait_idle(&self) {
        wait_for("no query in the database", || {
            (self.connections("<> 'idle'") == "0").then_some(())
        });
    }
}

#[test]
fn rows_come_as_lines_and_parameters_stay_parameters() {
    let node = start();
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
    let node = start();
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
            "at most 100",
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
fn nothing_is_left_running() {
    let node = start();
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
fn connections_and_statements_are_kept() {
    let mut node = start();
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
fn queries_count_in_a_service_and_stop_at_its_bound() {
    let node = start();
    let config = node.agent.config();
    let config = config.replacen("[[partition]]", "[[partition]]\nservice = \"scatter\"", 1);
    let service = r#"
[[service]]
name = "scatter"
[service.sla]
delay = "1s"
[service.bound]
nominal = 2
min = 2
max = 2
[service.source]
kind = "partitions"
"#;
    node.agent.write_config(&format!("{config}{service}"));
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
            "partition[0].service: there is no service \"no\"",
        ),
        (
            config.replace("\"scatter\"", "\"stocks\""),
            "the source of service \"stocks\" must be \"partitions\"",
        ),
        (
            format!("{config}{service}[service.jobs]\nkind = \"sockets\"\nport = 1\n"),
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

/// Queries of up to 30 ms whose callers leave within 200 ms, four at a time.
fn cancel_at_random(queries: u64) {
    let node = start();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plimsoll-partition' AND state <> 'idle'";
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let node = &node;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(caller);
                for _ in 0..queries / 4 {
                    let (name, parameter) = match random.bool() {
                        true => ("nap", random.u64(0..30)),
                        false => ("many", random.u64(1..20_000)),
                    };
                    let stream = node.begin(name, parameter);
                    std::thread::sleep(Duration::from_millis(random.u64(0..200)));
                    drop(stream);
                }
            });
        }
    });
    node.wait_idle();
    assert_eq!(node.server.sql(running).trim(), "0");
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
