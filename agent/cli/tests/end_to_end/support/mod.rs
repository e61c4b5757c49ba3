//! The real agent and the real HAProxy on free loopback ports, gone when dropped.

pub mod certificates;
pub mod cluster;
pub mod databases;
pub mod exchange;
pub mod gather;
mod haproxy;
mod http;
pub mod lines;
pub mod partition;
pub mod peer;
pub mod redis;
pub mod stand_in;

use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

pub use haproxy::Haproxy;
pub use http::{connect_from, http_get, http_get_with, http_post};

/// Much for what takes a moment, since the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the program that it is given, which gets EPERM when it asks for a socket of AF_NETLINK.
pub const WITHOUT_NETLINK: &str = r#"
import ctypes, os, platform, struct, sys
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
load, equal, answer = 0x20, 0x15, 0x06
program = b"".join(struct.pack("HBBI", *line) for line in (
    (load, 0, 0, 0), (equal, 0, 3, number), (load, 0, 0, 16), (equal, 0, 1, 16),
    (answer, 0, 0, 0x50000 + 1), (answer, 0, 0, 0x7FFF0000),
))
text = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, filter) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"#;

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

/// Queries `nap` and `many` of up to 30 ms whose callers leave within 200 ms, four at a time.
pub fn leave_at_random(queries: u64, begin: impl Fn(&str, u64) -> TcpStream + Sync) {
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let begin = &begin;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(caller);
                for _ in 0..queries / 4 {
                    let stream = match random.bool() {
                        true => begin("nap", random.u64(0..30)),
                        false => begin("many", random.u64(1..20_000)),
                    };
                    std::thread::sleep(Duration::from_millis(random.u64(0..200)));
                    drop(stream);
                }
            });
        }
    });
}

/// The first program of this name, without links.
pub fn on_path(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find_map(|directory| directory.join(name).canonicalize().ok())
}

/// A free port of loopback, below those of outgoing connections: none takes it before it is used. Each is given once.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Tests that run at once have slots of their own; the Python tests have the ports below these.
    const FIRST: u16 = 23_000;
    const PORTS_PER_SLOT: u16 = 1_000;
    const SLOTS: u16 = 9;
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").map_or(0, |it| it.parse().unwrap());
    let first = FIRST + slot % SLOTS * PORTS_PER_SLOT;
    loop {
        let port = first + GIVEN.fetch_add(1, Ordering::Relaxed) % PORTS_PER_SLOT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Listens there. A child that another test starts has a copy of every socket until it runs its program, so that a port
/// may be taken for a moment by whoever closed it.
pub fn listen(port: u16) -> TcpListener {
    wait_for("the port is free", || {
        TcpListener::bind(("127.0.0.1", port)).ok()
    })
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
        let listener = listen(port);
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
                    "# TYPE work_seconds histogram\nwork_seconds_bucket{{le=\"0.6\"}} {count}\nwork_seconds_bucket{{le=\"2\"}} {count}\n\
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

/// On the first of the cores that this process may use.
fn on_one_core(program: &str) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|it| it.strip_prefix("Cpus_allowed_list:"));
    let first = list.unwrap().trim().split([',', '-']).next().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", first, program]);
    command
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

    /// The most bytes that it held at once.
    pub fn resident(&self) -> u64 {
        let pid = self.0.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kib << 10
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
    /// Whether it may use but one of the machine's cores, from its next start on.
    pub has_one_core: bool,
    pub process: Option<Process>,
}

impl Agent {
    /// `more` goes into `[agent_check]`.
    pub fn start(service: &Service, more: &str) -> Self {
        let mut agent = Agent::unstarted(service, more);
        agent.start_again();
        agent
    }

    /// An agent whose configuration is written but can be changed before `start_again`.
    pub fn unstarted(service: &Service, more: &str) -> Self {
        let port = service.port;
        let services = format!(
            r#"
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
"#
        );
        let agent = Agent::new();
        agent.configure(more, &services);
        agent
    }

    /// An agent with these `[[service]]` tables.
    pub fn with(services: &str) -> Self {
        let mut agent = Agent::new();
        agent.configure("", services);
        agent.start_again();
        agent
    }

    /// A place and ports, nothing runs yet.
    pub fn new() -> Self {
        Agent {
            directory: tempfile::tempdir().unwrap(),
            check_port: free_port(),
            http_port: free_port(),
            has_one_core: false,
            process: None,
        }
    }

    /// Writes the configuration; `DIR` is the agent's directory.
    pub fn configure(&self, more: &str, services: &str) {
        let (check_port, http_port) = (self.check_port, self.http_port);
        self.write_config(&format!(
            r#"
[agent]
period = "100ms"
state_directory = "DIR/state"
[http]
listen = "127.0.0.1:{http_port}"
[agent_check]
listen = "127.0.0.1:{check_port}"
proxy_lease = "1s"
{more}
[control]
socket = "DIR/control.sock"
{services}"#
        ));
    }

    pub fn write_config(&self, text: &str) {
        let text = text.replace("DIR", &self.directory.path().display().to_string());
        std::fs::write(self.config_path(), text).unwrap();
    }

    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("agent.toml")
    }

    pub fn config(&self) -> String {
        std::fs::read_to_string(self.config_path()).unwrap()
    }

    /// An agent that requires a token, with additional tables.
    pub fn guarded(service: &Service, token: &str, tables: &str) -> Self {
        let mut agent = Agent::unstarted_guarded(service, token, tables);
        agent.start_again();
        agent
    }

    pub fn unstarted_guarded(service: &Service, token: &str, tables: &str) -> Self {
        let agent = Agent::unstarted(service, "");
        std::fs::write(agent.directory.path().join("token"), token).unwrap();
        let config = agent.config();
        let config = config.replace("[http]", "[http]\ntoken_file = \"DIR/token\"");
        agent.write_config(&(config + tables));
        agent
    }

    /// SIGHUP, and what became of it.
    pub fn reload(&self) -> &'static str {
        let count = |result: &str| {
            self.count(&format!(
                "plimsoll_config_reloads_total{{result=\"{result}\"}}"
            ))
        };
        let before = ["applied", "refused"].map(|result| (result, count(result)));
        self.process.as_ref().unwrap().signal("-HUP");
        wait_for("the reload", || {
            let changed = before.iter().find(|(result, n)| count(result) > *n);
            changed.map(|(result, _)| *result)
        })
    }

    /// A start that must fail: what it says.
    pub fn start_refused(&self) -> String {
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["agent", "--config"])
            .arg(self.config_path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Process(child);
        assert!(!process.wait().success());
        let mut said = String::new();
        let mut stderr = process.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    pub fn start_again(&mut self) {
        let program = env!("CARGO_BIN_EXE_plimsoll");
        self.start_by(match self.has_one_core {
            true => on_one_core(program),
            false => Command::new(program),
        });
    }

    /// Starts it by a command that takes the agent's arguments.
    pub fn start_by(&mut self, mut command: Command) {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.log_path())
            .unwrap();
        let child = command
            .args(["agent", "--config"])
            .arg(self.config_path())
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

    /// A service as `/v1/node` shows it; null where it is not there.
    pub fn service(&self, name: &str) -> Value {
        self.node_json()["services"][name].take()
    }

    /// The rule that set the bound last.
    pub fn reason(&self) -> String {
        let reason = self.service("stocks")["decision"]["reason"].take();
        reason.as_str().unwrap_or_default().to_owned()
    }

    /// The part of the answer that HAProxy obeys: without its text.
    pub fn words(&self) -> String {
        let answer = self.check("stocks lb1\n").unwrap();
        answer.trim_end().split(" #").next().unwrap().to_owned()
    }

    /// A counter that may not have begun yet.
    pub fn count(&self, name: &str) -> f64 {
        self.metric(name).unwrap_or(0.0)
    }

    /// Value of a metric; the name includes its labels.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics")?.1;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// An agent check like a proxy's.
    pub fn check(&self, line: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.check_port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
