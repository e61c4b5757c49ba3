//! Partitions that another program serves by HTTP: here an agent in front of a real PostgreSQL.

use crate::support::lines;
use std::net::TcpStream;

use crate::support::databases::PostgreSql;
use crate::support::gather::Gather;
use crate::support::lines::{QUERY, SCATTER, problem};
use crate::support::{Agent, Service, leave_at_random, wait_for};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-of-both-agents";

/// Items 1, 3, … 39 are in partition p1 of `inner`, the others in p2 of `outer`, which has p1 by way of `inner`.
struct Nodes {
    server: PostgreSql,
    inner: Agent,
    outer: Agent,
    _service: Service,
}

fn database(server: &PostgreSql, part: u32) -> String {
    let address = server.socket().display().to_string();
    format!(
        r#"
[[partition]]
name = "p{part}"
address = "unix://{address}"
user = "plimsoll"
database = "d{part}"
[partition.queries]
items = "SELECT id, name FROM items WHERE id > $1 ORDER BY id"
sleep = "SELECT pg_sleep($1)::text AS slept"
nap = "SELECT pg_sleep($1 / 1000.0)::text AS slept"
many = "SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, $1) AS i"
"#
    )
}

fn start() -> Nodes {
    let (service, server) = (Service::start(), PostgreSql::start());
    server.sql("GRANT pg_read_all_data TO plimsoll");
    for part in [1, 2] {
        server.sql(&format!("CREATE DATABASE d{part}"));
        let items = format!(
            "CREATE TABLE items AS SELECT i AS id, 'item ' || i AS name FROM generate_series({part}, 40, 2) AS i"
        );
        server.sql_in(&format!("d{part}"), &items);
    }
    let inner = Agent::guarded(&service, TOKEN, &database(&server, 1));
    let port = inner.http_port;
    let fronted = format!(
        r#"
[[partition]]
name = "p1"
url = "http://127.0.0.1:{port}/v1/partition-query"
token_file = "DIR/token"
[partition.queries]
items = "items"
doze = "sleep"
nap = "nap"
many = "many"
missing = "nothing"
"#
    );
    Nodes {
        outer: Agent::guarded(&service, TOKEN, &(fronted + &database(&server, 2))),
        inner,
        server,
        _service: service,
    }
}

impl Nodes {
    fn ask(&self, question: &Value) -> (u16, Vec<Value>) {
        lines::ask(self.outer.http_port, QUERY, TOKEN, question)
    }

    fn query(&self, name: &str, parameters: Value) -> (u16, Vec<Value>) {
        self.ask(&json!({"partition": "p1", "query": name, "parameters": parameters, "deadline_seconds": 20}))
    }

    /// A question whose answer nobody reads.
    fn begin(&self, name: &str, parameter: u64) -> TcpStream {
        let question = json!({"partition": "p1", "query": name, "parameters": [parameter], "deadline_seconds": 60});
        lines::begin(self.outer.http_port, QUERY, TOKEN, &question)
    }

    fn connections(&self, state: &str) -> String {
        self.server.queries(state)
    }

    fn wait_idle(&self) {
        wait_for("no query in the database", || {
            (self.connections("<> 'idle'") == "0").then_some(())
        });
    }

    fn metric(&self, name: &str, labels: &str) -> f64 {
        let name = format!("plimsoll_partition_{name}{{partition=\"p1\"{labels}}}");
        self.outer.metric(&name).unwrap()
    }
}

#[test]
fn rows_come_by_way_of_a_service_as_of_a_database() {
    let mut nodes = start();
    let (status, lines) = nodes.query("items", json!([36]));
    assert_eq!(status, 200, "{lines:?}");
    let wanted = [
        json!({"columns": ["id", "name"]}),
        json!([37, "item 37"]),
        json!([39, "item 39"]),
        json!({"end": {"rows": 2}}),
    ];
    assert_eq!(lines, wanted);
    let limited = json!({"partition": "p1", "query": "items", "parameters": [0], "limit": 1, "deadline_seconds": 20});
    let (_, lines) = nodes.ask(&limited);
    assert_eq!(
        lines[1..],
        [json!([1, "item 1"]), json!({"end": {"rows": 1}})]
    );
    let (status, lines) = nodes.query("many", json!([3000]));
    assert_eq!((status, lines.len()), (200, 3002));
    for (name, parameters, status, said) in [
        ("items", json!(["x"]), 422, "invalid input syntax"),
        ("items", json!([]), 422, "has 1 parameters, 0 were given"),
        (
            "missing",
            json!([]),
            422,
            "HTTP service: query: the partition has none named \"nothing\"",
        ),
        ("sleep", json!([1]), 404, "it has [\"doze\""),
    ] {
        let (got, lines) = nodes.query(name, parameters);
        assert_eq!(got, status, "{name}: {lines:?}");
        assert!(problem(&lines).contains(said), "{name}: {lines:?}");
    }
    let free = json!({"partition": "p1", "sql": "SELECT 1", "deadline_seconds": 20});
    assert_eq!(nodes.ask(&free).0, 403);
    nodes.wait_idle();
    // As many as may run at once.
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(nodes.metric("logins_total", ",result=\"open\"") <= cores);
    assert_eq!(nodes.metric("rows_total", ""), 3003.0);

    // Its token is another one for a while.
    let config = nodes.outer.config();
    let other = nodes.outer.directory.path().join("other");
    std::fs::write(other, "sixteen or more characters".replace(' ', "-")).unwrap();
    let url = config.find("url =").unwrap();
    let (start, rest) = config.split_at(url);
    let changed = format!("{start}{}", rest.replacen("/token\"", "/other\"", 1));
    nodes.outer.write_config(&changed);
    assert_eq!(nodes.outer.reload(), "applied");
    let (status, lines) = nodes.query("items", json!([0]));
    assert_eq!(status, 422);
    assert!(problem(&lines).contains("needs a token"), "{lines:?}");
    nodes.outer.write_config(&config);
    assert_eq!(nodes.outer.reload(), "applied");
    assert_eq!(nodes.query("items", json!([0])).0, 200);

    nodes.inner.kill();
    let (status, lines) = nodes.query("items", json!([0]));
    assert_eq!((status, &lines[0]["error"]["state"]), (502, &json!("down")));
    nodes.inner.start_again();
    wait_for("an answer", || {
        (nodes.query("items", json!([0])).0 == 200).then_some(())
    });
}

#[test]
fn nothing_is_left_running_behind_a_service() {
    let nodes = start();
    let question =
        json!({"partition": "p1", "query": "doze", "parameters": [600], "deadline_seconds": 0.3});
    let (status, lines) = nodes.ask(&question);
    assert_eq!((status, &lines[0]["error"]["state"]), (504, &json!("late")));
    nodes.wait_idle();

    // Before the first row, and amid rows that nobody reads.
    for (name, parameter) in [("doze", 600), ("many", 100_000_000)] {
        let caller = nodes.begin(name, parameter);
        wait_for("the query runs", || {
            (nodes.connections("= 'active'") == "1").then_some(())
        });
        drop(caller);
        nodes.wait_idle();
    }
}

fn cancel_at_random(queries: u64) {
    let nodes = start();
    leave_at_random(queries, |name, parameter| nodes.begin(name, parameter));
    let running = "plimsoll_partition_queries_running{partition=\"p1\"}";
    wait_for("no query in an agent", || {
        let agents = [&nodes.inner, &nodes.outer];
        agents
            .iter()
            .all(|agent| agent.metric(running) == Some(0.0))
            .then_some(())
    });
    nodes.wait_idle();
    let ended = ["answered", "left", "late", "refused", "down"]
        .map(|state| nodes.metric("queries_total", &format!(",state=\"{state}\"")));
    println!("answered, left, late, refused, down: {ended:?}");
    assert_eq!(ended[2..], [0.0, 0.0, 0.0]);
    assert!(ended[1] > 0.0);
    assert_eq!(nodes.query("items", json!([0])).0, 200);
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

#[test]
fn queries_of_a_service_count_in_the_backlog() {
    let nodes = start();
    let config = nodes.outer.config();
    let config = config.replacen("[[partition]]", "[[partition]]\nservice = \"scatter\"", 1);
    nodes.outer.write_config(&(config + SCATTER));
    assert_eq!(nodes.outer.reload(), "applied");
    let jobs = |count: f64| {
        wait_for("the jobs", || {
            let state = nodes.outer.service("scatter");
            (state["jobs"] == json!(count) && state["backlog"] == json!(count)).then_some(())
        });
    };
    let sleeping: Vec<TcpStream> = (0..2).map(|_| nodes.begin("doze", 600)).collect();
    jobs(2.0);
    let (status, lines) = nodes.query("items", json!([0]));
    assert_eq!(status, 429);
    assert_eq!(
        problem(&lines),
        "the backlog is 2.0, the bound 2.0 cost units"
    );
    drop(sleeping);
    jobs(0.0);
    nodes.wait_idle();
    assert_eq!(nodes.query("items", json!([0])).0, 200);
    let finished = "plimsoll_finished_cost_total{service=\"scatter\"}";
    wait_for("the cost", || {
        (nodes.outer.count(finished) == 20.0).then_some(())
    });
    let queries = |state: &str| nodes.metric("queries_total", &format!(",state=\"{state}\""));
    assert_eq!(
        (queries("left"), queries("refused"), queries("answered")),
        (2.0, 1.0, 1.0)
    );
}

#[test]
fn a_gather_asks_a_database_and_a_service() {
    let mut nodes = start();
    let gather = Gather::unstarted("");
    std::fs::write(gather.path("agents-token"), TOKEN).unwrap();
    let port = nodes.outer.http_port;
    gather.configure(&format!(
        "[agents]\ntoken_file = \"DIR/agents-token\"\n[nodes]\nnode1 = \"127.0.0.1:{port}\"\n\
         [[partition]]\nname = \"p1\"\nnodes = [\"node1\"]\n[[partition]]\nname = \"p2\"\nnodes = [\"node1\"]\n"
    ));
    let mut gather = gather;
    gather.start_again();
    let mut question = json!({"query": "items", "parameters": [0], "order_by": [{"column": "id"}]});
    let (status, lines) = gather.ask(&question);
    assert_eq!(status, 200, "{lines:?}");
    let ids: Vec<_> = lines.iter().filter_map(|row| row[0].as_u64()).collect();
    assert_eq!(ids, (1..=40).collect::<Vec<u64>>());
    question["limit"] = json!(3);
    let (status, lines) = gather.ask(&question);
    assert_eq!((status, lines.len()), (200, 5));
    nodes.wait_idle();

    nodes.inner.kill();
    let (status, lines) =
        gather.ask(&json!({"query": "items", "parameters": [0], "partial": true}));
    assert_eq!((status, lines.len()), (200, 22), "{lines:?}");
    let down = &lines.last().unwrap()["end"]["partitions"][0];
    assert_eq!(down["state"], json!("down"), "{down}");
}

#[test]
fn each_mistake_names_file_line_and_key() {
    let agent = Agent::new();
    let file = agent.config_path().display().to_string();
    std::fs::write(agent.directory.path().join("short"), "short").unwrap();
    let url = "url = \"http://127.0.0.1:9/\"\n";
    let queries = "[partition.queries]\nq = \"q\"\n";
    for (keys, said) in [
        (
            queries.to_owned(),
            ":1: partition[0].address: is required, or url",
        ),
        (
            format!("address = \"127.0.0.1:9\"\n{queries}"),
            ":1: partition[0].user: is required, or url",
        ),
        (
            format!("{url}address = \"127.0.0.1:9\"\n{queries}"),
            ":4: partition[0].address: is for a database, and there is a url",
        ),
        (
            format!("{url}password_file = \"/nowhere\"\n{queries}"),
            ":4: partition[0].password_file: is for a database",
        ),
        (
            format!("url = \"ftp://127.0.0.1:9/\"\n{queries}"),
            ":3: partition[0].url: must be an address such as \"http://192.0.2.11:9464\", or with https:// (no user)",
        ),
        (
            format!("url = \"127.0.0.1:9\"\n{queries}"),
            ":3: partition[0].url: must be an address",
        ),
        (
            format!("url = \"http://127.0.0.1:9464/v1/partition-query\"\n{queries}"),
            ":3: partition[0].url: must not be this agent itself",
        ),
        (
            format!("token_file = \"/nowhere\"\n{queries}"),
            ":3: partition[0].token_file: needs url",
        ),
        (
            format!("{url}token_file = \"/nowhere\"\n{queries}"),
            ":4: partition[0].token_file: /nowhere: No such file",
        ),
        (
            format!("{url}token_file = \"DIR/short\"\n{queries}"),
            "short: must hold 16 to 4096 printable",
        ),
        (
            url.to_owned(),
            ":1: partition[0].queries: must have a query",
        ),
        (
            format!("{url}[partition.queries]\nq = \"a b\"\n"),
            ":5: partition[0].queries.q: must be 1 to 120 visible ASCII characters",
        ),
        (
            format!("{url}queries = [\"q\"]\n"),
            ":4: partition[0].queries: invalid type: sequence, expected a map",
        ),
    ] {
        let sla = "[[service]]\nname = \"s\"\nsla.delay = \"1s\"\nbound.nominal = 1\nsource.kind = \"partitions\"\n";
        agent.write_config(&format!("[[partition]]\nname = \"p\"\n{keys}{sla}"));
        let problem = agent.start_refused();
        let named = match said.starts_with(':') {
            true => format!("{file}{said}"),
            false => said.to_owned(),
        };
        assert!(problem.contains(&named), "{keys}\n{problem}");
    }
    let free = format!(
        "[http]\ntoken_file = \"DIR/token\"\n[[partition]]\nname = \"p\"\n{url}free_sql = true\n"
    );
    std::fs::write(agent.directory.path().join("token"), TOKEN).unwrap();
    agent.write_config(&free);
    let problem = agent.start_refused();
    assert!(
        problem.contains(":6: partition[0].free_sql: is for a database"),
        "{problem}"
    );
}
