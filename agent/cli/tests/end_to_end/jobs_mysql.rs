//! Jobs from a real MariaDB.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixListener,
    thread,
};

use crate::support::databases::*;
use crate::support::{Service, wait_for};
use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;

fn by_port(server: &MariaDb) -> String {
    format!(
        "kind = \"mysql\"\naddress = \"127.0.0.1:{}\"\nuser = \"plimsoll\"\npassword_file = PASSWORD",
        server.port
    )
}

#[test]
fn clients_at_work_are_jobs() {
    let (service, server) = (Service::start(), MariaDb::start());
    let mut agent = unstarted(&service, &by_port(&server));
    agent.start_again();
    // Its own question is at work, too.
    wait_jobs(&agent, Some(0.0));
    let clients = server.busy(3);
    wait_jobs(&agent, Some(3.0));
    assert_eq!(agent.metric("plimsoll_jobs{service=\"stocks\"}"), Some(3.0));

    // By the socket, and without a password.
    let by_socket = format!(
        "kind = \"mysql\"\naddress = \"unix://{}\"\nuser = \"{}\"",
        server.socket().display(),
        whoami()
    );
    set_jobs(&agent, &by_socket);
    assert_eq!(agent.reload(), "applied");
    wait_for("the other login", || {
        let query = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'plimsoll'";
        (server.sql(query).trim() == "0").then_some(())
    });
    wait_jobs(&agent, Some(3.0));
    server.end_busy();
    wait_jobs(&agent, Some(0.0));
    drop(clients);
    let own = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}'",
        whoami()
    );
    assert_eq!(server.sql(&own).trim(), "1", "one connection is kept");
}

#[test]
fn a_server_that_is_killed_comes_back_by_itself() {
    let (service, mut server) = (Service::start(), MariaDb::start());
    let mut agent = unstarted(&service, &by_port(&server));
    agent.start_again();
    wait_jobs(&agent, Some(0.0));
    server.kill();
    wait_jobs(&agent, None);
    assert!(failures(&agent) >= 1.0);
    wait_logged(&agent, "cannot connect: Connection refused");
    assert_serving(&agent);
    server.start_again();
    wait_jobs(&agent, Some(0.0));
    wait_logged(&agent, "jobs are known again");
}

#[test]
fn a_rejected_login_names_the_keys_to_check() {
    let (service, server) = (Service::start(), MariaDb::start());
    let mut agent = unstarted(&service, &by_port(&server));
    std::fs::write(password_file(&agent), "wrong").unwrap();
    agent.start_again();
    wait_logged(
        &agent,
        "user \"plimsoll\" is rejected, see jobs.user and jobs.password_file: Access denied",
    );
    assert_serving(&agent);
    assert!(!agent.log().contains("wrong"), "{}", agent.log());
    std::fs::write(password_file(&agent), PASSWORD).unwrap();
    assert_eq!(agent.reload(), "applied");
    wait_jobs(&agent, Some(0.0));

    // A way to log in that the agent does not know.
    server.sql("INSTALL SONAME 'auth_ed25519'");
    server.sql("CREATE USER other@'127.0.0.1' IDENTIFIED VIA ed25519 USING PASSWORD('x')");
    set_jobs(&agent, &by_port(&server).replace("plimsoll", "other"));
    assert_eq!(agent.reload(), "applied");
    wait_logged(
        &agent,
        "user \"other\" requires authentication by \"client_ed25519\"",
    );
    assert_serving(&agent);
}

/// Debian has no MySQL 8: as its default way to log in is documented. `cached`: the server has seen the
/// password before.
fn as_mysql_8(mut agent: impl Read + Write, cached: bool) {
    let hear = |agent: &mut dyn Read| {
        let mut head = [0; 4];
        agent.read_exact(&mut head).ok()?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut body = vec![0; length as usize];
        agent.read_exact(&mut body).ok()?;
        Some(body)
    };
    let tell = |agent: &mut dyn Write, bytes: &[u8]| agent.write_all(bytes).unwrap();
    tell(&mut agent, &hello("caching_sha2_password", CAPABLE));
    let login = hear(&mut agent).unwrap();
    let scrambled = scramble_sha256(b"abcdefghijklmnopqrst", PASSWORD.as_bytes()).unwrap();
    assert!(login.windows(32).any(|part| part == scrambled), "{login:?}");
    let ok = b"\0\0\0\x02\0\0\0";
    if cached {
        tell(&mut agent, &packet(2, b"\x01\x03"));
        tell(&mut agent, &packet(3, ok));
    } else {
        tell(&mut agent, &packet(2, b"\x01\x04"));
        let password = hear(&mut agent).unwrap();
        assert_eq!(password, format!("{PASSWORD}\0").as_bytes());
        tell(&mut agent, &packet(4, ok));
    }
    while hear(&mut agent).is_some() {
        let answer: [&[u8]; 6] = [
            &[2],
            b"a",
            b"b",
            b"\xfe\0\0\0\0",
            b"\x0fThreads_running\x015",
            b"\xfe\0\0\0\0",
        ];
        for (sequence, body) in (1..).zip(answer) {
            tell(&mut agent, &packet(sequence, body));
        }
    }
}

#[test]
fn as_mysql_8_lets_in() {
    let service = Service::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (by_port, by_socket) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        UnixListener::bind(&path).unwrap(),
    );
    let port = by_port.local_addr().unwrap().port();
    thread::spawn(move || as_mysql_8(by_port.accept().unwrap().0, true));
    thread::spawn(move || as_mysql_8(by_socket.accept().unwrap().0, false));
    for address in [
        format!("127.0.0.1:{port}"),
        format!("unix://{}", path.display()),
    ] {
        let table = format!(
            "kind = \"mysql\"\naddress = \"{address}\"\nuser = \"plimsoll\"\npassword_file = PASSWORD"
        );
        let mut agent = unstarted(&service, &table);
        agent.start_again();
        wait_jobs(&agent, Some(4.0));
    }
}
