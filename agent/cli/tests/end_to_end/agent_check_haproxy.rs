//! The agent-check server against a real HAProxy, whose own view is what counts.

use std::{io::Read, net::TcpStream};

use crate::support::{Agent, Haproxy, Service, free_port, wait_for};

const AS_NODE1: &str = "queries/node1\\n";

#[test]
fn weight_and_limit_reach_haproxy_and_follow_the_operator() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("status", "no check"), ("weight", "50"), ("slim", "40")]);
    let row = proxy.server();
    assert!(
        row["last_agt"].contains("up (p95 "),
        "the reason is shown: {}",
        row["last_agt"]
    );

    agent.node(&["force", "weight", "30"]).unwrap();
    proxy.wait_server(&[("weight", "30"), ("slim", "40")]);
    agent.node(&["force", "auto"]).unwrap();
    agent.node(&["force", "bound", "20"]).unwrap();
    proxy.wait_server(&[("weight", "25"), ("slim", "20")]);
    agent.node(&["force", "auto"]).unwrap();
    proxy.wait_server(&[("weight", "50"), ("slim", "40")]);
}

#[test]
fn two_proxies_share_the_bound_until_one_is_gone() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let first = Haproxy::start(&agent, "queries/node1 lb1\\n");
    first.wait_server(&[("slim", "40")]);
    let second = Haproxy::start(&agent, "queries/node1 lb2\\n");
    second.wait_server(&[("slim", "20"), ("weight", "50")]);
    first.wait_server(&[("slim", "20"), ("weight", "50")]);
    assert_eq!(
        agent.metric("plimsoll_proxies{service=\"stocks\"}"),
        Some(2.0)
    );
    let proxies = agent.node_json()["services"]["stocks"]["proxies"].clone();
    assert_eq!(proxies[0]["proxy"], "lb1");
    assert_eq!(proxies[1]["share_jobs"], 20);
    drop(second);
    first.wait_server(&[("slim", "40")]);
}

#[test]
fn the_operator_drains_and_takes_down() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("weight", "50")]);

    agent.node(&["drain"]).unwrap();
    proxy.wait_server(&[("status", "DRAIN (agent)")]);
    agent.node(&["ready"]).unwrap();
    proxy.wait_server(&[("status", "no check")]);

    agent.node(&["force", "down"]).unwrap();
    proxy.wait_server(&[("status", "DOWN (agent)")]);
    agent.node(&["force", "up"]).unwrap();
    proxy.wait_server(&[("status", "no check"), ("weight", "50")]);
}

#[test]
fn a_drain_at_the_proxy_is_left_alone() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("weight", "50")]);
    proxy.cli("set server queries/node1 state drain").unwrap();
    let before = agent
        .metric("plimsoll_agent_checks_total{answer=\"up\",service=\"stocks\"}")
        .unwrap();
    wait_for("five more checks", || {
        let now = agent.metric("plimsoll_agent_checks_total{answer=\"up\",service=\"stocks\"}")?;
        (now >= before + 5.0).then_some(())
    });
    assert!(proxy.server()["status"].starts_with("DRAIN"));
}

#[test]
fn a_failing_probe_takes_the_node_down_and_back() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("status", "no check")]);
    let port = service.port;
    drop(service);
    proxy.wait_server(&[("status", "DOWN (agent)")]);
    let _back = Service::on(port);
    proxy.wait_server(&[("status", "no check"), ("weight", "50"), ("slim", "40")]);
}

#[test]
fn a_stopping_agent_drains_and_the_next_one_undoes_it() {
    let service = Service::start();
    let mut agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("weight", "50")]);

    let status = agent.stop();
    assert!(status.success(), "{status}: {}", agent.log());
    proxy.wait_server(&[("status", "DRAIN (agent)")]);
    agent.start_again();
    proxy.wait_server(&[("status", "no check"), ("weight", "50")]);
    wait_for("an answer without ready", || {
        let told = agent.node_json()["services"]["stocks"]["proxies"][0]["told"].clone();
        told.as_str()?.starts_with("up ").then_some(())
    });
    assert_eq!(
        agent.metric("plimsoll_agent_checks_total{answer=\"ready\",service=\"stocks\"}"),
        Some(1.0)
    );
}

#[test]
fn an_operators_drain_outlives_the_agent() {
    let service = Service::start();
    let mut agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("weight", "50")]);
    agent.node(&["drain"]).unwrap();
    proxy.wait_server(&[("status", "DRAIN (agent)")]);
    agent.kill();
    agent.start_again();
    wait_for("a check after the restart", || {
        agent
            .metric("plimsoll_agent_checks_total{answer=\"drain\",service=\"stocks\"}")
            .filter(|n| *n >= 2.0)
    });
    assert_eq!(proxy.server()["status"], "DRAIN (agent)");
    agent.node(&["ready"]).unwrap();
    proxy.wait_server(&[("status", "no check")]);
}

#[test]
fn hold_leaves_the_last_word() {
    let service = Service::start();
    let mut agent = Agent::start(&service, "on_shutdown = \"hold\"");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("weight", "50")]);
    assert!(agent.stop().success());
    proxy.wait_server(&[("status", "no check"), ("weight", "50"), ("slim", "40")]);
}

/// A monitor that opens the agent-check port, once a second in life; `waits` for the answer, or closes at once.
fn probe(agent: &Agent, waits: bool) {
    let mut stream = TcpStream::connect(("127.0.0.1", agent.check_port)).unwrap();
    if waits {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("up "), "{answer}");
    }
}

fn checks(agent: &Agent) -> f64 {
    agent.count("plimsoll_agent_checks_total{answer=\"up\",service=\"stocks\"}")
}

#[test]
fn a_probe_of_the_port_takes_nothing_of_the_bound_from_a_proxy_that_names_itself() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let proxy = Haproxy::start(&agent, AS_NODE1);
    proxy.wait_server(&[("slim", "40")]);
    for waits in [false, true, false, true, true] {
        let before = checks(&agent);
        probe(&agent, waits);
        // The probe, and the proxy after it.
        wait_for("the proxy asks again", || {
            assert_eq!(proxy.server()["slim"], "40");
            (checks(&agent) >= before + 3.0).then_some(())
        });
    }
    assert_eq!(
        agent.metric("plimsoll_proxies{service=\"stocks\"}"),
        Some(1.0)
    );
}

#[test]
fn without_agent_send_proxies_share_and_a_probe_that_closes_at_once_does_not() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let check = agent.check_port;
    let unnamed = |address: &str| {
        Haproxy::with(&format!(
            "backend queries\n  default-server weight 100 agent-check agent-inter 100ms\n  \
             source {address}\n  server node1 127.0.0.1:{} agent-addr 127.0.0.1 agent-port {check}\n",
            free_port()
        ))
    };
    let first = unnamed("127.0.0.1");
    first.wait_server(&[("slim", "40"), ("weight", "50")]);
    for _ in 0..5 {
        let before = checks(&agent);
        probe(&agent, false);
        wait_for("the proxy asks again", || {
            assert_eq!(first.server()["slim"], "40");
            (checks(&agent) >= before + 3.0).then_some(())
        });
    }
    let second = unnamed("127.0.0.3");
    second.wait_server(&[("slim", "20")]);
    first.wait_server(&[("slim", "20")]);
}
