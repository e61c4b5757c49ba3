//! Passwords, ACL users and certificates.

use crate::support::certificates::{Authority, replace};
use crate::support::exchange;
use crate::support::redis::{
    Redis, assert_undisturbed, documented_acl, member, started_by, wait_failure, wait_logged,
    wait_nodes,
};
use crate::support::{Agent, Service, free_port, wait_for};

/// An agent that comes as this user, if any, with this password.
fn visitor(service: &Service, redis: &Redis, node: &str, user: &str, password: &str) -> Agent {
    let user = match user {
        "" => String::new(),
        user => format!("user = \"{user}\"\n"),
    };
    let table = format!(
        "urls = [\"{}\"]\npassword_file = \"DIR/password\"\n{user}",
        redis.url()
    );
    let mut agent = member(service, node, &table);
    std::fs::write(agent.directory.path().join("password"), password).unwrap();
    agent.start_again();
    agent
}

fn as_admin(redis: &Redis, words: &[&str]) -> String {
    let mut all = vec!["--no-auth-warning", "-a", "secret"];
    all.extend(words);
    redis.cli(&all)
}

#[test]
fn a_wrong_password_is_reported_but_never_shown() {
    let (service, redis) = (Service::start(), Redis::start(&["--requirepass", "secret"]));
    let agent = visitor(&service, &redis, "node1", "", "mistaken");
    wait_logged(&agent, "see redis.user and redis.password_file");
    wait_failure(&agent);
    assert_undisturbed(&agent);
    assert!(!agent.log().contains("mistaken"));
    as_admin(&redis, &["CONFIG", "SET", "requirepass", "mistaken"]);
    wait_nodes(&agent, &["node1"]);
}

#[test]
fn the_documented_acl_rule_is_enough() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let rule = documented_acl("agents");
    let words: Vec<&str> = rule.split_whitespace().collect();
    assert_eq!(redis.cli(&words).trim(), "OK", "{rule}");
    let first = visitor(&service, &redis, "node1", "plimsoll", "PASSWORD");
    let mut second = visitor(&service, &redis, "node2", "plimsoll", "PASSWORD");
    wait_nodes(&first, &["node1", "node2"]);
    second.kill();
    wait_nodes(&first, &["node1"]);
    for agent in [&first, &second] {
        assert!(!agent.log().contains("Redis: "), "{}", agent.log());
    }
}

#[test]
fn a_permission_that_lacks_is_named() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let rule = documented_acl("agents");
    let words: Vec<&str> = rule.split_whitespace().collect();
    for (lacking, told) in [
        ("-role", "'role' command"),
        ("-function|load", "loading the function library: "),
        ("-fcall", "'fcall' command"),
        ("-hset", "plimsoll_report: "),
    ] {
        redis.cli(&["FUNCTION", "FLUSH"]);
        redis.cli(&words);
        redis.cli(&["ACL", "SETUSER", "plimsoll", lacking]);
        let agent = visitor(&service, &redis, "node1", "plimsoll", "PASSWORD");
        wait_logged(&agent, told);
        let log = agent.log();
        assert!(log.contains("the user lacks a right"), "{log}");
        redis.cli(&words);
        wait_nodes(&agent, &["node1"]);
    }
    redis.cli(&["ACL", "SETUSER", "plimsoll", "resetkeys", "~other:*"]);
    let agent = visitor(&service, &redis, "node2", "plimsoll", "PASSWORD");
    // Before Redis 7.2 "one of the keys used as arguments", then "a key".
    wait_logged(&agent, "permissions to access ");
}

/// A Redis, and its port with TLS.
fn speaking_tls(authority: &Authority, auth_clients: &str) -> (Redis, u16) {
    let mut redis = Redis::unstarted(&[]);
    let tls = free_port();
    let file = |name: &str| authority.file(name).display().to_string();
    let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let words = format!(
        "--port {} --bind 127.0.0.1 127.0.0.2 --tls-port {tls} --tls-auth-clients {auth_clients} \
         --tls-cert-file {cert} --tls-key-file {key} --tls-ca-cert-file {ca}",
        redis.port
    );
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    redis.spawn(&words);
    wait_for("redis answers", || {
        redis.cli(&["PING"]).contains("PONG").then_some(())
    });
    (redis, tls)
}

#[test]
fn tls_with_a_private_authority() {
    let (service, authority) = (Service::start(), Authority::new());
    let (redis, tls) = speaking_tls(&authority, "no");
    let ca = authority.file("ca.pem").display().to_string();
    let by_tls = format!("urls = [\"rediss://127.0.0.1:{tls}\"]\ntimeout = \"2s\"\n");

    let trusting = started_by(&service, "node1", &format!("{by_tls}ca_file = \"{ca}\""));
    wait_nodes(&trusting, &["node1"]);
    exchange::wait_granted(&trusting);
    assert!(redis.cli(&["CLIENT", "LIST"]).contains("name="));

    // The system's authorities do not know it.
    let wary = started_by(&service, "node2", &by_tls);
    wait_logged(
        &wary,
        "its certificate is not signed by a trusted CA, see redis.ca_file",
    );
    assert_undisturbed(&wary);
    let (status, answer) = exchange::ask(&wary, &exchange::one("envoy1/1", 1.0));
    let told = answer["problem"].as_str().unwrap_or_default();
    assert!(
        status == 503 && told.contains("see redis.ca_file"),
        "{told}"
    );
    // A certificate of another name.
    let named = by_tls.replace("127.0.0.1", "127.0.0.2");
    let named = started_by(&service, "node3", &format!("{named}ca_file = \"{ca}\""));
    wait_logged(&named, "not valid for name");
    // TLS to a port that has none.
    let plain = by_tls.replace(&tls.to_string(), &redis.port.to_string());
    let plain = started_by(&service, "node4", &format!("{plain}ca_file = \"{ca}\""));
    wait_failure(&plain);
    assert_undisturbed(&plain);
}

#[test]
fn a_certificate_is_shown_to_a_redis_that_asks_for_one() {
    let (service, authority, stranger) = (Service::start(), Authority::new(), Authority::new());
    let (_redis, tls) = speaking_tls(&authority, "yes");
    let by_tls = format!("urls = [\"rediss://127.0.0.1:{tls}\"]\ntimeout = \"2s\"\n");
    let by_tls = by_tls + &authority.keys(&[("ca_file", "ca.pem")]);
    let own = [
        ("certificate_file", "client.pem"),
        ("key_file", "client.key"),
    ];

    let known = started_by(&service, "node1", &(by_tls.clone() + &authority.keys(&own)));
    wait_nodes(&known, &["node1"]);
    let without = started_by(&service, "node2", &by_tls);
    wait_logged(
        &without,
        "it requires a client certificate, see redis.certificate_file",
    );
    assert_undisturbed(&without);

    // Changed files count without a reload.
    let other = started_by(&service, "node3", &(by_tls + &stranger.keys(&own)));
    wait_failure(&other);
    for name in ["client.key", "client.pem"] {
        replace(&stranger.file(name), &authority.file(name));
    }
    wait_nodes(&other, &["node1", "node3"]);
}

#[test]
fn an_authority_that_cannot_be_is_refused_at_the_start() {
    let service = Service::start();
    for (table, told) in [
        ("ca_file = \"DIR/none.pem\"", "none.pem: No such file"),
        ("ca_file = \"DIR/agent.toml\"", "holds no PEM certificate"),
    ] {
        let table = format!("urls = [\"rediss://127.0.0.1:1\"]\n{table}");
        let said = member(&service, "node1", &table).start_refused();
        assert!(
            said.contains("redis.ca_file") && said.contains(told),
            "{said}"
        );
    }
    let table = "urls = [\"redis://127.0.0.1:1\"]\nca_file = \"DIR/agent.toml\"";
    let said = member(&service, "node1", table).start_refused();
    assert!(said.contains("redis.ca_file"), "{said}");
}
