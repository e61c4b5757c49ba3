//! Tokens by role.

use std::process::Command;

use plimsoll_net::{Endpoint, Role};
use plimsoll_outputs::http::ENDPOINTS;

use crate::support::redis::{Redis, member};
use crate::support::{Agent, Service, http_get_with, http_post, wait_for};

const TOKENS: [(Role, &str); 3] = [
    (Role::Read, "a-token-to-read-with"),
    (Role::Observe, "a-token-to-observe"),
    (Role::Write, "a-token-to-write"),
];

/// Writes a token for each of these roles into the agent's directory, and the table that names them.
fn set_tokens(agent: &Agent, roles: &[Role]) {
    let mut table = String::from("[http.tokens]\n");
    for (role, token) in TOKENS.iter().filter(|(role, _)| roles.contains(role)) {
        let word = role.word();
        std::fs::write(agent.directory.path().join(word), token).unwrap();
        table += &format!("{word}_file = \"DIR/{word}\"\n");
    }
    let config = agent.config();
    let config = config.replace("[agent_check]", &format!("{table}[agent_check]"));
    agent.write_config(&config);
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn status(agent: &Agent, method: &str, path: &str, head: &str) -> u16 {
    match method {
        "GET" => http_get_with(agent.http_port, path, head).unwrap().0,
        _ => http_post(agent.http_port, path, head, "{}").unwrap().0,
    }
}

fn is_refused(status: u16) -> bool {
    [401, 403].contains(&status)
}

#[test]
fn each_endpoint_needs_a_token_of_its_role() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    set_tokens(&agent, &TOKENS.map(|(role, _)| role));
    agent.start_again();
    for Endpoint(method, path, needed) in ENDPOINTS {
        let asked = |head: &str| status(&agent, method, path, head);
        for head in ["", &bearer("another-token-of-this-length")] {
            let told = asked(head);
            assert_eq!(told == 401, needed.is_some(), "{method} {path}: {told}");
        }
        for (role, token) in TOKENS {
            let told = asked(&bearer(token));
            let is_enough = needed.is_none_or(|needed| role >= needed);
            assert_eq!(told == 403, !is_enough, "{method} {path}, {role:?}: {told}");
            assert_ne!(told, 401, "{method} {path}, {role:?}");
        }
    }
    // A method that no endpoint has is not a way around.
    assert_eq!(
        status(&agent, "POST", "/metrics", &bearer(TOKENS[0].1)),
        403
    );
    let read = bearer(TOKENS[0].1);
    let (_, _, metrics) = http_get_with(agent.http_port, "/metrics", &read).unwrap();
    for status in ["401", "403"] {
        let line = format!("plimsoll_http_requests_refused_total{{status=\"{status}\"}} 0\n");
        assert!(!metrics.contains(&line), "{metrics}");
    }
    assert!(TOKENS.iter().all(|(_, token)| !agent.log().contains(token)));
}

#[test]
fn without_a_token_to_read_with_reading_is_open() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    set_tokens(&agent, &[Role::Write]);
    agent.start_again();
    for Endpoint(method, path, needed) in ENDPOINTS {
        let is_open = needed.is_none_or(|needed| needed == Role::Read);
        let told = status(&agent, method, path, "");
        assert_eq!(is_refused(told), !is_open, "{method} {path}: {told}");
    }
}

#[test]
fn the_token_of_token_file_has_every_role_beside_the_others() {
    let service = Service::start();
    let mut agent = Agent::unstarted_guarded(&service, "the-token-of-old", "");
    set_tokens(&agent, &[Role::Read, Role::Write]);
    agent.start_again();
    for Endpoint(method, path, _) in ENDPOINTS {
        for token in ["the-token-of-old", "a-token-to-write"] {
            let told = status(&agent, method, path, &bearer(token));
            assert!(!is_refused(told), "{method} {path}: {told}");
        }
    }
    // One is taken out, and the other changed.
    let config = agent.config();
    let lines = config.lines().filter(|it| !it.starts_with("token_file"));
    agent.write_config(&lines.collect::<Vec<_>>().join("\n"));
    std::fs::write(agent.directory.path().join("read"), "another-to-read-with").unwrap();
    agent.process.as_ref().unwrap().signal("-HUP");
    let node = |token: &str| status(&agent, "GET", "/v1/node", &bearer(token));
    wait_for("the tokens are read anew", || {
        (node("another-to-read-with") == 200).then_some(())
    });
    assert_eq!(node("the-token-of-old"), 401);
    assert_eq!(node(TOKENS[0].1), 401);
    assert_eq!(node(TOKENS[2].1), 200);
}

#[test]
fn two_roles_do_not_share_a_token() {
    let service = Service::start();
    let agent = Agent::unstarted(&service, "");
    set_tokens(&agent, &[Role::Read, Role::Write]);
    std::fs::write(agent.directory.path().join("read"), TOKENS[2].1).unwrap();
    let told = agent.start_refused();
    let expected =
        "http.tokens.write_file: has the token of http.tokens.read_file, of another role";
    assert!(told.contains(expected), "{told}");
    assert!(!told.contains(TOKENS[2].1));
}

#[test]
fn moving_an_object_set_needs_the_role_write() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = member(&service, "node1", &format!("urls = [\"{}\"]", redis.url()));
    agent.write_config(&(agent.config() + "[placement]\ncluster = \"c\"\n"));
    set_tokens(&agent, &[Role::Observe, Role::Write]);
    agent.start_again();
    let ask = |body: &str, token: &str| {
        let head = bearer(token);
        http_post(agent.http_port, "/v1/placement", &head, body)
            .unwrap()
            .0
    };
    let [_, (_, observe), (_, write)] = TOKENS;
    for body in [
        r#"{"op": "move", "set": "=A", "node": "node1"}"#,
        r#"{"op": "forget", "id": "lb1#1"}"#,
    ] {
        assert_eq!(ask(body, observe), 403, "{body}");
        assert!(!is_refused(ask(body, write)), "{body}");
    }
    let join = r#"{"op": "join", "id": "lb1#1"}"#;
    assert!(!is_refused(ask(join, observe)));
}

#[test]
fn commands_and_peers_show_their_token() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    set_tokens(&agent, &[Role::Read]);
    agent.start_again();
    let url = format!("http://127.0.0.1:{}", agent.http_port);
    let file = agent.directory.path().join("read");
    let run = |words: &[&str], has_token: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(words);
        if has_token {
            command.arg("--token-file").arg(&file);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    };
    for words in [&["top", "--once", &url][..], &["doctor", "--agent", &url]] {
        let (with, without) = (run(words, true), run(words, false));
        assert!(!with.contains("status 401"), "{words:?}: {with}");
        assert!(without.contains("status 401"), "{words:?}: {without}");
    }
    let mut peer = Agent::unstarted(&service, "");
    let table = format!("[envoy]\npeers = [\"{url}\"]\n[agent_check]");
    peer.write_config(&peer.config().replace("[agent_check]", &table));
    peer.start_again();
    let asked = |result: &str| {
        let name = format!("plimsoll_peer_requests_total{{result=\"{result}\"}}");
        peer.count(&name)
    };
    wait_for("it is refused", || (asked("status") > 0.0).then_some(()));
    assert_eq!(asked("answered"), 0.0);
    let token = format!("[envoy]\ntoken_file = \"{}\"", file.display());
    peer.write_config(&peer.config().replace("[envoy]", &token));
    assert_eq!(peer.reload(), "applied");
    wait_for("it is answered", || (asked("answered") > 0.0).then_some(()));
}
