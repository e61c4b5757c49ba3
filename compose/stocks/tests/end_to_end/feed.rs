//! Price updates: what is read how often, how old it is, and a feed that obeys an agent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::{Node, SMALL, ends_naming, until};

const QUICK: [&str; 4] = ["--price-update-min", "50ms", "--price-update-max", "50ms"];

/// Answers as the test says, and knows its own tag.
struct Agent {
    address: String,
    /// Status and body; none closes the connection.
    answer: Arc<Mutex<Option<(u16, String)>>>,
    gone: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(answer: Option<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut agent = Self {
            address: listener.local_addr().unwrap().to_string(),
            answer: Arc::new(Mutex::new(answer)),
            gone: Arc::default(),
            thread: None,
        };
        let (answer, gone) = (Arc::clone(&agent.answer), Arc::clone(&agent.gone));
        agent.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if gone.load(Ordering::Acquire) {
                    return;
                }
                let said = answer.lock().unwrap().clone();
                if let (Ok(stream), Some((status, body))) = (stream, said) {
                    say(stream, status, &body);
                }
            }
        }));
        agent
    }

    fn asks(&self, periods: &str) {
        self.says(
            200,
            &format!("{{\"version\":1,\"longest\":60.0,\"periods\":{{{periods}}}}}"),
        );
    }

    fn says(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = Some((status, body.to_owned()));
    }

    fn is_silent(&self) {
        *self.answer.lock().unwrap() = None;
    }

    fn node(&self, flags: &[&str]) -> Node {
        let url = format!("http://{}/v1/updates", self.address);
        let asking = ["--feed-periods", &url];
        Node::start(&[&SMALL[..], &QUICK, &asking, flags].concat()).until_ready()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        let _ = TcpStream::connect(&self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn say(mut stream: TcpStream, status: u16, body: &str) {
    let mut asked = [0; 2048];
    let read = stream.read(&mut asked).unwrap_or(0);
    let asked = String::from_utf8_lossy(&asked[..read]).to_ascii_lowercase();
    // A tag of the body itself.
    let tag = format!(
        "\"{}-{}\"",
        body.len(),
        body.bytes().map(u32::from).sum::<u32>()
    );
    let (status, body) = match asked.contains(&format!("if-none-match: {tag}")) {
        true => (304, ""),
        false => (status, body),
    };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} x\r\netag: {tag}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

fn updates(node: &Node, stock: &str) -> i64 {
    let quote = node.get(&format!("/stock/{stock}?items=2"));
    quote.body["rows"][1]["updates"].as_i64().unwrap()
}

/// Waits until a stock has had some more updates.
fn moves_on(node: &Node, stock: &str) {
    let before = updates(node, stock);
    until("the quote moves", || updates(node, stock) > before + 3);
}

#[test]
fn reads_are_counted_with_ages() {
    let node = Node::start(&[&SMALL[..], &QUICK].concat()).until_ready();
    until("quotes have moved", || {
        node.metric("stocks_price_updates_total") > 0.0
    });
    for _ in 0..5 {
        let answer = node.get("/stock/S0007?items=80");
        assert!((0.0..10.0).contains(&answer.age.unwrap()));
    }
    // No quote is read, none has an age.
    assert_eq!(node.get("/stock/S0007?items=1").age, None);
    let list = node.get("/accesses");
    assert_eq!(list.status, 200);
    let items = list.body["items"].as_array().unwrap();
    assert_eq!(items.len(), 300);
    assert_eq!(items[7]["name"], "S0007");
    assert_eq!(items[7]["accesses"], 5);
    assert_eq!(items[7]["period_seconds"], 0.05);
    assert_eq!(items[8]["accesses"], 0);
    assert!(list.body["updates"].as_u64().unwrap() > 0);
    assert_eq!(node.metric("stocks_quote_age_seconds_count"), 5.0);
}

#[test]
fn updates_precede_queries_and_do_not_pile_up() {
    // Nine tenths of the one worker.
    let flags = ["--workers", "1", "--update-latency", "150us"];
    let node = Node::start(&[&SMALL[..], &QUICK, &flags].concat()).until_ready();
    until("updates are made", || {
        node.metric("stocks_price_updates_total") > 300.0
    });
    assert_eq!(node.get("/stock/S0001?items=10").status, 200);
    assert_eq!(node.metric("stocks_jobs"), 0.0);
    // A worker that stood still has no more than one update of each stock to make.
    node.pause();
    std::thread::sleep(Duration::from_millis(500));
    node.signal("-CONT");
    moves_on(&node, "S0001");
    let too_many = [
        "--workers",
        "1",
        "--update-latency",
        "200us",
        "--symbols",
        "300",
    ];
    ends_naming(&[&too_many[..], &QUICK].concat(), "--update-latency");
}

#[test]
fn feed_obeys_the_agent_and_returns_to_own_periods_on_silence() {
    let agent = Agent::start(None);
    let node = agent.node(&[]);
    // Without an answer, stocks have their own periods.
    moves_on(&node, "S0001");
    agent.asks("\"S0001\": 60.0");
    until("it obeys", || node.metric("stocks_feed_relaxed") == 1.0);
    let asked =
        |result: &str| node.metric(&format!("stocks_feed_asked_total{{result=\"{result}\"}}"));
    until("nothing new is nothing new", || asked("unchanged") > 0.0);
    let before = updates(&node, "S0001");
    moves_on(&node, "S0002");
    assert!(updates(&node, "S0001") <= before + 1);

    // Refused as a whole: the last good answer stays in force.
    let failed = asked("failed");
    agent.asks("\"S0001\": 0.001, \"S0002\": 60.0");
    until("nonsense is refused", || asked("failed") > failed);
    assert_eq!(node.metric("stocks_feed_relaxed"), 1.0);
    let failed = asked("failed");
    agent.says(500, "");
    until("an error is no answer", || asked("failed") > failed);

    agent.is_silent();
    until("silence", || node.metric("stocks_feed_relaxed") == 0.0);
    moves_on(&node, "S0001");

    agent.asks("\"S0003\": 60.0");
    until("it is heard again", || {
        node.metric("stocks_feed_relaxed") == 1.0
    });
    agent.asks("");
    until("all are back", || node.metric("stocks_feed_relaxed") == 0.0);
    moves_on(&node, "S0003");
}

#[test]
fn invalid_flags_are_named() {
    ends_naming(&["--feed-periods", "https://127.0.0.1/"], "--feed-periods");
    ends_naming(&["--feed-periods", "x"], "--feed-periods");
    ends_naming(&["--update-latency", "2s"], "--update-latency");
}
