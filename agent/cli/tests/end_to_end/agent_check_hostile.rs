//! Clients that mean no good, or know no better.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::support::{Agent, Service, connect_from, wait_for};

const ANSWER: &str = "up 50% maxconn:40 # p95 ";

/// A proxy that names itself, so that it is told apart from the mob on the same address.
const FAIR: &str = "queries/node1 lb1\n";

fn assert_answers(agent: &Agent) {
    let answer = agent.check(FAIR).unwrap();
    // On a busy machine the source may answer late, which lowers the bound.
    let is_answer = answer.starts_with("up ") && answer.contains("% maxconn:");
    assert!(is_answer, "{answer:?}");
}

#[test]
fn answers_every_form_of_line() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    for line in [
        "queries/node1\n",
        "queries/node1\r\n",
        "stocks\n",
        "stocks",
        "",
    ] {
        // The lease of the identity before is waited for, so that nobody shares.
        wait_for("no proxy", || {
            agent
                .metric("plimsoll_proxies{service=\"stocks\"}")
                .filter(|n| *n == 0.0)
        });
        let answer = agent.check(line).unwrap();
        assert!(
            answer.starts_with(ANSWER) && answer.ends_with('\n'),
            "{line:?} -> {answer:?}"
        );
    }
}

#[test]
fn what_is_not_understood_changes_nothing_and_is_counted() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let counted = |reason: &str| {
        agent
            .metric(&format!(
                "plimsoll_agent_check_rejected_total{{reason=\"{reason}\"}}"
            ))
            .unwrap_or(0.0)
    };
    assert_eq!(agent.check("queries/node9\n").unwrap(), "\n");
    assert_eq!(counted("unknown_identity"), 1.0);
    assert_eq!(agent.check("one two three\n").unwrap(), "\n");
    assert_eq!(agent.check("\u{1b}[2J\n").unwrap(), "\n");
    assert_eq!(counted("bad_line"), 2.0);
    assert!(!matches!(agent.check(&"x".repeat(300)), Ok(answer) if !answer.is_empty()));
    assert_eq!(counted("line_too_long"), 1.0);
    assert_eq!(
        agent.metric("plimsoll_proxies{service=\"stocks\"}"),
        Some(0.0)
    );
    assert_answers(&agent);
}

/// The answer to a line from this address.
fn check_from(agent: &Agent, address: &str, line: &str) -> String {
    let mut stream = connect_from(address, agent.check_port);
    let _ = stream.write_all(line.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn seventy_names_of_one_address_do_not_take_the_bound_from_a_proxy() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let jobs = || -> u32 {
        let words = agent.check(FAIR).unwrap();
        let (_, rest) = words.split_once("maxconn:").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let round = || {
        for n in 0..70 {
            check_from(&agent, "127.0.0.2", &format!("queries/node1 x{n}\n"));
        }
    };
    jobs();
    // As a probe of the port does.
    check_from(&agent, "127.0.0.2", "");
    round();
    assert_eq!(jobs(), 40, "who asks once takes no share");
    for n in 0..70 {
        for _ in 0..2 {
            check_from(&agent, "127.0.0.2", &format!("queries/node1 x{n}\n"));
        }
    }
    let shares = wait_for("shares", || {
        agent.metric("plimsoll_proxies{service=\"stocks\"}")
    });
    assert!((2.0..=9.0).contains(&shares), "{shares}");
    assert!(jobs() >= 4, "{}", jobs());
    assert!(agent.count("plimsoll_agent_check_rejected_total{reason=\"proxy_limit\"}") >= 1.0);
}

#[test]
fn who_is_not_on_the_list_gets_no_answer_and_is_counted() {
    let service = Service::start();
    let agent = Agent::start(&service, "allow = [\"127.0.0.1\", \"198.51.100.0/24\"]");
    assert_answers(&agent);
    assert_eq!(check_from(&agent, "127.0.0.2", "queries/node1 lb2\n"), "");
    let rejected = agent.count("plimsoll_agent_check_rejected_total{reason=\"not_allowed\"}");
    assert_eq!(rejected, 1.0);
}

#[test]
fn megabytes_are_not_taken() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let mut stream = TcpStream::connect(("127.0.0.1", agent.check_port)).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let flood = vec![b'x'; 64 << 20];
    assert!(
        stream.write_all(&flood).is_err(),
        "the connection is closed on the client"
    );
    assert_answers(&agent);
}

#[test]
fn ten_thousand_idle_connections_do_not_lock_a_proxy_out() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let pid = agent.process.as_ref().unwrap().0.id();
    let mut idle = Vec::new();
    for n in 0..10_000 {
        match TcpStream::connect(("127.0.0.1", agent.check_port)) {
            Ok(stream) => idle.push(stream),
            // Out of file descriptors on this side: that many it is.
            Err(_) => break,
        }
        if n % 1000 == 0 {
            assert_answers(&agent);
        }
    }
    assert!(idle.len() > 500, "{} connections", idle.len());
    assert_answers(&agent);
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    assert!(open < 256 + 32, "{open} files open");
    drop(idle);
    assert_answers(&agent);
}

#[test]
fn clients_that_never_read_cost_nothing_for_long() {
    let service = Service::start();
    let agent = Agent::start(&service, "max_connections = 8");
    let mut deaf = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(("127.0.0.1", agent.check_port)).unwrap();
        // A third sends a line, a third part of one, a third nothing; none reads.
        let _ = stream.write_all([&b"queries/node1\n"[..], b"quer", b""][n % 3]);
        deaf.push(stream);
    }
    for _ in 0..20 {
        assert_answers(&agent);
    }
    let rejected = agent.metric("plimsoll_agent_check_rejected_total{reason=\"connection_limit\"}");
    assert!(rejected.is_some_and(|n| n > 0.0), "{rejected:?}");
    drop(deaf);
}

#[test]
fn resets_in_any_moment_are_survived() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    for n in 0..300 {
        let mut stream = TcpStream::connect(("127.0.0.1", agent.check_port)).unwrap();
        if n % 2 == 0 {
            let _ = stream.write_all(b"queries/node1\n");
        }
        // Closing with the answer unread makes the kernel send a reset.
        drop(stream);
    }
    assert_answers(&agent);
    assert!(!agent.log().contains("panicked"), "{}", agent.log());
}
