//! Clients of the HTTP ports that would lock the others out.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::support::gather::Gather;
use crate::support::{Agent, Process, Service, connect_from, http_get, http_post, wait_for};

const MAX_RESIDENT: u64 = 64 << 20;

/// Writes until it is all taken, the other end has closed, or takes no more.
fn pour(port: u16, head: &str, filler: usize) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let limit = Some(Duration::from_millis(50));
    stream.set_write_timeout(limit).unwrap();
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&vec![b'x'; filler]);
    stream
}

fn assert_small(process: Option<&Process>) {
    let resident = process.unwrap().resident();
    assert!(resident < MAX_RESIDENT, "{} MiB", resident >> 20);
}

#[test]
fn unfinished_heads_take_no_memory() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let head = "GET /healthz HTTP/1.1\r\nhost: x\r\nx: ";
    let _open: Vec<_> = (0..512)
        .map(|_| pour(agent.http_port, head, 351_000))
        .collect();
    assert_eq!(agent.get("/healthz").unwrap().0, 200);
    assert_small(agent.process.as_ref());
}

#[test]
fn unfinished_bodies_take_no_memory() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let mut open = Vec::new();
    for path in ["/v3/discovery:endpoints", "/v1/partition-query"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            1 << 20
        );
        open.extend((0..150).map(|_| pour(agent.http_port, &head, (1 << 20) - 1)));
        let body = r#"{"resource_names":["stocks"]}"#;
        let (status, answer) =
            http_post(agent.http_port, "/v3/discovery:endpoints", "", body).unwrap();
        assert_eq!(status, 200, "{answer}");
    }
    assert_small(agent.process.as_ref());
}

#[test]
fn what_is_not_configured_takes_no_body() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    for path in ["/v1/observe", "/v1/placement", "/v1/partition-query"] {
        let mut stream = pour(
            agent.http_port,
            &format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"),
            0,
        );
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 404", "{path}");
    }
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let mut streams = ["", "GET /hea"].map(|text| pour(agent.http_port, text, 0));
    // One that was answered may be silent for longer.
    let mut kept = TcpStream::connect(("127.0.0.1", agent.http_port)).unwrap();
    let ask = |stream: &mut TcpStream| {
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 200"));
    };
    ask(&mut kept);
    for stream in &mut streams {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let ended = stream.read(&mut [0]);
        assert!(!matches!(&ended, Err(error) if error.kind() == ErrorKind::WouldBlock));
    }
    ask(&mut kept);
}

/// Ever so many connections that were silent, trickle a head, owe a body or were answered once, opened again
/// wherever they are closed, until `over`.
fn crowd(port: u16, post: &str, many: usize, over: &AtomicBool, ready: &AtomicBool) {
    let open = |n: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        let text = match n % 4 {
            0 => String::new(),
            1 => "GET /healthz HTTP/1.1\r\nhost: x\r\nx: ".into(),
            2 => format!("POST {post} HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n"),
            _ => "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".into(),
        };
        stream.write_all(text.as_bytes()).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut streams: Vec<_> = (0..many).map(open).collect();
    ready.store(true, Ordering::Release);
    while !over.load(Ordering::Acquire) {
        // It is no flood.
        let mut again = 50;
        for (n, stream) in streams.iter_mut().enumerate() {
            let mut buffer = [0; 512];
            let closed = match stream.as_mut() {
                Some(stream) => match stream.read(&mut buffer) {
                    Ok(length) => length == 0,
                    Err(error) => error.kind() != ErrorKind::WouldBlock,
                },
                None => true,
            };
            match stream.as_mut().filter(|_| !closed && n % 4 == 1) {
                Some(stream) => drop(stream.write(b"x")),
                None if closed && again > 0 => {
                    again -= 1;
                    *stream = open(n);
                }
                None => {}
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Fair requests beside the crowd: their status, and how long they took.
fn beside_a_crowd(port: u16, post: &str, fair: impl Fn() -> Vec<Option<u16>>) {
    let [over, ready] = [(); 2].map(|()| AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| crowd(port, post, 2_000, &over, &ready));
        let mut took = Vec::new();
        // Or the crowd would never end.
        let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the crowd is there", || {
                ready.load(Ordering::Acquire).then_some(())
            });
            for _ in 0..50 {
                let began = Instant::now();
                let answers = fair();
                assert!(answers.iter().all(|it| *it == Some(200)), "{answers:?}");
                took.push(began.elapsed() / answers.len() as u32);
            }
        }));
        over.store(true, Ordering::Release);
        took.sort();
        println!(
            "a fair request took {:?} at the median, {:?} at most",
            took.get(25),
            took.last()
        );
        answered.unwrap();
    });
}

#[test]
fn two_thousand_idle_or_trickling_connections_do_not_block_the_agent() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let port = agent.http_port;
    // Who waits for an answer is not idle.
    let mut waiting = TcpStream::connect(("127.0.0.1", port)).unwrap();
    waiting
        .write_all(b"GET /v1/ring?service=stocks&wait=30 HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    let discovery = "/v3/discovery:endpoints";
    beside_a_crowd(port, discovery, || {
        let body = r#"{"resource_names":["stocks"]}"#;
        let discovered = http_post(port, discovery, "", body);
        let mut answers = vec![discovered.map(|(status, _)| status)];
        let paths = ["/healthz", "/v1/node", "/v1/orca"];
        answers.extend(paths.map(|path| Some(http_get(port, path)?.0)));
        answers
    });
    waiting.set_nonblocking(true).unwrap();
    match waiting.read(&mut [0]) {
        // After its 30 s, on a busy machine.
        Ok(read) => assert_eq!(read, 1, "closed"),
        Err(waits) => assert_eq!(waits.kind(), ErrorKind::WouldBlock),
    }
    assert!(agent.count("plimsoll_http_connections_closed_total{reason=\"crowded\"}") > 0.0);
    assert_small(agent.process.as_ref());
}

#[test]
fn two_thousand_idle_or_trickling_connections_do_not_block_a_gather() {
    let gather = Gather::start(
        "[nodes]\na = \"127.0.0.1:9\"\n[[partition]]\nname = \"p\"\nnodes = [\"a\"]\n",
    );
    let port = gather.port;
    beside_a_crowd(port, "/v1/gather", || {
        vec![http_get(port, "/healthz").map(|(status, _)| status)]
    });
    assert_small(gather.process.as_ref());
}

#[test]
fn http_is_closed_to_who_is_not_on_the_list() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    let config = agent.config();
    agent.write_config(
        &config.replace("[http]", "[http]\nallow = [\"127.0.0.1/32\", \"fd00::/8\"]"),
    );
    agent.start_again();
    let from = |address: &str| {
        let mut stream = connect_from(address, agent.http_port);
        let _ = stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(from("127.0.0.1").starts_with("HTTP/1.0 200"));
    assert_eq!(from("127.0.0.2"), "");
    assert_eq!(
        agent.count("plimsoll_http_connections_closed_total{reason=\"not_allowed\"}"),
        1.0
    );
}
