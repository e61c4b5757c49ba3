//! Ports in use, jobs that cannot be counted, a probe that fails, the end.

use crate::support;
use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
    time::Duration,
};

use crate::support::{
    Agent, free_port,
    peer::{Peer, Script, answer},
    wait_for,
};

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
const LIGHT: Script = Script::Work(100, 0.005);

/// `more` are further tables of the service.
fn service(peer: &Peer, more: &str) -> String {
    let url = peer.url();
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
kind = "prometheus"
url = "{url}"
histogram = "work_seconds"
timeout = "100ms"
{more}
"#
    )
}

fn jobs_failures(agent: &Agent) -> f64 {
    agent.count("plimsoll_source_failures_total{kind=\"jobs\",service=\"stocks\"}")
}

#[test]
fn a_port_in_use_is_named_with_its_key() {
    let peer = Peer::start(LIGHT);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = (tcp.local_addr().unwrap(), tcp);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = (udp.local_addr().unwrap(), udp);
    let plain = service(&peer, "");
    let logs = |listen: String| {
        let (head, _) = plain.split_once("[service.source]").unwrap();
        format!(
            "{head}[service.source]\nkind = \"haproxy-log\"\nnode = \"queries/node1\"\nlisten = \"{listen}\"\n"
        )
    };
    let cases = [
        ("http.listen", tcp.0, plain.clone()),
        ("agent_check.listen", tcp.0, plain.clone()),
        (
            "service[0].source.listen",
            tcp.0,
            logs(format!("tcp://{}", tcp.0)),
        ),
        (
            "service[0].source.listen",
            udp.0,
            logs(format!("udp://{}", udp.0)),
        ),
    ];
    for (key, address, services) in cases {
        let mut agent = Agent::new();
        match key {
            "http.listen" => agent.http_port = address.port(),
            "agent_check.listen" => agent.check_port = address.port(),
            _ => {}
        }
        agent.configure("", &services);
        let said = agent.start_refused();
        for part in ["agent.toml", key, &address.to_string(), "in use"] {
            assert!(said.contains(part), "{part} in: {said}");
        }
    }
    let running = Agent::with(&plain);
    let other = Agent::new();
    let socket = running.socket().display().to_string();
    other.configure("", &plain);
    other.write_config(&other.config().replace(
        &format!("{}/control.sock", other.directory.path().display()),
        &socket,
    ));
    let said = other.start_refused();
    for part in ["control.socket", socket.as_str(), "another agent"] {
        assert!(said.contains(part), "{part} in: {said}");
    }
    assert!(running.words().starts_with("up 50%"));
}

#[test]
fn jobs_by_a_gauge_elsewhere() {
    let (peer, gauge) = (Peer::start(LIGHT), Peer::start(Script::Hang));
    let fine = Script::answer(
        200,
        "work_jobs{kind=\"a\"} 3\nwork_jobs{kind=\"b\"} 4\nother 9\n",
    );
    gauge.play(fine.clone());
    let jobs = format!(
        "[service.jobs]\nkind = \"prometheus\"\ngauge = \"work_jobs\"\nurl = \"{}\"\n",
        gauge.url()
    );
    let agent = Agent::with(&service(&peer, &jobs));
    let known = || {
        wait_for("seven jobs", || {
            (agent.service("stocks")["jobs"] == 7.0).then_some(())
        });
    };
    known();
    assert_eq!(agent.metric("plimsoll_jobs{service=\"stocks\"}"), Some(7.0));
    let words = agent.words();
    let cases = [
        (Script::answer(200, "work_jobs NaN\n"), "work_jobs is NaN"),
        (Script::answer(200, "work_jobs -1\n"), "work_jobs is -1"),
        (
            Script::answer(200, "work_jobs 1e300\n"),
            "work_jobs is 1000",
        ),
        (
            Script::answer(200, "other 9\n"),
            "no series of gauge work_jobs",
        ),
        (Script::answer(404, ""), "status 404"),
        (
            Script::raw(answer(200, "", "work_jobs 7\n")[..30].to_vec()),
            "",
        ),
        (Script::Hang, "no whole answer"),
    ];
    for (script, message) in cases {
        let before = jobs_failures(&agent);
        gauge.play(script);
        let node = wait_for(message, || {
            assert_eq!(agent.words(), words, "{message}");
            let node = agent.service("stocks");
            let lost = jobs_failures(&agent) >= before + 2.0 && node["jobs"].is_null();
            lost.then_some(node)
        });
        // Delays alone are worth a step, and what is not known is not shown.
        assert!(node["source_error"].is_null(), "{node}");
        assert_eq!(node["decision"]["reason"], "light_load");
        let log = agent.log();
        let told = log.lines().filter(|line| {
            line.contains("WARN") && line.contains(&gauge.url()) && line.contains(message)
        });
        assert!(told.count() >= 1, "{message} in: {log}");
        gauge.play(fine.clone());
        known();
    }
    gauge.play(Script::Hang);
    wait_for("the metric is gone", || {
        let text = agent.get("/metrics")?.1;
        (!text.contains("plimsoll_jobs{")).then_some(())
    });
}

#[test]
fn a_gauge_missing_from_the_scrape_is_reported() {
    let peer = Peer::start(LIGHT);
    let jobs = "[service.jobs]\nkind = \"prometheus\"\ngauge = \"work_jobz\"\n";
    let agent = Agent::with(&service(&peer, jobs));
    wait_for("failures", || (jobs_failures(&agent) >= 3.0).then_some(()));
    let log = agent.log();
    assert_eq!(
        log.matches("no series of gauge work_jobz").count(),
        1,
        "{log}"
    );
    assert_eq!(agent.reason(), "light_load");
}

#[test]
fn jobs_by_established_connections() {
    let agent = counts_connections(Command::new(PLIMSOLL));
    assert!(!agent.log().contains("netlink"), "{}", agent.log());
}

#[test]
fn jobs_by_established_connections_where_netlink_is_not_permitted() {
    let mut command = Command::new("python3");
    command.args(["-c", support::WITHOUT_NETLINK, PLIMSOLL]);
    let agent = counts_connections(command);
    let log = agent.log();
    let told = "cannot be counted by netlink, /proc/net/tcp is read, which costs more: Operation not permitted";
    assert_eq!(log.matches(told).count(), 1, "{log}");
}

fn counts_connections(command: Command) -> Agent {
    let peer = Peer::start(LIGHT);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let jobs = format!(
        "[service.jobs]\nkind = \"sockets\"\nport = {}\nsample_interval = \"10ms\"\n",
        address.port()
    );
    let mut agent = Agent::new();
    agent.configure("", &service(&peer, &jobs));
    agent.start_by(command);
    let seen = |wanted: f64| {
        wait_for(&format!("{wanted} jobs"), || {
            (agent.service("stocks")["jobs"] == wanted).then_some(())
        });
    };
    seen(0.0);
    let pairs: Vec<_> = (0..5)
        .map(|_| {
            (
                TcpStream::connect(address).unwrap(),
                listener.accept().unwrap(),
            )
        })
        .collect();
    seen(5.0);
    drop(pairs);
    seen(0.0);
    assert_eq!(jobs_failures(&agent), 0.0);
    agent
}

#[test]
fn the_probe_takes_the_node_down_and_up() {
    let peer = Peer::start(LIGHT);
    let probed = Peer::start(Script::answer(200, "fine"));
    let health = format!(
        "[service.health]\nkind = \"http\"\nurl = \"http://127.0.0.1:{}/readyz\"\n\
         interval = \"20ms\"\ntimeout = \"50ms\"\nfall = 2\nrise = 2\n",
        probed.port
    );
    let agent = Agent::with(&service(&peer, &health));
    let up = || {
        wait_for("up", || {
            let answer = agent.check("stocks lb1\n").unwrap();
            answer.starts_with("up 50% maxconn:64 #").then_some(())
        });
    };
    up();
    let cases = [
        (Script::answer(503, "busy"), "/readyz: status 503"),
        (Script::Hang, "no whole answer within 50ms"),
        (Script::raw("garbage\r\n\r\n"), "HTTP"),
    ];
    for (script, why) in cases {
        probed.play(script);
        let answer = wait_for(why, || {
            let answer = agent.check("stocks lb1\n").unwrap();
            answer.contains(why).then_some(answer)
        });
        assert!(answer.starts_with("down # "), "{answer:?}");
        assert_eq!(agent.service("stocks")["health"], "down");
        probed.play(Script::answer(302, ""));
        up();
    }
}

#[test]
fn the_last_answer_is_drain() {
    let peer = Peer::start(LIGHT);
    let mut agent = Agent::with(&service(&peer, ""));
    assert_eq!(agent.words(), "up 50% maxconn:64");
    let mut process = agent.process.take().unwrap();
    process.signal("-TERM");
    let mut answers = Vec::new();
    wait_for("the port is closed", || match agent.check("stocks lb1\n") {
        Ok(answer) if answer.is_empty() => None,
        Ok(answer) => {
            answers.push(answer);
            None
        }
        Err(_) => Some(()),
    });
    let last = answers.last().unwrap();
    assert!(
        last.starts_with("drain up 50% maxconn:64 # "),
        "{answers:?}"
    );
    let status = process.wait();
    assert!(status.success(), "{status}: {}", agent.log());
    assert!(agent.log().contains("told to drain"), "{}", agent.log());
}

#[test]
fn a_proxy_that_asks_no_more_is_waited_for_no_longer_than_the_grace() {
    let peer = Peer::start(LIGHT);
    let mut agent = Agent::new();
    agent.configure("shutdown_grace = \"200ms\"", &service(&peer, ""));
    let config = agent.config();
    agent.write_config(&config.replace("proxy_lease = \"1s\"", "proxy_lease = \"1h\""));
    agent.start_again();
    assert_eq!(agent.words(), "up 50% maxconn:64");
    let status = agent.stop();
    assert!(status.success(), "{status}: {}", agent.log());
    assert!(
        agent.log().contains("shutdown_grace expired"),
        "{}",
        agent.log()
    );
}

#[test]
fn a_source_that_never_was_gives_the_nominal_bound() {
    let nobody = free_port();
    let peer = Peer::on(nobody, Script::Raw(Duration::ZERO, Vec::new()));
    let config = service(&peer, "");
    drop(peer);
    let agent = Agent::with(&config);
    assert_eq!(agent.words(), "up 50% maxconn:64");
    assert_eq!(agent.reason(), "source_lost");
    let _late = Peer::on(nobody, LIGHT);
    wait_for("it is found", || {
        (agent.reason() == "light_load").then_some(())
    });
    assert_eq!(agent.words(), "up 50% maxconn:64");
}
