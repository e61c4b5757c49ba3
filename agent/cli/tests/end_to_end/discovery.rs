//! Envoy's endpoint discovery from real agents that ask each other.

use crate::support::redis::{Redis, member};
use crate::support::{
    Agent, Service, free_port, http_post,
    peer::{Peer, Script, answer},
    wait_for,
};
use serde_json::{Value, json};

const PATH: &str = "/v3/discovery:endpoints";

fn ask(agent: &Agent, body: &Value) -> (u16, Value) {
    let (status, text) = http_post(agent.http_port, PATH, "", &body.to_string()).unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn stocks(agent: &Agent) -> (u16, Value) {
    ask(
        agent,
        &json!({"resource_names": ["stocks"], "node": {"id": "e", "extensions": [{}]}}),
    )
}

/// Port, health and weight of each node.
fn nodes(answer: &Value) -> Vec<(u64, String, u64)> {
    let endpoints = answer["resources"][0]["endpoints"][0]["lb_endpoints"].as_array();
    let node = |e: &Value| {
        let port = e["endpoint"]["address"]["socket_address"]["port_value"].as_u64();
        let health = e["health_status"].as_str().unwrap_or_default().to_owned();
        (
            port.unwrap(),
            health,
            e["load_balancing_weight"].as_u64().unwrap(),
        )
    };
    endpoints.into_iter().flatten().map(node).collect()
}

fn drops(answer: &Value) -> u64 {
    let policy = &answer["resources"][0]["policy"];
    policy["drop_overloads"][0]["drop_percentage"]["numerator"]
        .as_u64()
        .unwrap()
}

/// A node of service "stocks" with a fixed bound, at a port where nobody needs to listen.
fn configure(agent: &Agent, service: &Service, port: u16, bound: u32, envoy: &str) {
    let source = service.port;
    let services = format!(
        r#"
[[service]]
name = "stocks"
address = "127.0.0.1:{port}"
[service.sla]
delay = "1s"
[service.bound]
nominal = {bound}
[service.controller]
kind = "fixed"
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{source}/metrics"
histogram = "work_seconds"
[service.health]
kind = "tcp"
address = "127.0.0.1:{source}"
interval = "50ms"
timeout = "500ms"
fall = 2
rise = 1
"#
    );
    agent.configure(&format!("[envoy]\n{envoy}\n"), &services);
}

/// Agents that all have the same list of peers, themselves among them.
fn cluster(service: &Service, bounds: &[u32]) -> Vec<Agent> {
    let mut agents: Vec<_> = bounds.iter().map(|_| Agent::new()).collect();
    let peers: Vec<_> = agents
        .iter()
        .map(|a| format!("http://127.0.0.1:{}", a.http_port))
        .collect();
    for ((agent, bound), port) in agents.iter_mut().zip(bounds).zip(8101..) {
        configure(
            agent,
            service,
            port,
            *bound,
            &format!("peers = {peers:?}\nlease = \"1s\""),
        );
        agent.start_again();
    }
    agents
}

/// Answers of the agents with bounds 64,000, 64,000 and 16,000 in normal operation.
const ALL: [(u64, &str, u64); 3] = [
    (8101, "HEALTHY", 1000),
    (8102, "HEALTHY", 1000),
    (8103, "HEALTHY", 250),
];

fn expect(agent: &Agent, wanted: &[(u64, &str, u64)]) -> Value {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(p, h, w)| (*p, (*h).to_owned(), *w))
        .collect();
    wait_for(&format!("{wanted:?}"), || {
        let (status, answer) = stocks(agent);
        (status == 200 && nodes(&answer) == wanted).then_some(answer)
    })
}

#[test]
fn all_agents_say_the_same_and_follow_what_happens_to_the_nodes() {
    let service = Service::start();
    let mut agents = cluster(&service, &[64_000, 64_000, 16_000]);
    let all = ALL;
    let answers: Vec<_> = agents.iter().map(|agent| expect(agent, &all)).collect();
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(drops(&answers[0]), 0);

    let version = &answers[0]["version_info"];
    let again = ask(
        &agents[1],
        &json!({"version_info": version, "resource_names": ["stocks"]}),
    );
    assert_eq!(again, (304, Value::Null));

    agents[2].node(&["drain"]).unwrap();
    let drained = expect(&agents[0], &[all[0], all[1], (8103, "DRAINING", 250)]);
    assert_ne!(drained["version_info"], *version);
    agents[2].node(&["ready"]).unwrap();
    agents[2].node(&["force", "down"]).unwrap();
    expect(&agents[0], &[all[0], all[1], (8103, "UNHEALTHY", 250)]);
    agents[2].node(&["force", "auto"]).unwrap();
    agents[1].node(&["force", "weight", "25"]).unwrap();
    expect(&agents[0], &[all[0], (8102, "HEALTHY", 500), all[2]]);
    agents[1].node(&["force", "auto"]).unwrap();
    expect(&agents[0], &all);

    agents[1].kill();
    expect(&agents[0], &[all[0], (8102, "UNHEALTHY", 1000), all[2]]);
    agents[1].start_again();
    expect(&agents[0], &all);
    expect(&agents[1], &all);
}

#[test]
fn an_agent_that_knows_too_little_gives_no_answer_and_one_cut_off_keeps_its_own() {
    let service = Service::start();
    let mut agents = cluster(&service, &[64_000, 64_000, 16_000]);
    let all = ALL;
    expect(&agents[0], &all);
    agents[1].kill();
    agents[2].kill();
    let polls = |agent: &Agent| agent.count("plimsoll_peer_requests_total{result=\"unreachable\"}");
    let before = polls(&agents[0]);
    wait_for("the silence is noticed", || {
        (polls(&agents[0]) > before + 6.0).then_some(())
    });
    expect(&agents[0], &all);

    agents[0].kill();
    agents[0].start_again();
    let before = polls(&agents[0]);
    wait_for("the lease is over", || {
        (polls(&agents[0]) > before + 6.0).then_some(())
    });
    assert_eq!(stocks(&agents[0]).0, 503);
    assert!(agents[0].count("plimsoll_discovery_requests_total{result=\"unready\"}") > 0.0);
    agents[2].start_again();
    expect(&agents[0], &[all[0], all[2]]);
}

#[test]
fn bad_requests_are_refused_and_unknown_names_left_out() {
    let service = Service::start();
    let agent = cluster(&service, &[64_000]).remove(0);
    expect(&agent, &[(8101, "HEALTHY", 1000)]);
    let post = |body: &str| http_post(agent.http_port, PATH, "", body).unwrap();
    for body in [
        "",
        "{",
        "null",
        "{\"resource_names\": 1}",
        "{\"type_url\": \"x\"}",
    ] {
        assert_eq!(post(body).0, 400, "{body}");
    }
    assert_eq!(post(&" ".repeat((1 << 20) + 1)).0, 413);
    let many = json!({"resource_names": vec!["stocks"; 2000]}).to_string();
    assert_eq!(post(&many).0, 400);
    let (status, answer) = ask(&agent, &json!({"resource_names": ["other"]}));
    assert_eq!((status, &answer["resources"]), (200, &json!([])));
    let large = json!({"resource_names": ["stocks"], "node": "x".repeat(1_000_000)});
    assert_eq!(ask(&agent, &large).0, 200);
}

/// `/v1/node` of an agent whose node sees this.
fn overloaded(port: u16, admitted: f64, ended: f64, backlog: f64) -> Value {
    json!({"services": {"stocks": {
        "address": format!("127.0.0.1:{port}"), "health": "up", "override": {"drain": false, "health": null},
        "decision": {"bound": 64_000.0}, "weight_bound": 64_000.0, "backlog": backlog,
        "flow": {"admitted": admitted, "ended": ended, "backlog": backlog, "bound": 64_000.0},
        "shed": {"fraction": 0.0, "asked": false},
    }}})
}

#[test]
fn what_peers_say_decides_how_much_is_shed() {
    let service = Service::start();
    let peer = Peer::start(Script::answer(
        200,
        overloaded(8102, 1_000_000.0, 500_000.0, 164_000.0).to_string(),
    ));
    let mut agent = Agent::new();
    let peers = format!("peers = [\"http://127.0.0.1:{}\"]", peer.port);
    configure(&agent, &service, 8101, 64_000, &peers);
    agent.start_again();
    let shed = wait_for("some is shed", || {
        let (_, answer) = stocks(&agent);
        (nodes(&answer).len() == 2 && drops(&answer) > 0).then(|| drops(&answer))
    });
    assert!(shed <= 9800, "{shed}");
    assert!(agent.service("stocks")["shed"]["asked"].as_bool().unwrap());
    wait_for("the metric", || {
        agent
            .metric("plimsoll_shed_ratio{service=\"stocks\"}")
            .filter(|s| *s > 0.0)
    });
    peer.play(Script::answer(
        200,
        overloaded(8102, 10.0, 10.0, 1.0).to_string(),
    ));
    wait_for("nothing is shed any more", || {
        (drops(&stocks(&agent).1) == 0).then_some(())
    });
}

#[test]
fn a_malformed_or_hanging_peer_does_no_harm() {
    let service = Service::start();
    let peer = Peer::start(Script::answer(
        200,
        overloaded(8102, 1.0, 1.0, 1.0).to_string(),
    ));
    let mut agent = Agent::new();
    let peers = format!(
        "peers = [\"http://127.0.0.1:{}\"]\nlease = \"1s\"",
        peer.port
    );
    configure(&agent, &service, 8101, 64_000, &peers);
    agent.start_again();
    let both = [(8101, "HEALTHY", 1000), (8102, "HEALTHY", 1000)];
    expect(&agent, &both);
    let good = overloaded(8102, 1.0, 1.0, 1.0);
    let mut no_bound = good.clone();
    no_bound["services"]["stocks"]["decision"] = json!({"bound": -1});
    let scripts = [
        ("garbage", Script::answer(200, "not json")),
        ("garbage", Script::answer(200, no_bound.to_string())),
        ("garbage", Script::answer(200, "[".repeat(10_000))),
        ("garbage", Script::raw("SSH-2.0-x\r\n\r\n")),
        (
            "truncated",
            Script::raw(&answer(200, "", good.to_string())[..200]),
        ),
        ("too_large", Script::answer(200, " ".repeat((1 << 20) + 1))),
        ("status", Script::answer(500, "")),
        ("timeout", Script::Hang),
        ("timeout", Script::Drip(answer(200, "", good.to_string()))),
    ];
    for (kind, script) in scripts {
        let name = format!("plimsoll_peer_requests_total{{result=\"{kind}\"}}");
        let before = agent.count(&name);
        peer.play(script);
        wait_for(kind, || (agent.count(&name) > before).then_some(()));
        expect(&agent, &[both[0], (8102, "UNHEALTHY", 1000)]);
        assert_eq!(agent.get("/healthz").unwrap().0, 200);
        peer.play(Script::answer(200, good.to_string()));
        expect(&agent, &both);
    }
}

#[test]
fn nodes_are_known_from_redis_too() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let start = |node: &str, port: u16| {
        let mut agent = member(&service, node, &format!("urls = [\"{}\"]", redis.url()));
        let name = "name = \"stocks\"\n";
        let address = format!("{name}address = \"127.0.0.1:{port}\"\n");
        agent.write_config(&agent.config().replace(name, &address));
        agent.start_again();
        agent
    };
    let (first, mut second) = (start("node1", 8101), start("node2", 8102));
    let both = [(8101, "HEALTHY", 640), (8102, "HEALTHY", 640)];
    expect(&first, &both);
    expect(&second, &both);
    second.kill();
    wait_for("node2 leaves", || {
        let nodes = nodes(&stocks(&first).1);
        (nodes.len() == 1 || nodes[1].1 == "UNHEALTHY").then_some(())
    });
    drop(redis);
    assert_eq!(stocks(&first).0, 200, "what Redis said last stays");
}

#[test]
fn peers_that_cannot_be_are_refused_by_their_line() {
    let service = Service::start();
    let mut agent = Agent::new();
    let url = format!("\"http://127.0.0.1:{}\"", free_port());
    for (envoy, key) in [
        ("peers = [\"192.0.2.1:9464\"]".to_owned(), "envoy.peers[0]"),
        (
            "peers = [\"ftp://192.0.2.1:9464\"]".to_owned(),
            "envoy.peers[0]",
        ),
        (
            format!("peers = [{url}, \"http://192.0.2.1:9464/v1\"]"),
            "envoy.peers[1]",
        ),
        (format!("peers = [{url}, {url}]"), "envoy.peers[1]"),
        ("lease = \"100ms\"".to_owned(), "envoy.lease"),
        ("peer = []".to_owned(), "envoy.peer"),
    ] {
        configure(&agent, &service, 8101, 64_000, &envoy);
        let said = agent.start_refused();
        assert!(said.contains(&format!("agent.toml:11: {key}: ")), "{said}");
    }
    configure(&agent, &service, 8101, 64_000, &format!("peers = [{url}]"));
    agent.start_again();
    configure(&agent, &service, 8101, 64_000, "");
    assert_eq!(agent.reload(), "applied");
    expect(&agent, &[(8101, "HEALTHY", 1000)]);
}
