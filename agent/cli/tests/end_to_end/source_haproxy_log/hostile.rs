//! Senders other than HAProxy.

use super::*;

#[test]
fn hostile_datagrams_are_counted_and_change_nothing() {
    let port = free_port();
    let agent = listening(&format!("udp://127.0.0.1:{port}"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |line: &[u8]| client.send_to(line, ("127.0.0.1", port)).unwrap();
    let words = agent.check("stocks\n").unwrap();
    let noise: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let flawed = [
        "",
        "plimsoll",
        "plimsoll queries/node1",
        "plimsoll queries/node1 0 0 -2 0 200 -- -",
        "plimsoll queries/node1 0 0 99999999999 0 200 -- -",
        "plimsoll queries/node1 0 0 99999999999999999999999 0 200 -- -",
        "plimsoll queries/node1 0 0 NaN 0 200 -- -",
        "plimsoll queries/node1 0 0 1 0 200 -- -80",
        "plimsoll queries/node1 0 0 1 0 200 -- 1e300",
        "plimsoll queries/node1 0 0 1 0 200 -- inf",
        "plimsoll queries/node1 0 0 1 0 200 ?? -",
    ];
    for line in flawed {
        send(line.as_bytes());
    }
    send(&noise);
    send(&vec![b'x'; 8193]);
    send(&[GOOD.as_bytes(), &vec![b' '; 60_000]].concat());
    send(b"plimsoll queries/node2 0 0 1 0 200 -- -");
    wait_lines(
        &agent,
        &[
            ("malformed", flawed.len() as f64 + 1.0),
            ("oversized", 2.0),
            ("other_node", 1.0),
            ("finished", 0.0),
        ],
    );
    assert_eq!(
        agent.check("stocks\n").unwrap().split(" #").next(),
        words.split(" #").next()
    );
    send(GOOD.as_bytes());
    send(b"plimsoll queries/node1 0 0 -1 -1 504 sH -");
    send(b"plimsoll queries/node1 50 -1 -1 -1 503 sQ -");
    wait_lines(
        &agent,
        &[("finished", 1.0), ("failed", 1.0), ("refused", 1.0)],
    );
    assert!(!agent.log().contains("panicked"), "{}", agent.log());
}

#[test]
fn a_line_without_end_is_skipped_up_to_the_next() {
    let port = free_port();
    let agent = listening(&format!("tcp://127.0.0.1:{port}"));
    let mut stream = wait_for("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    stream.set_nodelay(true).unwrap();
    stream.write_all(&vec![b'x'; 5 << 20]).unwrap();
    wait_lines(&agent, &[("oversized", 1.0)]);
    stream.write_all(b" the rest\n").unwrap();
    // A line in two parts, one that is as long as can be, and one of noise.
    stream.write_all(&GOOD.as_bytes()[..40]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    stream.write_all(&GOOD.as_bytes()[40..]).unwrap();
    let padded = format!("{:<8192}\n", GOOD.trim_end());
    stream.write_all(padded.as_bytes()).unwrap();
    stream.write_all(b"\x00\xff\xfe plimsoll\n").unwrap();
    wait_lines(
        &agent,
        &[("finished", 2.0), ("malformed", 1.0), ("oversized", 1.0)],
    );
    // What breaks off is no line.
    stream.write_all(GOOD.trim_end().as_bytes()).unwrap();
    drop(stream);
    let mut next = TcpStream::connect(("127.0.0.1", port)).unwrap();
    next.write_all(GOOD.as_bytes()).unwrap();
    wait_lines(&agent, &[("finished", 3.0), ("malformed", 1.0)]);
}

#[test]
fn idle_connections_do_not_lock_haproxy_out() {
    let port = free_port();
    let agent = listening(&format!("tcp://127.0.0.1:{port}"));
    let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
    let mut haproxy = wait_for("it listens", connect);
    haproxy.write_all(GOOD.as_bytes()).unwrap();
    wait_lines(&agent, &[("finished", 1.0)]);

    let mut idle: Vec<_> = (0..300).map(|_| connect().unwrap()).collect();
    for (n, stream) in idle.iter_mut().enumerate() {
        // Those closed already cannot be written to; a third says something that is no line.
        if n % 3 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
        }
    }
    haproxy.write_all(GOOD.as_bytes()).unwrap();
    wait_lines(&agent, &[("finished", 2.0)]);
    let mut late = connect().unwrap();
    late.write_all(GOOD.as_bytes()).unwrap();
    wait_lines(&agent, &[("finished", 3.0)]);

    let closed = agent.count("plimsoll_source_connections_closed_total{service=\"stocks\"}");
    assert!((200.0..=300.0).contains(&closed), "{closed}");
    assert!(agent.log().contains("log connections"), "{}", agent.log());
    let pid = agent.process.as_ref().unwrap().0.id();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    assert!(open < 64 + 40, "{open} files open");
    drop(idle);
}
