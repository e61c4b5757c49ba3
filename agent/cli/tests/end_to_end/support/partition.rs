//! An agent with a partition on a real PostgreSQL.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::{
    Agent, Service,
    databases::PostgreSql,
    lines::{self, QUERY, problem},
    wait_for,
};

const TOKEN: &str = "0123456789abcdef";

/// An agent with the partitions p1, free and away: two times the same database, and none.
pub struct Node {
    pub server: PostgreSql,
    pub agent: Agent,
    _service: Service,
}

impl Node {
    pub fn start() -> Self {
        let (service, server) = (Service::start(), PostgreSql::start());
        server.sql(
            "CREATE TABLE items (id int PRIMARY KEY, name text, size float8); \
             INSERT INTO items SELECT i, 'item ' || i, i / 2.0 FROM generate_series(1, 5) AS i; \
             GRANT pg_read_all_data TO plimsoll; GRANT INSERT ON items TO plimsoll",
        );
        let address = server.socket().display().to_string();
        let partitions = format!(
            r#"
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
        );
        Node {
            agent: Agent::guarded(&service, TOKEN, &partitions),
            server,
            _service: service,
        }
    }

    pub fn ask(&self, question: Value) -> (u16, Vec<Value>) {
        lines::ask(self.agent.http_port, QUERY, TOKEN, &question)
    }

    pub fn query(&self, name: &str, parameters: Value) -> (u16, Vec<Value>) {
        self.ask(json!({"partition": "p1", "query": name, "parameters": parameters, "deadline_seconds": 20}))
    }

    /// A question whose answer nobody reads.
    pub fn begin(&self, name: &str, parameter: u64) -> TcpStream {
        let question = json!({"partition": "p1", "query": name, "parameters": [parameter], "deadline_seconds": 60});
        lines::begin(self.agent.http_port, QUERY, TOKEN, &question)
    }

    pub fn sql(&self, sql: &str) -> (u16, String) {
        let (status, lines) =
            self.ask(json!({"partition": "free", "sql": sql, "deadline_seconds": 20}));
        (status, problem(&lines).to_owned())
    }

    /// Number of connections with this state.
    pub fn connections(&self, state: &str) -> String {
        self.server.queries(state)
    }

    pub fn wait_idle(&self) {
        wait_for("no query in the database", || {
            (self.connections("<> 'idle'") == "0").then_some(())
        });
    }
}
