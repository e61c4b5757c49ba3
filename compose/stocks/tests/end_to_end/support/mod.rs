//! Runs real nodes on free loopback ports; a node ends with its handle, also on a panic.

pub mod postgres;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_stocks");

/// Small data, so that a debug build starts at once.
pub const SMALL: [&str; 6] = ["--symbols", "300", "--history", "100", "--accounts", "50"];

pub fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

pub struct Node {
    child: Child,
    pub address: SocketAddr,
    agent: ureq::Agent,
    _own_directory: Option<TempDir>,
}

pub struct Answer {
    pub status: u16,
    pub items: Option<usize>,
    /// Age of the oldest quote read, in seconds.
    pub age: Option<f64>,
    /// Why a node refused it.
    pub reason: Option<String>,
    pub body: Value,
}

/// `stocks serve` refuses these flags and says which.
pub fn ends_naming(flags: &[&str], named: &str) {
    let out = Command::new(BINARY)
        .arg("serve")
        .args(flags)
        .output()
        .unwrap();
    assert!(!out.status.success(), "{flags:?}");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains(named), "{flags:?}: {said}");
}

impl Node {
    pub fn start(flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let mut node = Self::start_in(directory.path(), flags);
        node._own_directory = Some(directory);
        node
    }

    pub fn start_in(directory: &Path, flags: &[&str]) -> Self {
        let directory = directory.to_str().unwrap();
        Self::start_on(&[&["--data-dir", directory], flags].concat())
    }

    /// On whatever database the flags name.
    pub fn start_on(flags: &[&str]) -> Self {
        Self::start_as("serve", flags)
    }

    /// Starts a command other than `serve`.
    pub fn start_as(command: &str, flags: &[&str]) -> Self {
        let address = free_address();
        let child = Command::new(BINARY)
            .args([command, "--listen", &address.to_string()])
            .args(flags)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(10)))
            .max_idle_connections_per_host(64)
            .build();
        Self {
            child,
            address,
            agent: config.into(),
            _own_directory: None,
        }
    }

    pub fn until_ready(self) -> Self {
        until("the node is ready", || self.is_ready());
        self
    }

    pub fn is_ready(&self) -> bool {
        self.agent
            .get(self.url("/readyz"))
            .call()
            .is_ok_and(|answer| answer.status() == 200)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn get(&self, path: &str) -> Answer {
        answer(self.agent.get(self.url(path)).call().unwrap())
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        answer(self.agent.post(self.url(path)).send(body).unwrap())
    }

    /// A purchase of one share in the name of an object set.
    pub fn purchase_of(&self, set: &str, account: u32) -> Answer {
        let body = format!(r#"{{"account":{account},"symbol":"S0001","shares":1}}"#);
        let request = self.agent.post(self.url("/purchase?items=6"));
        answer(request.header("x-object-set", set).send(body).unwrap())
    }

    /// Purchase with this fencing token.
    pub fn purchase_by(&self, set: &str, fence: &str) -> Answer {
        let body = r#"{"account":1,"symbol":"S0001","shares":1}"#;
        let request = self.agent.post(self.url("/purchase?items=6"));
        let request = request.header("x-object-set", set);
        answer(
            request
                .header("x-plimsoll-fence", fence)
                .send(body)
                .unwrap(),
        )
    }

    /// An order of one share of S0001, or what became of its connection.
    pub fn try_order(&self, side: &str, account: u32) -> Result<Answer, ureq::Error> {
        let body = format!(r#"{{"account":{account},"symbol":"S0001","shares":1}}"#);
        let request = self.agent.post(self.url(&format!("/{side}?items=6")));
        request.send(body).map(answer)
    }

    /// The value of a series, by its name with labels.
    pub fn metric(&self, series: &str) -> f64 {
        let mut response = self.agent.get(self.url("/metrics")).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {series} in\n{text}"))
    }

    /// Cash of an account as this node shows it.
    pub fn cash(&self, account: u32) -> i64 {
        let answer = self.get(&format!("/portfolio/{account}?items=1"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["rows"][0]["cash_cents"].as_i64().unwrap()
    }

    /// Waits until it answers again, and never with older rows than the master's.
    pub fn comes_back_level_with(&self, master: &Node, account: u32) {
        until("the slave is back", || {
            let answer = self.get(&format!("/portfolio/{account}?items=1"));
            if answer.status == 200 {
                let cash = answer.body["rows"][0]["cash_cents"].as_i64().unwrap();
                assert_eq!(cash, master.cash(account));
            }
            answer.status == 200
        });
    }

    pub fn purchase(&self, account: u32) -> Answer {
        self.post(
            "/purchase?items=6",
            &format!(r#"{{"account":{account},"symbol":"S0001","shares":1}}"#),
        )
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub fn pause(&self) {
        self.signal("-STOP");
        wait_paused(&[self.child.id()]);
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of the process; its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        until("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    /// Each purchase is read on every slave as soon as it is answered.
    pub fn writes_are_read_on(&self, slaves: &[Node]) {
        for round in 0..20 {
            let before = self.cash(7);
            // The rows are in the slaves' caches when the write comes.
            assert!(slaves.iter().all(|slave| slave.cash(7) == before));
            let answer = self.purchase(7);
            assert_eq!(answer.status, 200, "{}", answer.body);
            let after = answer.body["cash_after"].as_i64().unwrap();
            assert!(after < before);
            for slave in slaves {
                assert_eq!(slave.cash(7), after, "round {round}");
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(mut response: ureq::http::Response<ureq::Body>) -> Answer {
    let header = |name: &str| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let items = header("x-items").map(|value| value.parse().unwrap());
    let age = header("x-age-seconds").map(|value| value.parse().unwrap());
    let reason = header("plimsoll-reason");
    let text = response.body_mut().read_to_string().unwrap();
    Answer {
        status: response.status().as_u16(),
        items,
        age,
        reason,
        body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}

/// Tells threads to stop, also when the test fails.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn at_end(&self) -> impl Drop {
        struct Guard<'a>(&'a AtomicBool);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        Guard(&self.0)
    }
}

/// Waits until all threads of stopped processes are paused, as running ones continue for a moment after the signal.
fn wait_paused(pids: &[u32]) {
    // Some may have ended meanwhile.
    let is_still = |stat: String| {
        let state = stat.rsplit(") ").next();
        state.is_some_and(|state| state.starts_with(['T', 'Z']))
    };
    let threads = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task"));
    until("all threads stand still", || {
        let threads = pids.iter().filter_map(|pid| threads(pid).ok());
        let mut stats = threads.flatten().flatten().map(|it| it.path().join("stat"));
        stats.all(|stat| std::fs::read_to_string(stat).map_or(true, is_still))
    });
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited 10 s until {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A master and slaves, each with a directory that outlives its process.
pub struct Cluster {
    pub replication: SocketAddr,
    directory: TempDir,
    flags: Vec<String>,
}

impl Cluster {
    pub fn new(flags: &[&str]) -> Self {
        Self {
            replication: free_address(),
            directory: TempDir::new().unwrap(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    pub fn directory(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn master(&self) -> Node {
        self.node("master", &["master"], "--replication-listen")
    }

    pub fn slave(&self, name: &str) -> Node {
        self.node(name, &["slave"], "--master")
    }

    /// A slave that takes transactions.
    pub fn primary(&self, name: &str) -> Node {
        self.node(name, &["slave", "--primary"], "--master")
    }

    fn node(&self, name: &str, role: &[&str], link: &str) -> Node {
        let replication = self.replication.to_string();
        let mut flags = vec!["--name", name, link, &replication, "--role"];
        flags.extend(role);
        flags.extend(SMALL);
        flags.extend(self.flags.iter().map(String::as_str));
        Node::start_in(&self.directory(name), &flags)
    }
}
