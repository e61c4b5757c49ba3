//! In the place of an agent, or of a service that answers as one: says what the test wants.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::support::wait_for;

/// Head of an answer that ends with its connection.
pub const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n";
/// A whole answer.
pub const GOOD: &str = "{\"columns\":[\"id\"]}\n[2]\n[3]\n{\"end\":{\"rows\":2}}\n";

/// The answer, and what follows it.
#[derive(Clone)]
struct Script {
    text: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Then {
    Close,
    /// Until the other side has gone.
    Hold,
    /// The last of the text again and again.
    Repeat(usize),
}

/// In the place of an agent; partition `good` is as it should be.
pub struct StandIn {
    pub port: u16,
    script: Arc<Mutex<Script>>,
    open: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl StandIn {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stand_in = StandIn {
            port: listener.local_addr().unwrap().port(),
            script: Arc::new(Mutex::new(Script {
                text: Vec::new(),
                then: Then::Close,
            })),
            open: Arc::default(),
            asked: Arc::default(),
        };
        let (script, open) = (Arc::clone(&stand_in.script), Arc::clone(&stand_in.open));
        let asked = Arc::clone(&stand_in.asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, open) = (Arc::clone(&script), Arc::clone(&open));
                let asked = Arc::clone(&asked);
                std::thread::spawn(move || {
                    open.fetch_add(1, Ordering::SeqCst);
                    let _ = serve(&mut stream.unwrap(), &script, &asked);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        stand_in
    }

    pub fn say(&self, text: impl Into<Vec<u8>>, then: Then) {
        let text = text.into();
        *self.script.lock().unwrap() = Script { text, then };
    }

    /// Number of requests.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn wait_closed(&self) {
        wait_for("the connections are closed", || {
            (self.open.load(Ordering::SeqCst) == 0).then_some(())
        });
    }
}

/// Reads a request whose body is a JSON object; empty if the client is gone.
pub fn read_request(stream: &mut TcpStream) -> std::io::Result<String> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"}") {
        match stream.read(&mut buffer)? {
            0 => return Ok(String::new()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(String::from_utf8(request).unwrap())
}

fn serve(
    stream: &mut TcpStream,
    script: &Mutex<Script>,
    asked: &AtomicUsize,
) -> std::io::Result<()> {
    let request = read_request(stream)?;
    if request.is_empty() {
        return Ok(());
    }
    if request.contains("\"partition\":\"good\"") {
        return stream.write_all(format!("{HEAD}{GOOD}").as_bytes());
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let Script { text, then } = script.lock().unwrap().clone();
    stream.write_all(&text)?;
    match then {
        Then::Close => {}
        Then::Hold => while stream.read(&mut [0; 4096])? > 0 {},
        Then::Repeat(last) => loop {
            stream.write_all(&text[text.len() - last..])?;
        },
    }
    Ok(())
}
