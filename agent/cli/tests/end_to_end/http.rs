//! The HTTP endpoints of the real agent.

use crate::support::{Agent, Service, wait_for};

#[test]
fn metrics_tell_what_was_asked() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    for _ in 0..2 {
        agent.check("queries/node1\n").unwrap();
    }
    agent.check("unknown\n").unwrap();
    let (status, text) = agent.get("/metrics").unwrap();
    assert_eq!(status, 200);
    for name in [
        "plimsoll_agent_checks_total{answer=\"up\",service=\"stocks\"} 2",
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
    let node = wait_for("the proxy is shown", || {
        agent.check("queries/node1 lb1\n").unwrap();
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
fn alive_and_ready() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    assert_eq!(agent.get("/healthz").unwrap(), (200, "ok\n".into()));
    assert_eq!(agent.get("/readyz").unwrap(), (200, "ok\n".into()));
    assert_eq!(agent.get("/nope").unwrap().0, 404);
}
