//! Malformed answers of a service behind a partition, and the end of its connections.

use crate::support::lines;
use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use crate::support::lines::{QUERY, problem};
use crate::support::stand_in::{HEAD, StandIn, Then, read_request};
use crate::support::{Agent, Service, wait_for};
use serde_json::{Value, json};

struct Node {
    agent: Agent,
    _service: Service,
}

/// A partition `p` whose service is at this port.
fn node(port: u16) -> Node {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    let config = agent.config();
    agent.write_config(&format!(
        "{config}[[partition]]\nname = \"p\"\nurl = \"http://127.0.0.1:{port}/rows?of=p\"\n\
         [partition.queries]\nq = \"query\"\n"
    ));
    agent.start_again();
    Node {
        agent,
        _service: service,
    }
}

fn start() -> (StandIn, Node) {
    let stand_in = StandIn::start();
    let node = node(stand_in.port);
    (stand_in, node)
}

fn question(limit: Option<u64>, deadline: f64) -> Value {
    json!({"partition": "p", "query": "q", "limit": limit, "deadline_seconds": deadline})
}

impl Node {
    fn ask(&self, question: &Value) -> (u16, Vec<Value>) {
        lines::ask(self.agent.http_port, QUERY, "", question)
    }

    /// A question whose answer nobody reads.
    fn begin(&self, question: &Value) -> TcpStream {
        lines::begin(self.agent.http_port, QUERY, "", question)
    }

    fn ended(&self, state: &str) -> f64 {
        let labels = format!("{{partition=\"p\",state=\"{state}\"}}");
        self.agent
            .count(&format!("plimsoll_partition_queries_total{labels}"))
    }

    fn logins(&self) -> f64 {
        self.agent
            .count("plimsoll_partition_logins_total{partition=\"p\",result=\"open\"}")
    }
}

#[test]
fn malformed_answers_of_a_service_count_as_refused_or_down() {
    let (stand_in, node) = start();
    let with = |rows: &str| format!("{HEAD}{{\"columns\":[\"id\"]}}\n{rows}");
    let long = "x".repeat(3 << 20);
    let wide: Vec<String> = (0..101).map(|at| format!("c{at}")).collect();
    let refusal = |status: u16| {
        format!(
            "HTTP/1.1 {status} Oh\r\n\r\n{{\"error\":{{\"state\":\"refused\",\"problem\":\"why not\"}}}}"
        )
    };
    // Where a row came before the fault the status may be there already.
    let cases: Vec<(Vec<u8>, u16, &str)> = vec![
        (
            format!("{HEAD}{{\"columns\":{}}}\n[1]\n", json!(wide)).into(),
            422,
            "101 columns: must be 1 to 100",
        ),
        (
            format!("{HEAD}{{\"columns\":[]}}\n[]\n").into(),
            422,
            "0 columns",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":2}}\n").into(),
            502,
            "1 rows arrived of 2",
        ),
        (
            with("{\"end\":{\"rows\":0}}\n{\"end\":{\"rows\":0}}\n").into(),
            422,
            "more after its end",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":1}}\n[2]\n").into(),
            422,
            "more after its end",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":1}}").into(),
            422,
            "ends within a line",
        ),
        (with("[1]\n[2").into(), 422, "ends within a line"),
        (with("[1]\n").into(), 502, "broke off"),
        (with("").into(), 502, "broke off"),
        (HEAD.into(), 502, "broke off before its first row"),
        (with("[1\n").into(), 422, "cannot be read"),
        (with("[1,2]\n").into(), 422, "cannot be read"),
        (with("[]\n").into(), 422, "cannot be read"),
        (
            with(&format!("{}\n", "[".repeat(500_000))).into(),
            422,
            "cannot be read",
        ),
        (
            [with("[\"").as_bytes(), b"\xff\"]\n"].concat(),
            422,
            "no UTF-8",
        ),
        (with("\n").into(), 422, "neither a row nor its end"),
        (with("hello\n").into(), 422, "neither a row nor its end"),
        (
            with("{\"end\":{\"rows\":-1}}\n").into(),
            422,
            "neither a row nor its end",
        ),
        (
            with("{\"columns\":[\"id\"]}\n").into(),
            422,
            "neither a row nor its end",
        ),
        (
            with(&format!("[\"{long}\"]\n")).into(),
            422,
            "more than 1048576 bytes",
        ),
        (
            with(&format!("[1]\n[\"{long}\"]\n")).into(),
            422,
            "more than 1048576 bytes",
        ),
        (format!("{HEAD}{long}").into(), 422, "too long"),
        (
            format!("{HEAD}[1]\n").into(),
            422,
            "does not begin with its columns",
        ),
        (
            with("{\"error\":{\"state\":\"refused\",\"problem\":\"no such table\"}}\n").into(),
            422,
            "no such table",
        ),
        (
            with("[1]\n{\"error\":{\"state\":\"down\",\"problem\":\"it crashed\"}}\n").into(),
            502,
            "it crashed",
        ),
        (
            with("{\"error\":{\"state\":\"late\",\"problem\":\"\"}}\n").into(),
            504,
            "the deadline passed",
        ),
        (
            "HTTP/1.1 500 Oh\r\n\r\nno JSON".into(),
            502,
            "answers with status 500",
        ),
        (
            format!("HTTP/1.1 500 Oh\r\n\r\n{long}").into(),
            502,
            "answers with status 500",
        ),
        (
            "HTTP/1.1 301 Oh\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".into(),
            502,
            "answers with status 301",
        ),
        (refusal(422).into(), 422, "HTTP service: why not"),
        (refusal(404).into(), 422, "HTTP service: why not"),
        // So that another node is asked.
        (refusal(429).into(), 429, "HTTP service: why not"),
        ("SSH-2.0-OpenSSH\r\n\r\n".into(), 502, "HTTP service: "),
        (
            format!("HTTP/1.1 200 OK\r\nx: {long}\r\n\r\n").into(),
            502,
            "HTTP service: ",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1f\r\n{\"col".into(),
            502,
            "broke off",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".into(),
            502,
            "broke off",
        ),
        ("".into(), 502, "HTTP service: "),
    ];
    for (text, wanted, said) in cases {
        let shown = String::from_utf8_lossy(&text[..text.len().min(150)]).into_owned();
        let has_rows = shown.contains("}\n[1]\n");
        stand_in.say(text, Then::Close);
        let asked = stand_in.asked();
        let (status, lines) = node.ask(&question(None, 20.0));
        assert!(
            status == wanted || (status == 200 && has_rows),
            "{shown}: {status} {lines:?}"
        );
        let error = &lines.last().unwrap()["error"];
        let state = match wanted {
            502 => "down",
            504 => "late",
            _ => "refused",
        };
        let problem = problem(&lines);
        assert_eq!(error["state"], json!(state), "{shown}: {problem}");
        assert!(problem.contains(said), "{shown}: {problem}");
        // What a new connection said is not asked for again.
        assert_eq!(stand_in.asked() - asked, 1, "{shown}");
    }
    stand_in.wait_closed();
}

#[test]
fn a_service_that_stalls_is_late_and_left() {
    let (stand_in, node) = start();
    let begun = format!("{HEAD}{{\"columns\":[\"id\"]}}\n");
    for text in [
        "",
        "HTTP/1.1 200 OK\r\nx: y",
        HEAD,
        &begun,
        &format!("{begun}[1]\n"),
        &format!("{begun}[1]\n[2"),
        &format!("{begun}[1]\n{{\"end\":{{\"rows\":1}}}}\n"),
        "HTTP/1.1 422 Oh\r\n\r\n{\"error\":",
    ] {
        stand_in.say(text, Then::Hold);
        let began = Instant::now();
        let (_, lines) = node.ask(&question(None, 0.3));
        assert!(began.elapsed() < Duration::from_secs(5));
        let state = &lines.last().unwrap()["error"]["state"];
        assert_eq!(*state, json!("late"), "{text}: {lines:?}");
        stand_in.wait_closed();
    }
    assert_eq!(node.ended("late"), 8.0);

    // Who asked leaves, before the first row and after it.
    for text in ["", &format!("{begun}[1]\n")] {
        stand_in.say(text, Then::Hold);
        let asked = stand_in.asked();
        let caller = node.begin(&question(None, 60.0));
        wait_for("the question", || (stand_in.asked() > asked).then_some(()));
        drop(caller);
        stand_in.wait_closed();
    }
    wait_for("the queries that were left", || {
        (node.ended("left") == 2.0).then_some(())
    });
}

#[test]
fn an_answer_without_end_ends_with_the_limit_or_the_deadline() {
    let (stand_in, node) = start();
    let row = "[5]\n";
    let rows = format!("{HEAD}{{\"columns\":[\"id\"]}}\n{row}");
    stand_in.say(rows.as_bytes(), Then::Repeat(row.len()));
    for limit in [0, 1, 1000] {
        let (status, lines) = node.ask(&question(Some(limit), 20.0));
        assert_eq!((status, lines.len() as u64), (200, limit + 2));
        assert_eq!(*lines.last().unwrap(), json!({"end": {"rows": limit}}));
        stand_in.wait_closed();
    }
    assert_eq!(node.ended("answered"), 3.0);

    for (text, last, said) in [
        (
            "HTTP/1.1 200 OK\r\nx: yyyyyy\r\n".to_owned(),
            11,
            "HTTP service: ",
        ),
        ("HTTP/1.1 500 Oh\r\n\r\nwhat\n".to_owned(), 5, "status 500"),
        (
            format!("{HEAD}{{\"columns\":[\"id\"]}}\n{{\"end\":{{\"rows\":0}}}}\n\n"),
            1,
            "more after its end",
        ),
        (format!("{HEAD}x"), 1, "too long"),
    ] {
        stand_in.say(text.as_bytes(), Then::Repeat(last));
        let (status, lines) = node.ask(&question(None, 20.0));
        let problem = problem(&lines);
        assert!(status != 200 && problem.contains(said), "{text}: {problem}");
        stand_in.wait_closed();
    }

    // Long ones: hyper reads all that are in its buffer before it lets anybody else work.
    let more = format!("HTTP/1.1 100 Continue\r\nx: {}\r\n\r\n", "y".repeat(4000));
    stand_in.say(more.as_bytes(), Then::Repeat(more.len()));
    assert_eq!(node.ask(&question(None, 0.5)).0, 504);
    stand_in.wait_closed();

    // Nobody takes the rows: they are not read.
    stand_in.say(rows, Then::Repeat(row.len()));
    let _caller = node.begin(&question(None, 1.0));
    wait_for("the deadline", || (node.ended("late") == 2.0).then_some(()));
    stand_in.wait_closed();
    assert!(node.agent.process.as_ref().unwrap().resident() < 64 << 20);
}

/// Writes an answer and keeps the connection open.
fn answer(stream: &mut TcpStream, status: u16, body: &str) {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
}

#[test]
fn connections_are_kept_and_a_closed_one_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = node(listener.local_addr().unwrap().port());
    let good =
        |rows: u32| format!("{{\"columns\":[\"id\"]}}\n[{rows}]\n{{\"end\":{{\"rows\":1}}}}\n");
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_request(&mut stream).unwrap();
        answer(&mut stream, 200, &good(1));
        read_request(&mut stream).unwrap();
        let busy = "{\"error\":{\"state\":\"refused\",\"problem\":\"busy\"}}";
        answer(&mut stream, 429, busy);
        read_request(&mut stream).unwrap();
        answer(&mut stream, 200, &good(2));
        // Closed when it is asked: asked once more.
        read_request(&mut stream).unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream).unwrap();
        answer(&mut stream, 200, &good(3));
        // Not where the answer has begun.
        read_request(&mut stream).unwrap();
        write!(
            stream,
            "HTTP/1.1 200 x\r\ncontent-length: 99\r\n\r\n{{\"col"
        )
        .unwrap();
        drop(stream);
        // It is not there any more.
        drop(listener);
        head
    });
    let wait_idle = || {
        let running = "plimsoll_partition_queries_running{partition=\"p\"}";
        wait_for("no query", || {
            (node.agent.metric(running) == Some(0.0)).then_some(())
        });
    };
    let ask = || {
        let answer = node.ask(&question(Some(7), 20.0));
        wait_idle();
        answer
    };
    let id = |(status, lines): (u16, Vec<Value>)| {
        assert_eq!(status, 200, "{lines:?}");
        lines[1][0].as_u64()
    };
    assert_eq!(id(ask()), Some(1));
    assert_eq!(ask().0, 429);
    assert_eq!(id(ask()), Some(2));
    assert_eq!(node.logins(), 1.0);
    assert_eq!(id(ask()), Some(3));
    assert_eq!(node.logins(), 2.0);
    let (status, lines) = ask();
    assert_eq!(status, 502, "{lines:?}");
    let head = service.join().unwrap();
    let (status, lines) = ask();
    assert_eq!(status, 502, "{lines:?}");
    assert!(problem(&lines).contains("cannot connect"));

    let (head, body) = head.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /rows?of=p HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let mut asked: Value = serde_json::from_str(body).unwrap();
    let left = asked["deadline_seconds"].take().as_f64().unwrap();
    assert!(left > 0.0 && left <= 20.0, "{left}");
    let wanted = json!({"partition": "p", "query": "query", "parameters": [], "limit": 7, "deadline_seconds": null});
    assert_eq!(asked, wanted);
}
