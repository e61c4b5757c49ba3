//! Ordered gathers from nodes with fewer cores than queries, on real agents with a real PostgreSQL. Each partition is
//! larger than all buffers on its way.

use crate::support::lines;
use std::{
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use crate::support::databases::PostgreSql;
use crate::support::gather::{Gather, drain};
use crate::support::lines::QUERY;
use crate::support::{Agent, Service, http_post, wait_for};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-agents";
/// Number of rows in each partition, of 4 kB each.
const ROWS: u64 = 5000;

/// One database under many partition names, with agents that have one core each.
struct Nodes {
    agents: Vec<Agent>,
    _server: PostgreSql,
    _service: Service,
}

impl Nodes {
    /// Partitions by node.
    fn start(nodes: &[&[&str]]) -> Self {
        let mut nodes = Nodes::unstarted(nodes);
        nodes.agents.iter_mut().for_each(Agent::start_again);
        nodes
    }

    fn unstarted(nodes: &[&[&str]]) -> Self {
        let (service, server) = (Service::start(), PostgreSql::start());
        let address = server.socket().display().to_string();
        let agents = nodes.iter().map(|partitions| {
            let tables = partitions.iter().map(|name| {
                format!(
                    "[[partition]]\nname = \"{name}\"\naddress = \"unix://{address}\"\nuser = \"plimsoll\"\n\
                     database = \"postgres\"\n[partition.queries]\n\
                     large = \"SELECT i, repeat('x', 4000) FROM generate_series(1, $1) AS i\"\n"
                )
            });
            let tables: String = tables.collect();
            let mut agent = Agent::unstarted_guarded(&service, TOKEN, &tables);
            agent.has_one_core = true;
            agent
        });
        Nodes {
            agents: agents.collect(),
            _server: server,
            _service: service,
        }
    }

    /// Adds a partition that another agent has as well.
    fn add(&self, node: usize, partition: &str, port: u16) {
        let agent = &self.agents[node];
        agent.write_config(&format!(
            "{}[[partition]]\nname = \"{partition}\"\ntoken_file = \"DIR/token\"\n\
             url = \"http://127.0.0.1:{port}{QUERY}\"\n[partition.queries]\nlarge = \"large\"\n",
            agent.config()
        ));
    }

    fn begin(&self, node: usize, partition: &str) -> TcpStream {
        let question = json!({"partition": partition, "query": "large", "parameters": [1], "deadline_seconds": 10});
        lines::begin(self.port(node), QUERY, TOKEN, &question)
    }

    fn port(&self, node: usize) -> u16 {
        self.agents[node].http_port
    }

    fn wait_running(&self, node: usize, partition: &str) {
        let running = format!("plimsoll_partition_queries_running{{partition=\"{partition}\"}}");
        wait_for("the query runs", || {
            (self.agents[node].metric(&running) == Some(1.0)).then_some(())
        });
    }
}

/// Partitions, each with the port of who is asked for it.
fn gather_from(partitions: &[(&str, u16)]) -> Gather {
    let mut tables = String::from("[agents]\ntoken_file = \"DIR/agents-token\"\n[nodes]\n");
    for (name, port) in partitions {
        tables += &format!("of-{name} = \"127.0.0.1:{port}\"\n");
    }
    for (name, _) in partitions {
        tables += &format!("[[partition]]\nname = \"{name}\"\nnodes = [\"of-{name}\"]\n");
    }
    let mut gather = Gather::unstarted(&tables);
    std::fs::write(gather.path("agents-token"), TOKEN).unwrap();
    gather.start_again();
    gather
}

fn ordered(gather: &Gather, partitions: &[&str]) -> TcpStream {
    let order = json!([{"column": "i"}]);
    gather.begin(
        &json!({"query": "large", "parameters": [ROWS], "order_by": order,
        "partitions": partitions, "deadline_seconds": 60}),
    )
}

#[track_caller]
fn assert_whole(mut stream: TcpStream, partitions: u64) {
    let mut end = Vec::new();
    drain(&mut stream, |part| {
        end.extend_from_slice(part);
        end.drain(..end.len().saturating_sub(3000));
    });
    let text = String::from_utf8_lossy(&end);
    let mut lines = text.lines().rev();
    let last = lines.find(|line| line.starts_with('{')).unwrap_or_default();
    let last: Value = serde_json::from_str(last).unwrap_or_default();
    assert_eq!(last["end"]["complete"], json!(true), "{last}");
    assert_eq!(last["end"]["rows"], json!(partitions * ROWS));
}

/// Passes connections on to a port once it is opened.
struct Gate {
    port: u16,
    opens: mpsc::Sender<()>,
}

impl Gate {
    fn closed(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (opens, opened) = mpsc::channel();
        thread::spawn(move || {
            if opened.recv().is_err() {
                return;
            }
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Gate { port, opens }
    }

    fn open(&self) {
        self.opens.send(()).unwrap();
    }
}

#[test]
fn an_ordered_gather_of_more_partitions_than_cores_does_not_wait_for_itself() {
    let names = ["p1", "p2", "p3"];
    let nodes = Nodes::start(&[&names]);
    let gather = gather_from(&names.map(|name| (name, nodes.port(0))));
    assert_whole(ordered(&gather, &names), 3);
}

#[test]
fn two_ordered_gathers_do_not_wait_for_each_others_cores() {
    let nodes = Nodes::start(&[&["a1", "a2"], &["b1", "b2"]]);
    let [late_a, late_b] = [0, 1].map(|node| Gate::closed(nodes.port(node)));
    let gather = gather_from(&[
        ("a1", nodes.port(0)),
        ("b1", late_b.port),
        ("a2", late_a.port),
        ("b2", nodes.port(1)),
    ]);
    // Each has one node's core before it asks for the other's.
    let first = ordered(&gather, &["a1", "b1"]);
    nodes.wait_running(0, "a1");
    let second = ordered(&gather, &["a2", "b2"]);
    nodes.wait_running(1, "b2");
    late_a.open();
    late_b.open();
    let first = thread::spawn(move || assert_whole(first, 2));
    assert_whole(second, 2);
    first.join().unwrap();
}

#[test]
fn agents_that_ask_each_other_do_not_wait_for_each_others_cores() {
    let mut nodes = Nodes::unstarted(&[&["a"], &["b"]]);
    let [late_a, late_b] = [0, 1].map(|node| Gate::closed(nodes.port(node)));
    nodes.add(0, "b", late_b.port);
    nodes.add(1, "a", late_a.port);
    // Nobody has it.
    nodes.add(0, "none", nodes.port(1));
    nodes.add(1, "none", nodes.port(0));
    nodes.agents.iter_mut().for_each(Agent::start_again);
    let asked = [(0, "b"), (1, "a")].map(|(node, partition)| {
        let stream = nodes.begin(node, partition);
        nodes.wait_running(node, partition);
        stream
    });
    late_a.open();
    late_b.open();
    let text = |mut stream: TcpStream| {
        let mut text = String::new();
        drain(&mut stream, |part| text += &String::from_utf8_lossy(part));
        text
    };
    for answer in asked.map(text) {
        assert!(answer.contains("{\"end\":{\"rows\":1}}"), "{answer}");
    }
    let head = format!("authorization: Bearer {TOKEN}\r\nplimsoll-hops: -1\r\n");
    let (status, said) = http_post(nodes.port(0), QUERY, &head, "{}").unwrap();
    assert_eq!(status, 400);
    assert!(
        said.contains("plimsoll-hops: must be a number, is \\\"-1\\\""),
        "{said}"
    );
    let none = text(nodes.begin(0, "none"));
    assert!(
        none.contains(" 422 ") && none.contains("through 4 agents"),
        "{none}"
    );
}
