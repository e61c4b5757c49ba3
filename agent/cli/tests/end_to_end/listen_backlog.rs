//! Requests that wait where the application does not look: in the listen backlog of a server that takes one at a
//! time.

use crate::support;
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::support::{Agent, PATIENCE, Process, free_port, wait_for};
use serde_json::Value;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Python's own server, one request at a time; work takes 20 ms, and its histogram begins when it is taken in.
const SERVER: &str = r##"
import http.server, sys, time
bounds, counts, total = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0), [0] * 7, [0.0]
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def do_GET(self):
        began, text = time.monotonic(), "done\n"
        if self.path == "/metrics":
            below, text = 0, "# TYPE work_seconds histogram\n"
            for le, count in zip((*bounds, "+Inf"), counts):
                below += count
                text += f'work_seconds_bucket{{le="{le}"}} {below}\n'
            text += f"work_seconds_sum {total[0]}\nwork_seconds_count {below}\n"
        else:
            time.sleep(float(self.path[1:]))
        body = text.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass
        if self.path != "/metrics":
            took = time.monotonic() - began
            counts[sum(took > bound for bound in bounds)] += 1
            total[0] += took
class Server(http.server.HTTPServer):
    request_queue_size = 100
    def handle_error(self, *words): pass
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"##;

struct Sync {
    port: u16,
    process: Process,
}

impl Sync {
    fn start() -> Self {
        let port = free_port();
        let mut command = Command::new("python3");
        command
            .args(["-c", SERVER, &port.to_string()])
            .stdout(Stdio::null());
        let server = Sync {
            port,
            process: Process(command.spawn().unwrap()),
        };
        wait_for("the server listens", || server.ask("0").ok());
        server
    }

    fn ask(&self, seconds: &str) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET /{seconds} HTTP/1.0\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }

    /// While `what` runs, so many clients ask again and again for 20 ms of work.
    fn under_load(&self, clients: usize, what: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        self.ask("0.02").unwrap();
                    }
                });
            }
            what();
            is_over.store(true, Ordering::Relaxed);
        });
    }

    fn agent(&self, more: &str) -> Agent {
        let agent = Agent::new();
        let port = self.port;
        agent.configure(
            "",
            &format!(
                r#"
[[service]]
name = "stocks"
[service.sla]
delay = "200ms"
[service.bound]
nominal = 64
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{port}/metrics"
histogram = "work_seconds"
timeout = "1s"
{more}"#
            ),
        );
        // The scrape waits with the others.
        agent.write_config(&agent.config().replace("\"100ms\"", "\"1s\""));
        agent
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

#[test]
fn what_waits_to_be_accepted_is_counted_and_makes_the_source_blind() {
    let server = Sync::start();
    let mut agent = server.agent("");
    agent.start_again();
    let quiet = wait_for("a quiet period", || {
        let service = agent.service("stocks");
        service["listen_backlog"].is_number().then_some(service)
    });
    assert_eq!(
        number(&quiet["listen_backlog"]),
        0.0,
        "its own scrapes do not count"
    );
    server.under_load(12, || {
        let blind = wait_for("blind", || {
            let service = agent.service("stocks");
            service["sight"]["unseen"].is_number().then_some(service)
        });
        // One of the twelve is being worked on, another on its way.
        assert!(
            (7.0..12.0).contains(&number(&blind["listen_backlog"])),
            "{blind}"
        );
        assert!((8.0..14.0).contains(&number(&blind["jobs"])), "{blind}");
        assert!(number(&blind["sight"]["ratio"]) > 2.0, "{blind}");
        assert!(number(&blind["sight"]["unseen"]) > 0.05, "{blind}");
        assert!(number(&blind["delay"]["mean"]) < 0.1, "{blind}");
        let unseen = agent.metric("plimsoll_source_unseen_seconds{service=\"stocks\"}");
        assert!(unseen.unwrap() > 0.05, "{unseen:?}");
    });
    let log = agent.log();
    assert_eq!(log.matches("the source is blind").count(), 1, "{log}");
    wait_for("the queue is over", || {
        let service = agent.service("stocks");
        (number(&service["sight"]["unseen"]) == 0.0 && service["listen_backlog"] == 0.0)
            .then_some(())
    });
}

#[test]
fn a_server_that_stands_still_is_late_and_its_queue_is_known() {
    let server = Sync::start();
    let mut agent = server.agent("");
    // Less patient than the SLA.
    let config = agent.config().replace("\"200ms\"", "\"1s\"");
    agent.write_config(&config.replace("timeout = \"1s\"", "timeout = \"500ms\""));
    agent.start_again();
    let quiet = wait_for("a quiet period", || {
        let service = agent.service("stocks");
        service["listen_backlog"].is_number().then_some(service)
    });
    let open = number(&quiet["decision"]["bound_jobs"]);
    assert!(open > 9.0, "as many wait below: {quiet}");
    server.process.signal("-STOP");
    let waiting: Vec<_> = (0..9)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap())
        .collect();
    wait_for("two scrapes in vain", || {
        let late = "plimsoll_source_failures_total{kind=\"timeout\",service=\"stocks\"}";
        (agent.count(late) >= 2.0).then_some(())
    });
    // Those of the agent wait there as well.
    let stood = wait_for("a period in which all wait", || {
        let service = agent.service("stocks");
        (service["listen_backlog"] == 9.0).then_some(service)
    });
    assert_eq!(stood["decision"]["reason"], "source_late", "{stood}");
    assert!(
        number(&stood["decision"]["bound_jobs"]) < open,
        "{open} {stood}"
    );
    server.process.signal("-CONT");
    drop(waiting);
    wait_for("it is answered again", || {
        let service = agent.service("stocks");
        (service["source_error"].is_null() && service["listen_backlog"] == 0.0).then_some(())
    });
}

#[test]
fn a_missing_listener_is_logged_once_and_the_agent_continues() {
    let server = Sync::start();
    let mut agent =
        server.agent("[service.jobs]\nkind = \"backlog\"\nunix = \"/nowhere/fpm.sock\"\n");
    agent.start_again();
    wait_for("three periods", || {
        let name = "plimsoll_source_failures_total{kind=\"jobs\",service=\"stocks\"}";
        (agent.count(name) >= 3.0).then_some(())
    });
    let service = agent.service("stocks");
    assert!(
        service["source_error"].is_null() && service["jobs"].is_null(),
        "{service}"
    );
    let log = agent.log();
    assert_eq!(
        log.matches("nobody listens on /nowhere/fpm.sock here")
            .count(),
        1,
        "{log}"
    );
}

#[test]
fn where_netlink_is_not_permitted_the_backlog_is_read_from_the_tables() {
    let server = Sync::start();
    let mut agent = server.agent("");
    let mut command = Command::new("python3");
    command.args(["-c", support::WITHOUT_NETLINK, PLIMSOLL]);
    agent.start_by(command);
    server.process.signal("-STOP");
    let _waiting = [(); 3].map(|()| TcpStream::connect(("127.0.0.1", server.port)).unwrap());
    wait_for("three wait", || {
        (agent.service("stocks")["listen_backlog"] == 3.0).then_some(())
    });
    server.process.signal("-CONT");
    let log = agent.log();
    assert_eq!(
        log.matches("cannot be counted by netlink").count(),
        1,
        "{log}"
    );
}
