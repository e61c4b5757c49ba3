//! The real agent and the real HAProxy on free loopback ports, gone when dropped.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for a condition and says what was missing.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A data service in miniature: a hundred requests of half a second between any two scrapes.
pub struct Service {
    pub port: u16,
    gone: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Service {
    pub fn start() -> Self {
        Service::on(0)
    }

    pub fn on(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let gone = Arc::new(AtomicBool::new(false));
        let is_gone = Arc::clone(&gone);
        let thread = std::thread::spawn(move || {
            for (stream, scrapes) in listener.incoming().zip(1_u32..) {
                if is_gone.load(Ordering::Acquire) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let _ = stream.read(&mut [0; 2048]);
                let (count, sum) = (100 * scrapes, 50 * scrapes);
                let body = format!(
                    "# TYPE work_seconds histogram\nwork_seconds_bucket{{le=\"0.6\"}} {count}\n\
                     work_seconds_bucket{{le=\"+Inf\"}} {count}\nwork_seconds_sum {sum}\nwork_seconds_count {count}\n"
                );
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        Service {
            port,
            gone,
            thread: Some(thread),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A child that never outlives its test.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the process ends", || self.0.try_wait().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `plimsoll agent` with a fixed bound of 40 jobs (50 %), the directory it lives in, its ports.
pub struct Agent {
    pub directory: tempfile::TempDir,
    pub check_port: u16,
    pub http_port: u16,
    pub process: Option<Process>,
}

impl Agent {
    /// `more` goes into `[agent_check]`.
    pub fn start(service: &Service, more: &str) -> Self {
        let (check_port, http_port) = (free_port(), free_port());
        let directory = tempfile::tempdir().unwrap();
        let port = service.port;
        let config = format!(
            r#"
[agent]
period = "100ms"
state_directory = "{dir}/state"
[http]
listen = "127.0.0.1:{http_port}"
[agent_check]
listen = "127.0.0.1:{check_port}"
proxy_lease = "1s"
{more}
[control]
socket = "{dir}/control.sock"
[[service]]
name = "stocks"
identities = ["queries/node1"]
[service.sla]
delay = "1s"
[service.bound]
nominal = 40
[service.controller]
kind = "fixed"
[service.output]
full_weight_bound = 80
weight_dead_band = 0
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{port}/metrics"
histogram = "work_seconds"
[service.health]
kind = "tcp"
address = "127.0.0.1:{port}"
interval = "50ms"
timeout = "500ms"
fall = 2
rise = 1
"#,
            dir = directory.path().display(),
        );
        std::fs::write(directory.path().join("agent.toml"), config).unwrap();
        let mut agent = Agent {
            directory,
            check_port,
            http_port,
            process: None,
        };
        agent.start_again();
        agent
    }

    pub fn start_again(&mut self) {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.log_path())
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["agent", "--config"])
            .arg(self.directory.path().join("agent.toml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(Process(child));
        wait_for("the agent is ready", || {
            if let Some(status) = self.process.as_mut().unwrap().0.try_wait().unwrap() {
                panic!("agent ended with {status}: {}", self.log());
            }
            self.get("/readyz").filter(|(status, _)| *status == 200)
        });
    }

    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        process.signal("-TERM");
        process.wait()
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn log_path(&self) -> PathBuf {
        self.directory.path().join("agent.log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    /// `plimsoll node …`: its output, or its error.
    pub fn node(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["node", "--socket"])
            .arg(self.socket())
            .args(args)
            .output()
            .unwrap();
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap());
        }
        Err(String::from_utf8(output.stderr).unwrap())
    }

    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        http_get(self.http_port, path)
    }

    pub fn node_json(&self) -> Value {
        serde_json::from_str(&self.get("/v1/node").unwrap().1).unwrap()
    }

    /// One metric's value; its labels belong to the name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics")?.1;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// One check as a proxy makes it.
    pub fn check(&self, line: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.check_port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

pub fn http_get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// A real HAProxy with one server that the agent controls.
pub struct Haproxy {
    directory: tempfile::TempDir,
    _process: Process,
}

impl Haproxy {
    pub fn start(agent: &Agent, agent_send: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "global\n  stats socket {dir}/stats.sock mode 600 level admin\n\
             defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
             frontend in\n  bind 127.0.0.1:{port}\n  default_backend queries\n\
             backend queries\n  balance roundrobin\n  default-server weight 100 agent-check agent-inter 100ms\n  \
             server node1 127.0.0.1:{server} agent-port {check} agent-send \"{agent_send}\"\n",
            dir = directory.path().display(),
            port = free_port(),
            server = free_port(),
            check = agent.check_port,
        );
        let file = directory.path().join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let child = Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("haproxy.log")).unwrap())
            .spawn()
            .expect("haproxy is installed");
        let proxy = Haproxy {
            directory,
            _process: Process(child),
        };
        wait_for("haproxy answers", || proxy.cli("show info").ok());
        proxy
    }

    pub fn cli(&self, command: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.directory.path().join("stats.sock"))?;
        writeln!(stream, "{command}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// node1's row of `show stat`.
    pub fn server(&self) -> HashMap<String, String> {
        let csv = self.cli("show stat").unwrap();
        let mut lines = csv.lines();
        let names: Vec<_> = lines
            .next()
            .unwrap()
            .trim_start_matches("# ")
            .split(',')
            .collect();
        let row = lines
            .find(|line| line.starts_with("queries,node1,"))
            .unwrap();
        names
            .into_iter()
            .map(str::to_owned)
            .zip(row.split(',').map(str::to_owned))
            .collect()
    }

    /// Waits until node1's row has these values.
    pub fn wait_server(&self, wanted: &[(&str, &str)]) {
        let mut row = HashMap::new();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            row = self.server();
            if wanted
                .iter()
                .all(|(key, value)| row.get(*key).is_some_and(|v| v == value))
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let of_interest = [
            "status",
            "weight",
            "slim",
            "agent_status",
            "last_agt",
            "agent_desc",
        ];
        let seen: Vec<_> = of_interest.iter().map(|key| (key, row.get(*key))).collect();
        panic!("haproxy never had {wanted:?} but {seen:?}");
    }
}

pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
