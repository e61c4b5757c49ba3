//! Log lines of a real HAProxy, and of whoever else finds the port.

mod hostile;

use std::{
    io::Write,
    net::{TcpStream, UdpSocket},
    os::unix::net::UnixDatagram,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use crate::support::{
    self, Agent, Haproxy, free_port, http_get, mode,
    peer::{Peer, Script, answer},
    wait_for,
};

const GOOD: &str =
    "<134>Nov 21 06:14:09 haproxy[7]: plimsoll queries/node1 0 1 29 0 0/30 200 -- -\n";

/// An agent that listens for node1's lines; `DIR` is its directory.
fn listening(listen: &str) -> Agent {
    Agent::with(&service(listen))
}

fn service(listen: &str) -> String {
    format!(
        r#"
[[service]]
name = "stocks"
[service.sla]
delay = "1s"
[service.bound]
nominal = 64
[service.controller]
kind = "pi"
[service.source]
kind = "haproxy-log"
listen = "{listen}"
node = "queries/node1"
"#
    )
}

fn lines(agent: &Agent, result: &str) -> f64 {
    agent.count(&format!(
        "plimsoll_source_lines_total{{result=\"{result}\",service=\"stocks\"}}"
    ))
}

fn wait_lines(agent: &Agent, wanted: &[(&str, f64)]) {
    let mut seen = Vec::new();
    for _ in 0..1000 {
        seen = wanted.iter().map(|(r, _)| (*r, lines(agent, r))).collect();
        if seen == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{wanted:?} but {seen:?}");
}

/// The `log-format` line of the documentation.
fn documented_format() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/agent-config.md")).unwrap();
    let line = text.lines().find(|line| line.starts_with("log-format "));
    line.unwrap().to_owned()
}

/// Two servers behind HAProxy take turns; `target` is the agent's listener as HAProxy names it.
fn assert_hears_its_own_node(agent: &Agent, target: &str, ring: &str) {
    let work = answer(200, "x-items: 80\r\n", "done");
    let backend = Peer::start(Script::Raw(Duration::from_millis(30), work));
    let (front, back) = (free_port(), backend.port);
    let format = documented_format();
    let _proxy = Haproxy::with(&format!(
        "{ring}\
         frontend in\n  bind 127.0.0.1:{front}\n  log {target} local0 info\n  {format}\n  \
         http-response set-var(txn.plimsoll_items) res.hdr(x-items)\n  default_backend queries\n\
         backend queries\n  balance roundrobin\n  \
         server node1 127.0.0.1:{back}\n  server node2 127.0.0.1:{back}\n"
    ));
    for _ in 0..10 {
        assert_eq!(http_get(front, "/").unwrap(), (200, "done".into()));
    }
    wait_lines(agent, &[("finished", 5.0), ("other_node", 5.0)]);
    wait_for("a period with a finished request", || {
        http_get(front, "/")?;
        (agent.service("stocks")["finished"].as_u64()? > 0).then_some(())
    });
    let node = agent.service("stocks");
    let mean = node["delay"]["mean"].as_f64().unwrap();
    assert!((0.025..0.5).contains(&mean), "{node}");
    assert_eq!(node["decision"]["mean_cost"], 80.0, "{node}");
    assert_eq!(lines(agent, "malformed"), 0.0);
}

#[test]
fn haproxy_by_udp() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    assert_hears_its_own_node(&agent, &format!("127.0.0.1:{port}"), "");
}

#[test]
fn haproxy_by_tcp() {
    let port = free_port();
    let agent = listening(&format!("tcp://127.0.0.1:{port}"));
    let ring = format!(
        "ring agent\n  format rfc3164\n  maxlen 1200\n  size 65536\n  timeout connect 1s\n  timeout server 5s\n  \
         server agent 127.0.0.1:{port}\n"
    );
    assert_hears_its_own_node(&agent, "ring@agent", &ring);
}

#[test]
fn haproxy_by_unix_socket() {
    let agent = listening("unix://DIR/log.sock");
    let socket = agent.directory.path().join("log.sock");
    assert_hears_its_own_node(&agent, &socket.display().to_string(), "");
}

#[test]
fn the_unix_socket_is_writable_like_dev_log_and_goes_with_its_agent() {
    let mut agent = listening("unix://DIR/log.sock");
    let socket = agent.directory.path().join("log.sock");
    wait_for("the socket", || socket.exists().then_some(()));
    assert_eq!(mode(&socket), 0o666);

    // A killed agent leaves it behind; the next one takes its place.
    agent.kill();
    assert!(socket.exists());
    agent.start_again();
    let client = UnixDatagram::unbound().unwrap();
    wait_for("it listens", || {
        client.send_to(GOOD.as_bytes(), &socket).ok()
    });
    wait_lines(&agent, &[("finished", 1.0)]);

    // A live one's is not taken away.
    let other = Agent::new();
    other.configure("", &service(&format!("unix://{}", socket.display())));
    let said = other.start_refused();
    assert!(
        said.contains("service[0].source.listen") && said.contains("log.sock"),
        "{said}"
    );
    client.send_to(GOOD.as_bytes(), &socket).unwrap();
    wait_lines(&agent, &[("finished", 2.0)]);

    assert!(agent.stop().success());
    assert!(!socket.exists());
}

fn bound(agent: &Agent) -> f64 {
    let bound = &agent.service("stocks")["decision"]["bound"];
    bound.as_f64().unwrap()
}

#[test]
fn clients_that_leave_early_do_not_lower_the_bound_and_those_that_leave_late_do() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |line: &str| {
        client
            .send_to(line.as_bytes(), ("127.0.0.1", port))
            .unwrap()
    };
    // 20 that leave early beside 10 that are answered, many times a period.
    wait_for("2,000 that left", || {
        for number in 0..30 {
            send(match number % 3 {
                0 => GOOD,
                1 => "plimsoll queries/node1 0 0 -1 -1 0/10 400 CH -",
                _ => "plimsoll queries/node1 0 0 9 2000 0/2009 200 CD -",
            });
        }
        assert!(bound(&agent) >= 64.0, "{}", agent.service("stocks"));
        (lines(&agent, "left") >= 2000.0).then_some(())
    });
    let left = agent.count("plimsoll_requests_left_total{service=\"stocks\"}");
    assert!(left > 1000.0, "{left}");
    // The node hangs, and clients wait for 5 s.
    wait_for("the bound falls", || {
        for _ in 0..10 {
            send("plimsoll queries/node1 0 0 -1 -1 0/5010 400 CH -");
        }
        (bound(&agent) < 8.0).then_some(())
    });
}

#[test]
fn haproxy_tells_how_old_a_request_was_whose_client_left() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let (front, backend) = (free_port(), Peer::start(Script::Hang));
    let format = documented_format();
    let proxy = Haproxy::with(&format!(
        // Of `defaults`: in the backend alone it does nothing.
        "  option abortonclose\n\
         frontend in\n  bind 127.0.0.1:{front}\n  log 127.0.0.1:{port} local0 info\n  {format}\n  \
         default_backend queries\n\
         backend queries\n  server node1 127.0.0.1:{}\n",
        backend.port
    ));
    let ask = || {
        let mut client = TcpStream::connect(("127.0.0.1", front)).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        client
    };
    let at_the_node = || {
        let asked: Vec<TcpStream> = (0..50).map(|_| ask()).collect();
        wait_for("all at the node", || {
            (proxy.server()["scur"] == "50").then_some(())
        });
        asked
    };
    drop(at_the_node());
    wait_lines(&agent, &[("left", 50.0), ("malformed", 0.0)]);
    assert_eq!(bound(&agent), 64.0);
    let waiting = at_the_node();
    // Over the SLA's second.
    std::thread::sleep(Duration::from_millis(1200));
    drop(waiting);
    wait_for("the bound falls", || (bound(&agent) < 64.0).then_some(()));
    // It may fall by the first of them.
    wait_lines(&agent, &[("left", 100.0)]);
}

/// node1's jobs on average and when a request ended, and the backend's refusals.
fn figures(agent: &Agent) -> Option<(f64, f64, f64)> {
    let figure =
        |name: &str| agent.metric(&format!("plimsoll_source_{name}{{service=\"stocks\"}}"));
    let left = agent.service("stocks")["jobs"].as_f64()?;
    Some((figure("mean_jobs")?, left, figure("refused_share")?))
}

#[test]
fn haproxy_tells_jobs_without_its_queue_and_the_share_it_refused_at_any_node() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let nap = Script::Raw(Duration::from_millis(100), answer(200, "", "done"));
    let backend = Peer::start(nap);
    let (front, back) = (free_port(), backend.port);
    let format = documented_format();
    let _proxy = Haproxy::with(&format!(
        "frontend in\n  bind 127.0.0.1:{front}\n  log 127.0.0.1:{port} local0 info\n  {format}\n  \
         http-request deny if {{ path /denied }}\n  use_backend full if {{ path /full }}\n  default_backend queries\n\
         backend queries\n  timeout queue 50ms\n  http-request return status 503 if {{ path /own }}\n  \
         server node1 127.0.0.1:{back} maxconn 2\n\
         backend full\n  timeout queue 1ms\n  server node1 127.0.0.1:{back} maxconn 1\n"
    ));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Twice what two places carry in 100 ms each, of which HAProxy's queue keeps half for 50 ms.
        for path in ["/", "/", "/", "/", "/denied", "/own", "/full", "/full"] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let _ = http_get(front, path);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let mut seen = Vec::new();
        let mut is_right = || {
            seen.push(figures(&agent)?);
            let (jobs, left, share) = *seen.last()?;
            let is_right = (1.2..2.4).contains(&jobs) && (0.2..0.9).contains(&share);
            // One of two has just ended.
            (is_right && (0.0..=2.0).contains(&left)).then_some(())
        };
        let until = std::time::Instant::now() + support::PATIENCE;
        while is_right().is_none() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let right = is_right();
        done.store(true, Ordering::Relaxed);
        assert!(right.is_some(), "{seen:?}");
    });
    assert_eq!(lines(&agent, "malformed"), 0.0);
}

/// Four clients, whose requests take 100 ms, at a node that HAProxy talks to as `bind` and `server` say.
fn assert_kept_connections_are_no_jobs(protocol: &str) {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let nap = Script::Raw(Duration::from_millis(100), answer(200, "", "done"));
    let application = Peer::start(nap);
    let (front, node, back) = (free_port(), free_port(), application.port);
    let format = documented_format();
    let proxy = Haproxy::with(&format!(
        "frontend in\n  bind 127.0.0.1:{front}\n  log 127.0.0.1:{port} local0 info\n  {format}\n  \
         default_backend queries\n\
         backend queries\n  http-reuse always\n  server node1 127.0.0.1:{node} {protocol}\n\
         frontend node\n  bind 127.0.0.1:{node} {protocol}\n  default_backend application\n\
         backend application\n  server application 127.0.0.1:{back}\n"
    ));
    let (done, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let right = std::thread::scope(|scope| {
        for client in 0..4 {
            let (done, answered) = (&done, &answered);
            scope.spawn(move || {
                // One after another, as the others go on.
                std::thread::sleep(Duration::from_millis(25) * client);
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(http_get(front, "/").unwrap().0, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = std::time::Instant::now() + support::PATIENCE;
        let mut is_right = false;
        while !is_right && std::time::Instant::now() < until {
            // One of the four has just ended, perhaps with another.
            let is_known =
                |(jobs, left, _)| (2.0..=3.0).contains(&left) && (2.0..6.0).contains(&jobs);
            is_right =
                figures(&agent).is_some_and(is_known) && answered.load(Ordering::Relaxed) >= 40;
            std::thread::sleep(Duration::from_millis(20));
        }
        done.store(true, Ordering::Relaxed);
        is_right
    });
    assert!(right, "{protocol}: {:?}", figures(&agent));
    let answered = answered.load(Ordering::Relaxed);
    wait_lines(&agent, &[("finished", answered.into()), ("malformed", 0.0)]);
    let connections: u32 = proxy.row("node,FRONTEND")["conn_tot"].parse().unwrap();
    assert!(
        connections <= answered / 4,
        "{protocol}: {connections} connections for {answered} requests"
    );
    let mean = agent.service("stocks")["delay"]["mean"].as_f64().unwrap();
    assert!((0.095..0.5).contains(&mean), "{protocol}: {mean}");
    wait_for("kept connections are no jobs", || {
        http_get(front, "/")?;
        (agent.service("stocks")["jobs"] == 0.0).then_some(())
    });
}

#[test]
fn http_keep_alive_to_the_node_and_http_2_count_requests_and_not_connections() {
    assert_kept_connections_are_no_jobs("");
    assert_kept_connections_are_no_jobs("proto h2");
}

#[test]
fn requests_that_the_operator_excludes_are_no_samples_and_silent_ones_no_lines() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let work = answer(200, "x-items: 80\r\n", "done");
    let backend = Peer::start(Script::raw(work));
    let (front, back) = (free_port(), backend.port);
    let format = documented_format();
    let _proxy = Haproxy::with(&format!(
        "frontend in\n  bind 127.0.0.1:{front}\n  log 127.0.0.1:{port} local0 info\n  {format}\n  \
         http-request set-var(txn.plimsoll_items) str(excluded) if {{ path_beg /events }}\n  \
         http-request set-log-level silent if {{ path_beg /silent }}\n  \
         http-response set-var(txn.plimsoll_items) res.hdr(x-items) unless {{ var(txn.plimsoll_items) -m found }}\n  \
         use_backend streams if {{ path_beg /streams }}\n  default_backend queries\n\
         backend queries\n  server node1 127.0.0.1:{back}\n\
         backend streams\n  server node1 127.0.0.1:{back}\n"
    ));
    for path in [
        "/events/1",
        "/silent/1",
        "/streams/1",
        "/",
        "/events/2",
        "/",
    ] {
        assert_eq!(http_get(front, path).unwrap().0, 200);
    }
    wait_lines(
        &agent,
        &[("excluded", 2.0), ("finished", 2.0), ("other_node", 1.0)],
    );
    assert_eq!(
        (lines(&agent, "left"), lines(&agent, "malformed")),
        (0.0, 0.0)
    );
    wait_for("the cost of those that count", || {
        let _ = http_get(front, "/")?;
        (agent.service("stocks")["decision"]["mean_cost"] == 80.0).then_some(())
    });
}

/// A line of the whole format, written so many milliseconds after 1970.
fn stamped(written: u128, request: u32) -> String {
    format!("plimsoll queries/node1 0 1 29 0 0/30 @{written}/{request} 200 -- -")
}

#[test]
fn jobs_are_what_all_processes_still_had_there() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut request = 0;
    let mut tell = |left: &str| {
        request += 1;
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let stamp = format!("@{now}/{request}");
        let line = stamped(now, request).replace(&stamp, &format!("{stamp}/{left}"));
        client
            .send_to(line.as_bytes(), ("127.0.0.1", port))
            .unwrap();
    };
    let jobs = || agent.service("stocks")["jobs"].as_f64();
    wait_for("the sum over two hosts and two processes of one", || {
        for left in ["3/lb1/7", "4/lb1/8", "9/lb2/7", "5/lb2/7"] {
            tell(left);
        }
        (jobs()? == 12.0).then_some(())
    });
    for bad in ["", "-1/lb1/7", "99999999999/lb1/7", "3/lb1"] {
        tell(bad);
    }
    wait_lines(&agent, &[("malformed", 4.0)]);
    wait_for("the good ones are heard on", || {
        tell("1/lb1/7");
        (jobs()? == 10.0).then_some(())
    });
}

#[test]
fn lines_that_come_late_or_twice_are_counted_apart() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let send = |line: String| {
        client
            .send_to(line.as_bytes(), ("127.0.0.1", port))
            .unwrap()
    };
    // A relay makes up for an outage: five minutes of lines in a moment, each of a node that hung.
    for request in 0..300 {
        let written = now() - 300_000 + u128::from(request) * 900;
        let hung = stamped(written, request).replace("29 0 0/30", "9000 0 0/9001");
        send(hung);
        if request % 100 == 99 {
            // More at once than the socket has room for would be lost.
            let so_far = f64::from(request + 1);
            wait_lines(&agent, &[("late", so_far), ("finished", 0.0)]);
        }
    }
    for request in 1000..1020 {
        let line = stamped(now(), request);
        send(line.clone());
        send(line);
    }
    wait_lines(
        &agent,
        &[("finished", 20.0), ("repeated", 20.0), ("late", 300.0)],
    );
    // Without the stamp nothing can be told.
    send(GOOD.into());
    send(GOOD.into());
    wait_lines(&agent, &[("finished", 22.0), ("repeated", 20.0)]);
    assert!(bound(&agent) >= 64.0, "{}", agent.service("stocks"));
    let log = agent.log();
    assert_eq!(log.matches("later than they should").count(), 1, "{log}");
}

#[test]
fn options_that_hide_requests_or_their_data_time_are_logged_once() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let work = answer(200, "", "done");
    let backend = Peer::start(Script::Raw(Duration::ZERO, work));
    let (front, back, failing) = (free_port(), backend.port, free_port());
    let format = documented_format();
    let _proxy = Haproxy::with(&format!(
        "frontend in\n  bind 127.0.0.1:{front}\n  log 127.0.0.1:{port} local0 info\n  {format}\n  option logasap\n  \
         default_backend queries\n\
         backend queries\n  server node1 127.0.0.1:{back}\n\
         frontend bad\n  bind 127.0.0.1:{failing}\n  log 127.0.0.1:{port} local0 info\n  {format}\n  \
         option dontlog-normal\n  default_backend queries\n"
    ));
    backend.play(Script::answer(500, "no"));
    for _ in 0..200 {
        assert_eq!(http_get(failing, "/").unwrap().0, 500);
    }
    wait_lines(&agent, &[("failed", 200.0)]);
    backend.play(Script::answer(200, "done"));
    for _ in 0..3 {
        assert_eq!(http_get(front, "/").unwrap().0, 200);
        assert_eq!(http_get(failing, "/").unwrap().0, 200);
    }
    wait_lines(&agent, &[("finished", 3.0), ("malformed", 0.0)]);
    let log = agent.log();
    assert_eq!(log.matches("option logasap").count(), 1, "{log}");
    assert_eq!(log.matches("option dontlog-normal").count(), 1, "{log}");
}
