//! An HTTP server that answers as the test says, however wrong.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Finite bucket bounds of `work_seconds`.
const BOUNDS: [f64; 4] = [0.01, 0.1, 1.0, 10.0];

/// Behaviour towards the next connections.
#[derive(Clone, Debug)]
pub enum Script {
    /// The metrics of a service that finished this many requests of so many seconds since it was
    /// asked last.
    Work(u64, f64),
    /// These bytes, after this time, then the end.
    Raw(Duration, Vec<u8>),
    /// These bytes, one at a time.
    Drip(Vec<u8>),
    /// Nothing; the connection stays open.
    Hang,
}

impl Script {
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Script::Raw(Duration::ZERO, bytes.into())
    }

    /// A whole answer.
    pub fn answer(status: u16, body: impl AsRef<[u8]>) -> Self {
        Script::raw(answer(status, "", body))
    }
}

/// The bytes of a whole answer; `headers` end in a line end.
pub fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

#[derive(Debug, Default)]
struct Totals {
    /// Not cumulative; the last is above every bound.
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Totals {
    fn add(&mut self, requests: u64, seconds: f64) {
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)] += requests;
        self.sum += requests as f64 * seconds;
    }

    fn text(&self) -> String {
        let mut text = String::from("# TYPE work_seconds histogram\n");
        let mut below = 0;
        let bounds = BOUNDS.iter().map(f64::to_string);
        for (le, count) in bounds.chain(["+Inf".into()]).zip(self.counts) {
            below += count;
            text += &format!("work_seconds_bucket{{class=\"query\",le=\"{le}\"}} {below}\n");
        }
        let sum = self.sum;
        text + &format!(
            "work_seconds_sum{{class=\"query\"}} {sum}\nwork_seconds_count{{class=\"query\"}} {below}\nwork_jobs 0\n"
        )
    }
}

/// The server; its port is closed when dropped.
pub struct Peer {
    pub port: u16,
    script: Arc<Mutex<Script>>,
    totals: Arc<Mutex<Totals>>,
    gone: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Peer {
    pub fn start(script: Script) -> Self {
        Peer::on(0, script)
    }

    pub fn on(port: u16, script: Script) -> Self {
        let listener = super::listen(port);
        let mut peer = Peer {
            port: listener.local_addr().unwrap().port(),
            script: Arc::new(Mutex::new(script)),
            totals: Arc::default(),
            gone: Arc::default(),
            thread: None,
        };
        let (script, totals) = (Arc::clone(&peer.script), Arc::clone(&peer.totals));
        let gone = Arc::clone(&peer.gone);
        peer.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if gone.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let script = script.lock().unwrap().clone();
                let (totals, gone) = (Arc::clone(&totals), Arc::clone(&gone));
                std::thread::spawn(move || play(stream, script, &totals, &gone));
            }
        }));
        peer
    }

    pub fn play(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    /// The current response.
    pub fn text(&self) -> String {
        self.totals.lock().unwrap().text()
    }

    /// Resets the counts, as after a restart of the service.
    pub fn forget_counts(&self) {
        *self.totals.lock().unwrap() = Totals::default();
    }

    pub fn add(&self, requests: u64, seconds: f64) {
        self.totals.lock().unwrap().add(requests, seconds);
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.port)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Errors only mean that the agent hung up first.
fn play(mut stream: TcpStream, script: Script, totals: &Mutex<Totals>, gone: &AtomicBool) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let _ = stream.read(&mut [0; 2048]);
    match script {
        Script::Work(requests, seconds) => {
            let text = {
                let mut totals = totals.lock().unwrap();
                totals.add(requests, seconds);
                totals.text()
            };
            let _ = stream.write_all(&answer(200, "", text));
        }
        Script::Raw(after, bytes) => {
            std::thread::sleep(after);
            let _ = stream.write_all(&bytes);
        }
        Script::Drip(bytes) => {
            for byte in bytes {
                if gone.load(Ordering::Acquire) || stream.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Script::Hang => {
            while !gone.load(Ordering::Acquire) && !matches!(stream.read(&mut [0; 64]), Ok(0)) {}
        }
    }
}
