//! Cost and latency of the agent: the real binary, an inline Prometheus source, and checks over loopback. Prints each
//! figure with its target; since machines differ, a miss is not an error.
//!
//! `cargo bench -p plimsoll --bench agent_check`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

const POLLING: Duration = Duration::from_secs(15);
const PACED: Duration = Duration::from_secs(5);
const LOGGED: Duration = Duration::from_secs(10);
const LINES_PER_SECOND: u64 = 1000;
const FLAT_OUT: Duration = Duration::from_secs(5);
const LINE: &[u8] = b"queries/node1 bench\n";

struct Agent {
    child: Child,
    check_port: u16,
    _directory: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A service whose histogram grows by 1,000 requests a scrape, in the 60 buckets of a fine one.
fn source() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for scrapes in 1_u64.. {
            let Ok((mut stream, _)) = listener.accept() else {
                continue;
            };
            let _ = stream.read(&mut [0; 2048]);
            let count = 1000 * scrapes;
            let mut body = String::from("# TYPE work_seconds histogram\n");
            for bucket in 0..60 {
                let le = 0.001 * 1.2_f64.powi(bucket);
                let within = count.min(count * (bucket as u64 + 1) / 50);
                body += &format!("work_seconds_bucket{{class=\"query\",le=\"{le}\"}} {within}\n");
            }
            body += &format!(
                "work_seconds_bucket{{class=\"query\",le=\"+Inf\"}} {count}\n\
                 work_seconds_sum{{class=\"query\"}} {}\nwork_seconds_count{{class=\"query\"}} {count}\n\
                 # TYPE work_jobs gauge\nwork_jobs 60\n",
                count as f64 * 0.5
            );
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length";
            let _ = write!(stream, "{head}: {}\r\n\r\n{body}", body.len());
        }
    });
    port
}

/// A scrape for delays and jobs.
fn scraped() -> String {
    let port = source();
    format!(
        r#"
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{port}/metrics"
histogram = "work_seconds"
labels = {{ class = "query" }}
[service.jobs]
kind = "prometheus"
gauge = "work_jobs"
"#
    )
}

/// HAProxy's log for both.
fn logged(port: u16) -> String {
    format!(
        r#"
[service.source]
kind = "haproxy-log"
listen = "udp://127.0.0.1:{port}"
node = "queries/node1"
"#
    )
}

fn start(source: &str) -> Agent {
    let (check_port, http_port) = (free_port(), free_port());
    let directory = tempfile::tempdir().unwrap();
    let config = format!(
        r#"
[http]
listen = "127.0.0.1:{http_port}"
[agent_check]
listen = "127.0.0.1:{check_port}"
[agent]
period = "1s"
state_directory = "{dir}"
[control]
socket = "{dir}/control.sock"
[[service]]
name = "stocks"
identities = ["queries/node1"]
[service.sla]
delay = "1s"
[service.bound]
nominal = 64
{source}"#,
        dir = directory.path().display()
    );
    let file = directory.path().join("agent.toml");
    std::fs::write(&file, config).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["agent", "--config"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let agent = Agent {
        child,
        check_port,
        _directory: directory,
    };
    let until = Instant::now() + Duration::from_secs(10);
    while check(agent.check_port, LINE).is_none_or(|answer| !answer.contains("maxconn:")) {
        assert!(Instant::now() < until, "the agent does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    agent
}

fn check(port: u16, line: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(line).ok()?;
    let mut answer = [0; 512];
    let length = stream.read(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer[..length]).into_owned())
}

impl Agent {
    /// CPU time of all threads so far.
    fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
        Duration::from_nanos(nanoseconds.sum())
    }

    /// Resident memory in MiB: now, and at its most.
    fn resident(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let field = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse::<f64>()
                .unwrap()
                / 1024.0
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    /// Four proxies, each once a second: CPU share of one core.
    fn polled(&self) -> f64 {
        let (start, before) = (Instant::now(), self.cpu());
        let mut rounds = 0;
        while start.elapsed() < POLLING {
            for proxy in 0..4_u32 {
                let due = Duration::from_millis(1000 * rounds + 250 * u64::from(proxy));
                std::thread::sleep(due.saturating_sub(start.elapsed()));
                check(
                    self.check_port,
                    format!("queries/node1 lb{proxy}\n").as_bytes(),
                )
                .unwrap();
            }
            rounds += 1;
        }
        (self.cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64()
    }

    /// 1,000 of HAProxy's log lines a second: CPU share of one core.
    fn told(&self, port: u16) -> f64 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (start, before) = (Instant::now(), self.cpu());
        for request in 0..LOGGED.as_secs() * LINES_PER_SECOND {
            let due = Duration::from_micros(request * 1_000_000 / LINES_PER_SECOND);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let line = format!(
                "plimsoll queries/node1 0 0 29 1 0/30 @{}/{request}/3/lb1/7 200 -- 80",
                written.as_millis()
            );
            socket
                .send_to(line.as_bytes(), ("127.0.0.1", port))
                .unwrap();
        }
        (self.cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64()
    }

    /// 1,000 checks/s on a fixed schedule: sorted delays. A check held up by the one before counts
    /// from when it was due.
    fn paced(&self) -> Vec<Duration> {
        let start = Instant::now();
        let mut delays = Vec::new();
        while start.elapsed() < PACED {
            let due = start + Duration::from_millis(delays.len() as u64);
            let mut begun = due;
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(early);
                begun = Instant::now();
            }
            check(self.check_port, LINE).unwrap();
            delays.push(begun.elapsed());
        }
        delays.sort();
        delays
    }

    /// Checks as fast as one client thread can: checks per second, and cores used by the agent.
    fn flat_out(&self) -> (f64, f64) {
        let done = AtomicU64::new(0);
        let (start, before) = (Instant::now(), self.cpu());
        let client = async || {
            let mut buffer = [0; 512];
            while start.elapsed() < FLAT_OUT {
                let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.check_port))
                    .await
                    .unwrap();
                stream.write_all(LINE).await.unwrap();
                if stream.read(&mut buffer).await.unwrap() > 1 {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        // Eight at a time keep the agent busy while an answer is on its way.
        let clients = async {
            tokio::join!(
                client(),
                client(),
                client(),
                client(),
                client(),
                client(),
                client(),
                client()
            )
        };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(clients);
        let seconds = start.elapsed().as_secs_f64();
        (
            done.into_inner() as f64 / seconds,
            (self.cpu() - before).as_secs_f64() / seconds,
        )
    }
}

fn row(what: &str, figure: String, target: &str, met: bool) {
    println!(
        "{what:<44} {figure:>12}   target {target:<12} {}",
        if met { "met" } else { "MISSED" }
    );
}

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let agent = start(&scraped());
    let share = 100.0 * agent.polled();
    let (resident, _) = agent.resident();
    row(
        "CPU, 4 proxies each second, P = 1 s",
        format!("{share:.2} %"),
        "<= 1 %",
        share <= 1.0,
    );
    row(
        "resident memory",
        format!("{resident:.1} MiB"),
        "<= 20 MiB",
        resident <= 20.0,
    );

    let delays = agent.paced();
    let at = |q: f64| delays[((delays.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
    let p99 = at(0.99);
    row(
        "p99 at 1,000 checks/s",
        format!("{p99:.3} ms"),
        "< 1 ms",
        p99 < 1.0,
    );
    println!(
        "    p50 {:.3} ms, p99.9 {:.3} ms, longest {:.3} ms, {} checks",
        at(0.5),
        at(0.999),
        at(1.0),
        delays.len()
    );

    let (rate, cores) = agent.flat_out();
    let per_core = rate / cores;
    row(
        "checks/s for each core the agent uses",
        format!("{per_core:.0}"),
        ">= 20000",
        per_core >= 20e3,
    );
    println!("    {rate:.0} checks/s by one client thread, on {cores:.2} cores of the agent");
    let (_, peak) = agent.resident();
    row(
        "resident memory at its most",
        format!("{peak:.1} MiB"),
        "<= 20 MiB",
        peak <= 20.0,
    );
    drop(agent);

    let port = free_port();
    let agent = start(&logged(port));
    let share = 100.0 * agent.told(port);
    row(
        "CPU, 1,000 log lines/s, P = 1 s",
        format!("{share:.2} %"),
        "<= 1 %",
        share <= 1.0,
    );
}
