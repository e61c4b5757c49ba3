//! TLS of the HTTP servers and of those that ask them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::json;

use crate::support::certificates::{Authority, replace};
use crate::support::cluster::Cluster;
use crate::support::{Agent, Process, Service, wait_for};

/// An agent that speaks TLS to clients of the authority.
fn guarded(service: &Service, authority: &Authority) -> Agent {
    let agent = Agent::start(service, "");
    authority.guard(&agent);
    agent
}

fn plimsoll(words: &[&str], more: &[String]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(words)
        .args(more)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_answered() {
    let (service, authority, stranger) = (Service::start(), Authority::new(), Authority::new());
    let agent = guarded(&service, &authority);
    let port = agent.http_port;
    assert_eq!(authority.get(port, "/v1/node", Some(&authority)), Ok(200));
    assert!(authority.get(port, "/v1/node", None).is_err());
    assert!(authority.get(port, "/v1/node", Some(&stranger)).is_err());
    let told = stranger
        .get(port, "/v1/node", Some(&authority))
        .unwrap_err();
    assert!(told.contains("certificate"), "{told}");
    assert_eq!(agent.get("/v1/node"), None, "it answers in clear text");

    let url = format!("https://127.0.0.1:{port}");
    for words in [&["top", "--once", &url][..], &["doctor", "--agent", &url]] {
        let (_, said) = plimsoll(words, &authority.arguments());
        assert!(!said.contains("TLS"), "{words:?}: {said}");
        let (is_fine, said) = plimsoll(words, &stranger.arguments());
        assert!(
            !is_fine && said.contains("invalid peer certificate"),
            "{words:?}: {said}"
        );
        let (is_fine, said) = plimsoll(words, &[]);
        assert!(
            !is_fine && said.contains("invalid peer certificate"),
            "{words:?}: {said}"
        );
    }
    // Without [http.tls] it is clear text again.
    let config = agent.config();
    let (before, _) = config.split_once("[http.tls]").unwrap();
    agent.write_config(before);
    agent.process.as_ref().unwrap().signal("-HUP");
    wait_for("clear text", || agent.get("/readyz"));
    let refused = "plimsoll_http_connections_closed_total{reason=\"tls\"}";
    assert!(agent.metric(refused).unwrap() >= 4.0);
}

/// A connection that stays open, by `openssl s_client`.
struct Kept(Process);

impl Kept {
    fn open(port: u16, authority: &Authority) -> Self {
        let child: Child = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_quiet", "-connect"])
            .arg(format!("127.0.0.1:{port}"))
            .arg("-CAfile")
            .arg(authority.file("ca.pem"))
            .arg("-cert")
            .arg(authority.file("client.pem"))
            .arg("-key")
            .arg(authority.file("client.key"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        Kept(Process(child))
    }

    fn ask(&mut self) -> String {
        let child = &mut self.0.0;
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
        child.stdin.as_mut().unwrap().write_all(request).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            let mut buffer = [0; 1024];
            let length = child.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
            assert!(length > 0, "closed after {answer:?}");
            answer.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8(answer).unwrap()
    }
}

#[test]
fn changed_certificates_come_into_force_and_connections_go_on() {
    let (service, old, new) = (Service::start(), Authority::new(), Authority::new());
    let agent = guarded(&service, &old);
    let port = agent.http_port;
    let mut kept = Kept::open(port, &old);
    assert!(kept.ask().starts_with("HTTP/1.1 200"));

    // What cannot be used changes nothing, and is told once.
    std::fs::write(old.file("server.pem"), "no certificate").unwrap();
    let told = "server.pem: holds no PEM certificate";
    wait_for("it is told", || {
        assert_eq!(old.get(port, "/healthz", Some(&old)), Ok(200));
        agent.log().contains(told).then_some(())
    });
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(old.get(port, "/healthz", Some(&old)), Ok(200));
    assert_eq!(agent.log().matches(told).count(), 1);

    for name in ["server.key", "server.pem"] {
        replace(&old.file(name), &new.file(name));
    }
    wait_for("the new certificate", || {
        (new.get(port, "/healthz", Some(&old)) == Ok(200)).then_some(())
    });
    assert!(old.get(port, "/healthz", Some(&old)).is_err());
    replace(&old.file("ca.pem"), &new.file("ca.pem"));
    wait_for("the new authority of clients", || {
        (new.get(port, "/healthz", Some(&new)) == Ok(200)).then_some(())
    });
    assert!(new.get(port, "/healthz", Some(&old)).is_err());
    assert!(kept.ask().starts_with("HTTP/1.1 200"));
}

#[test]
fn clients_that_begin_no_handshake_keep_nobody_out() {
    let (service, authority) = (Service::start(), Authority::new());
    let agent = guarded(&service, &authority);
    let connect = || TcpStream::connect(("127.0.0.1", agent.http_port)).unwrap();
    let mut silent: Vec<_> = (0..600).map(|_| connect()).collect();
    // The begin of a handshake record, and no more of it.
    for stream in &mut silent {
        let _ = stream.write_all(&[22, 3, 1, 2, 0]);
    }
    let answer = authority.get(agent.http_port, "/healthz", Some(&authority));
    assert_eq!(answer, Ok(200));
    // The handshake has a timeout.
    for stream in silent.iter_mut().rev().take(3) {
        let limit = Some(Duration::from_secs(10));
        stream.set_read_timeout(limit).unwrap();
        let ended = stream.read(&mut [0]);
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock));
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_their_key() {
    let (service, authority, other) = (Service::start(), Authority::new(), Authority::new());
    let agent = Agent::unstarted(&service, "");
    let plain = agent.config();
    let named = |name: &str| authority.file(name).display().to_string();
    let foreign = other.file("server.key").display().to_string();
    for (what, with, told) in [
        (
            named("server.pem"),
            "/none.pem".into(),
            "http.tls.certificate_file: /none.pem: No such",
        ),
        (
            named("server.pem"),
            named("server.key"),
            "holds no PEM certificate",
        ),
        (
            named("server.key"),
            named("server.pem"),
            "holds no PEM private key",
        ),
        (named("server.key"), foreign, "http.tls.key_file: "),
        (
            named("ca.pem"),
            named("ca.key"),
            "http.tls.client_ca_file: ",
        ),
    ] {
        let table = authority.server_table().replace(&what, &with);
        agent.write_config(&(plain.clone() + "\n" + &table));
        let said = agent.start_refused();
        assert!(said.contains(told), "{told}: {said}");
    }
    let said = agent.start_refused();
    assert!(
        said.contains("agent.toml:") && said.contains("ca.key"),
        "{said}"
    );
    let files = [("certificate_file", "client.pem")];
    let table = format!("\n[tls]\n{}", authority.keys(&files));
    agent.write_config(&(plain.clone() + &table));
    assert!(
        agent
            .start_refused()
            .contains("tls.certificate_file: needs key_file")
    );
}

#[test]
fn gathers_agents_and_their_peers_speak_tls() {
    let authority = Authority::new();
    let mut cluster = Cluster::start();
    for agent in &cluster.agents {
        authority.guard(agent);
    }
    let question = json!({"query": "items", "parameters": [0], "order_by": [{"column": "size", "descending": true}, {"column": "name"}]});
    let (status, lines) = cluster.gather.ask(&question);
    assert_eq!(status, 502, "in clear text: {lines:?}");
    let tables = cluster.tables("");
    let tables = tables.replace("\"127.0.0.1:", "\"https://127.0.0.1:");
    let tables = tables.replace("\"localhost:", "\"https://localhost:");
    cluster
        .gather
        .configure(&(tables.clone() + &authority.client_table()));
    cluster.gather.start_again();
    let rows = cluster.whole(question.clone()).len();
    assert!(rows > 10, "{rows}");

    // One agent asks the other one's partition, and what it does.
    let [inner, outer] = [0, 1].map(|at: usize| &cluster.agents[at]);
    let port = inner.http_port;
    let partition = format!(
        "\n[[partition]]\nname = \"passed\"\nurl = \"https://localhost:{port}/v1/partition-query\"\n\
         token_file = \"DIR/token\"\n[partition.queries]\none = \"one\"\n\
         [envoy]\npeers = [\"https://127.0.0.1:{port}\"]\n{}",
        authority.client_table()
    );
    let config = outer.config();
    // The inner agent has it by this name.
    let partition = partition.replace("\"passed\"", "\"p2\"");
    outer.write_config(&(config + &partition));
    outer.process.as_ref().unwrap().signal("-HUP");
    let tables = tables.replace("nodes = [\"node1\"]", "nodes = [\"node2\"]");
    cluster
        .gather
        .configure(&(tables + &authority.client_table()));
    cluster.gather.start_again();
    wait_for("an answer through both", || {
        let question = json!({"query": "one", "partitions": ["p2"]});
        (cluster.gather.ask(&question).0 == 200).then_some(())
    });
    wait_for("the peer answers", || {
        let output = Command::new("curl")
            .args(["-s", "--cacert"])
            .arg(authority.file("ca.pem"))
            .arg("--cert")
            .arg(authority.file("client.pem"))
            .arg("--key")
            .arg(authority.file("client.key"))
            .arg(format!("https://127.0.0.1:{}/metrics", outer.http_port))
            .output()
            .unwrap();
        let metrics = String::from_utf8(output.stdout).unwrap();
        let answered = metrics.lines().find_map(|line| {
            line.strip_prefix("plimsoll_peer_requests_total{result=\"answered\"} ")
        });
        answered.filter(|count| *count != "0").map(drop)
    });
}

#[test]
fn a_gather_speaks_tls_and_is_asked_for_its_health() {
    let authority = Authority::new();
    let tables = "[nodes]\na = \"127.0.0.1:1\"\n[[partition]]\nname = \"p\"\nnodes = [\"a\"]\n";
    let gather = crate::support::gather::Gather::start(tables);
    let text = format!(
        "{tables}{}{}",
        authority.server_table(),
        authority.client_table()
    );
    gather.configure(&text);
    gather.process.as_ref().unwrap().signal("-HUP");
    authority.wait_tls(gather.port);
    assert_eq!(gather.said("--check-health"), "");
    assert!(authority.get(gather.port, "/readyz", None).is_err());
    gather.configure(&format!("{tables}{}", authority.server_table()));
    assert!(gather.said("--check-health").contains("UnknownIssuer"));
}
