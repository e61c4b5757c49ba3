//! `plimsoll gather` over two agents, whose partitions are real PostgreSQL databases.

use serde_json::Value;

use super::{Agent, Service, databases::PostgreSql, gather::Gather, wait_for};

const AGENTS_TOKEN: &str = "a-token-for-agents";
const QUERIES: &str = r#"
items = 'SELECT id, name, size FROM items WHERE size > $1 ORDER BY size DESC, name COLLATE "C"'
jumbled = "SELECT id, name, size FROM items ORDER BY id % 3"
one = "SELECT 1 AS one"
sleep = "SELECT pg_sleep($1)::text AS slept"
own = "SELECT pg_sleep(CASE current_database() WHEN $1 THEN 600 ELSE 0 END)::text AS slept"
many = "SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, $1) AS i"
fails = "SELECT CASE current_database() WHEN 'd4' THEN 1 / (1000 - i) ELSE i END AS i, repeat('x', 1000) FROM generate_series(1, 5000) AS i"
mixed = "SELECT CASE current_database() WHEN 'd4' THEN '\"a\"'::json ELSE '1'::json END AS v"
"#;
/// Partitions of each agent.
const PARTITIONS: [&[u32]; 2] = [&[1, 2], &[1, 3, 4]];

/// Partitions p1 to p4 in databases d1 to d4 of one server: p1 and p2 at one node, p1, p3 and p4 at another.
pub struct Cluster {
    pub gather: Gather,
    pub server: PostgreSql,
    pub agents: Vec<Agent>,
    _service: Service,
}

impl Cluster {
    pub fn start() -> Self {
        let (service, server) = (Service::start(), PostgreSql::start());
        server.sql("GRANT pg_read_all_data TO plimsoll");
        for part in 1..=4 {
            server.sql(&format!("CREATE DATABASE d{part}"));
            server.sql_in(
                &format!("d{part}"),
                &format!(
                    "CREATE TABLE items AS SELECT i AS id, 'item ' || i AS name, (i / 3)::float8 / 2 AS size \
                     FROM generate_series({part}, 40, 4) AS i"
                ),
            );
        }
        let agents = PARTITIONS.map(|parts| agent(&service, &server, parts));
        let gather = Gather::unstarted("");
        std::fs::write(gather.path("agents-token"), AGENTS_TOKEN).unwrap();
        let mut cluster = Cluster {
            gather,
            server,
            agents: agents.into(),
            _service: service,
        };
        cluster.gather.configure(&cluster.tables(""));
        cluster.gather.start_again();
        cluster
    }

    /// The gather's configuration; `more` goes into `[gather]`.
    pub fn tables(&self, more: &str) -> String {
        let [one, two] = [0, 1].map(|at: usize| self.agents[at].http_port);
        format!(
            r#"
[gather]
{more}
[agents]
token_file = "DIR/agents-token"
[nodes]
node1 = "127.0.0.1:{one}"
node2 = "localhost:{two}"
[[partition]]
name = "p1"
nodes = ["node1", "node2"]
[[partition]]
name = "p2"
nodes = ["node1"]
[[partition]]
name = "p3"
nodes = ["node2"]
[[partition]]
name = "p4"
nodes = ["node2"]
"#
        )
    }

    pub fn whole(&self, question: Value) -> Vec<Value> {
        let (status, lines) = self.gather.ask(&question);
        assert_eq!(status, 200, "{question}: {lines:?}");
        lines
    }

    pub fn wait_idle(&self) {
        wait_for("no query in the databases", || {
            (self.queries("<> 'idle'") == 0).then_some(())
        });
    }

    pub fn running(&self) -> usize {
        self.queries("= 'active'")
    }

    /// Number of connections with this state, over all databases.
    fn queries(&self, state: &str) -> usize {
        let count = self.server.sql(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'plimsoll-partition%' AND state {state}"
        ));
        count.trim().parse().unwrap()
    }

    /// Sum of a metric over the agents and partitions; `labels` follow the partition's.
    pub fn of_agents(&self, name: &str, labels: &str) -> f64 {
        let nodes = self.agents.iter().zip(PARTITIONS);
        let each = nodes.flat_map(|(agent, parts)| {
            let named =
                |part| format!("plimsoll_partition_{name}{{partition=\"p{part}\"{labels}}}");
            parts
                .iter()
                .map(move |part| agent.metric(&named(part)).unwrap())
        });
        each.sum()
    }
}

fn agent(service: &Service, server: &PostgreSql, parts: &[u32]) -> Agent {
    let mut partitions = String::new();
    let address = server.socket().display().to_string();
    for part in parts {
        partitions.push_str(&format!(
            "[[partition]]\nname = \"p{part}\"\naddress = \"unix://{address}\"\nuser = \"plimsoll\"\n\
             database = \"d{part}\"\nfree_sql = true\n[partition.queries]{QUERIES}"
        ));
    }
    Agent::guarded(service, AGENTS_TOKEN, &partitions)
}
