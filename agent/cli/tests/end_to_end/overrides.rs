//! The control socket of the real agent.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use crate::support::{Agent, Service, mode};
use serde_json::Value;

fn say(agent: &Agent, text: &[u8]) -> Option<Value> {
    let mut stream = UnixStream::connect(agent.socket()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let _ = stream.write_all(text);
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

#[test]
fn only_owner_and_group_may_talk_to_it() {
    let service = Service::start();
    let mut agent = Agent::start(&service, "");
    assert_eq!(mode(&agent.socket()), 0o660);
    // A killed agent leaves its socket behind; the next one takes the place.
    agent.kill();
    assert!(agent.socket().exists());
    agent.start_again();
    assert!(agent.node(&["status"]).unwrap().starts_with("stocks\n"));
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    for (request, reason) in [
        ("nonsense\n", "not understood"),
        ("{\"command\":\"explode\"}\n", "unknown variant"),
        (
            "{\"command\":\"drain\",\"service\":\"nope\"}\n",
            "no service \"nope\"; the services are: stocks",
        ),
        ("{\"command\":\"force\",\"to\":{\"weight\":0}}\n", "1..256"),
    ] {
        let answer = say(&agent, request.as_bytes()).unwrap();
        assert_eq!(answer["ok"], false);
        assert!(
            answer["error"].as_str().unwrap().contains(reason),
            "{request} -> {answer}"
        );
    }
    let answer = say(&agent, &vec![b'x'; 1 << 20]).unwrap();
    assert!(
        answer["error"].as_str().unwrap().contains("4096 bytes"),
        "{answer}"
    );
    let error = agent.node(&["--service", "nope", "drain"]).unwrap_err();
    assert!(error.contains("no service \"nope\""), "{error}");
    let set = agent.node_json()["services"]["stocks"]["override"].clone();
    assert_eq!(set["drain"], false);
    assert!(set["weight_percent"].is_null());
}

#[test]
fn status_and_v1_node_agree() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    agent.node(&["force", "weight", "7"]).unwrap();
    let status: Value = serde_json::from_str(&agent.node(&["status", "--json"]).unwrap()).unwrap();
    let node = agent.node_json();
    for pointer in [
        "/version",
        "/services/stocks/override",
        "/services/stocks/settings",
    ] {
        assert_eq!(status.pointer(pointer), node.pointer(pointer), "{pointer}");
        assert!(node.pointer(pointer).is_some(), "{pointer}");
    }
    assert!(
        agent
            .node(&["status"])
            .unwrap()
            .contains("override  weight 7 %")
    );
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let service = Service::start();
    let mut agent = Agent::start(&service, "");
    assert!(agent.stop().success());
    let error = agent.node(&["status"]).unwrap_err();
    assert!(error.contains("control.sock"), "{error}");
}
