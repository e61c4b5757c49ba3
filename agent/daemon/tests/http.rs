//! The HTTP endpoints of the real agent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpStream;

use support::{Agent, Service, wait_for};

#[test]
fn metrics_tell_what_was_asked() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    agent.check("queries/node1\n").unwrap();
    agent.check("unknown\n").unwrap();
    let (status, text) = agent.get("/metrics").unwrap();
    assert_eq!(status, 200);
    for name in [
        "plimsoll_agent_checks_total{answer=\"up\",service=\"stocks\"} 1",
        "plimsoll_agent_check_rejected_total{reason=\"unknown_identity\"} 1",
        "plimsoll_proxies{service=\"stocks\"} 1",
        "plimsoll_bound{service=\"stocks\"} 40",
    ] {
        assert!(text.lines().any(|line| line == name), "{name} in:\n{text}");
    }
}

#[test]
fn the_node_is_shown_whole() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    let config = agent.config();
    let name = "name = \"stocks\"\n";
    agent.write_config(&config.replace(name, &format!("{name}address = \"192.0.2.11:8001\"\n")));
    agent.start_again();
    agent.check("queries/node1 lb1\n").unwrap();
    let node = wait_for("the proxy is shown", || {
        let node = agent.node_json();
        node["services"]["stocks"]["proxies"][0]
            .is_object()
            .then_some(node)
    });
    let stocks = &node["services"]["stocks"];
    assert_eq!(stocks["decision"]["bound"], 40.0);
    assert_eq!(stocks["weight_percent"], 50);
    assert_eq!(stocks["address"], "192.0.2.11:8001");
    assert_eq!(stocks["health"], "up");
    assert_eq!(stocks["settings"]["sla"]["delay"], 1.0);
    assert_eq!(stocks["proxies"][0]["identity"], "queries/node1");
    assert_eq!(stocks["proxies"][0]["share_jobs"], 40);
}

#[test]
fn connections_that_are_too_many_are_closed_at_once() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let mut idle = Vec::new();
    wait_for("one is too many", || {
        let open = || TcpStream::connect(("127.0.0.1", agent.http_port)).unwrap();
        idle.extend((0..64).map(|_| open()));
        agent.get("/healthz").is_none().then_some(())
    });
    assert!(idle.len() >= 512, "{}", idle.len());
    assert!(agent.words().contains("maxconn:40"));
    drop(idle);
    wait_for("there is room again", || agent.get("/healthz"));
    assert!(agent.count("plimsoll_http_connections_refused_total") >= 1.0);
}

#[test]
fn alive_and_ready() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    assert_eq!(agent.get("/healthz").unwrap(), (200, "ok\n".into()));
    assert_eq!(agent.get("/readyz").unwrap(), (200, "ok\n".into()));
    assert_eq!(agent.get("/nope").unwrap().0, 404);
}
