//! Real Redis servers, sentinels and what lies between them and an agent.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{Agent, PATIENCE, Process, Service, free_port, wait_for};

/// A `redis-server` on a free port, in a directory of its own.
pub struct Redis {
    pub port: u16,
    pub process: Option<Process>,
    pub directory: tempfile::TempDir,
    more: Vec<String>,
}

impl Redis {
    pub fn start(more: &[&str]) -> Self {
        let mut redis = Redis::unstarted(more);
        redis.start_again();
        redis
    }

    pub fn unstarted(more: &[&str]) -> Self {
        Redis {
            port: free_port(),
            process: None,
            directory: tempfile::tempdir().unwrap(),
            more: more.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    pub fn replica_of(master: &Redis) -> Self {
        let port = master.port.to_string();
        let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]);
        wait_for("the replica is in step", || {
            let told = replica.cli(&["INFO", "replication"]);
            told.contains("master_link_status:up").then_some(())
        });
        replica
    }

    pub fn start_again(&mut self) {
        let port = self.port.to_string();
        let common = ["--port", &port, "--bind", "127.0.0.1", "--save", ""];
        self.spawn(&common.map(str::to_owned));
        wait_for("redis answers", || {
            let answer = self.cli(&["PING"]);
            (answer.contains("PONG") || answer.contains("NOAUTH")).then_some(())
        });
    }

    /// Starts it with only these arguments and the directory.
    pub fn spawn(&mut self, words: &[String]) {
        let child = Command::new("redis-server")
            .args(words)
            .args(&self.more)
            .arg("--dir")
            .arg(self.directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        self.process = Some(Process(child));
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn signal(&self, signal: &str) {
        self.process.as_ref().unwrap().signal(signal);
    }

    pub fn cli(&self, words: &[&str]) -> String {
        let out = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A field of the ring of cluster "c".
    pub fn ring_field(&self, field: &str) -> String {
        let value = self.cli(&["HGET", "plimsoll:{c}:ring", field]);
        value.trim().to_owned()
    }
}

/// A sentinel that watches this master, alone.
pub fn sentinel(master: &Redis) -> Redis {
    let mut sentinel = Redis::unstarted(&["--sentinel"]);
    let file = sentinel.directory.path().join("sentinel.conf");
    let text = format!(
        "port {}\nbind 127.0.0.1\nsentinel monitor stocks 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds stocks 1000\nsentinel failover-timeout stocks 2000\n",
        sentinel.port, master.port
    );
    std::fs::write(&file, text).unwrap();
    sentinel.spawn(&[file.display().to_string()]);
    wait_for("the sentinel answers", || {
        sentinel.cli(&["PING"]).contains("PONG").then_some(())
    });
    sentinel
}

/// An agent whose node is in the ring of cluster "c"; `redis` is the body of `[redis]`. Not started.
pub fn member(service: &Service, node: &str, redis: &str) -> Agent {
    let agent = Agent::unstarted(service, "");
    let text = agent.config()
        + &format!(
            "[service.ring]\ncluster = \"c\"\nnode = \"{node}\"\nslots = 1000\nlease = \"500ms\"\n\
             [redis]\n{redis}\n"
        );
    agent.write_config(&text);
    agent
}

/// Before the start.
pub fn set_lease(agent: &Agent, lease: &str) {
    let text = agent.config();
    let changed = text.replace("lease = \"500ms\"", &format!("lease = \"{lease}\""));
    assert_ne!(text, changed);
    agent.write_config(&changed);
}

/// The same by URL, started.
pub fn started(service: &Service, node: &str, redis: &Redis) -> Agent {
    started_by(service, node, &format!("urls = [\"{}\"]", redis.url()))
}

/// The same, not disturbed by a machine that is busy with other tests.
pub fn patient(service: &Service, node: &str, redis: &Redis) -> Agent {
    let table = format!("urls = [\"{}\"]\ntimeout = \"5s\"", redis.url());
    let mut agent = member(service, node, &table);
    set_lease(&agent, "2s");
    agent.start_again();
    agent
}

pub fn started_by(service: &Service, node: &str, redis: &str) -> Agent {
    let mut agent = member(service, node, redis);
    agent.start_again();
    agent
}

pub fn ring(agent: &Agent) -> Option<Value> {
    let (status, body) = agent.get("/v1/ring")?;
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

/// Waits until the agent's ring has just these nodes.
pub fn wait_nodes(agent: &Agent, nodes: &[&str]) -> Value {
    wait_for(&format!("a ring of {nodes:?}: {}", agent.log()), || {
        let ring = ring(agent)?;
        let names = ring["nodes"].as_array().unwrap().iter();
        let mut held: Vec<&str> = names
            .filter_map(Value::as_str)
            .filter(|n| !n.is_empty())
            .collect();
        held.sort_unstable();
        (held == nodes).then_some(ring)
    })
}

pub fn wait_logged(agent: &Agent, text: &str) {
    let until = Instant::now() + PATIENCE;
    while !agent.log().contains(text) {
        let log = agent.log();
        assert!(Instant::now() < until, "no {text:?} in: {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn reports(agent: &Agent) -> f64 {
    agent.count("plimsoll_redis_reports_total{service=\"stocks\"}")
}

pub fn failures(agent: &Agent) -> f64 {
    agent.count("plimsoll_redis_failures_total{service=\"stocks\"}")
}

/// Waits until Redis took so many more reports.
pub fn wait_reports(agent: &Agent, more: f64) {
    let before = reports(agent);
    wait_for(&format!("{more} reports"), || {
        (reports(agent) >= before + more).then_some(())
    });
}

pub fn wait_failure(agent: &Agent) {
    let before = failures(agent);
    wait_for("a failure is counted", || {
        (failures(agent) > before).then_some(())
    });
}

/// The agent still tells HAProxy its bound, at once, and its loop goes on.
pub fn assert_undisturbed(agent: &Agent) {
    let steps = || -> f64 {
        let text = agent.get("/metrics").unwrap().1;
        let all = text
            .lines()
            .filter(|l| l.starts_with("plimsoll_steps_total{"));
        all.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    let before = steps();
    let mut took: Vec<Duration> = (0..11)
        .map(|_| {
            let asked = Instant::now();
            let answer = agent.check("queries/node1\n").unwrap();
            assert!(answer.contains("maxconn:40"), "{answer}");
            asked.elapsed()
        })
        .collect();
    took.sort_unstable();
    assert!(took[5] < Duration::from_millis(100), "{took:?}");
    let since = Instant::now();
    wait_for("five steps", || (steps() >= before + 5.0).then_some(()));
    assert!(since.elapsed() < Duration::from_secs(2), "the period holds");
}

/// Hands on what it is told, each chunk after a delay.
pub struct Tap {
    pub port: u16,
    delay_ms: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
}

impl Tap {
    pub fn to(target: u16, delay_ms: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tap = Tap {
            port: listener.local_addr().unwrap().port(),
            delay_ms: Arc::new(AtomicU64::new(delay_ms)),
            gone: Arc::default(),
        };
        let (delay, gone) = (Arc::clone(&tap.delay_ms), Arc::clone(&tap.gone));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if gone.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(near), Ok(far)) = (stream, TcpStream::connect(("127.0.0.1", target)))
                else {
                    continue;
                };
                let ends = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
                for (from, to) in ends {
                    let (from, to, delay) = (from.unwrap(), to.unwrap(), Arc::clone(&delay));
                    std::thread::spawn(move || hand_on(from, to, &delay));
                }
            }
        });
        tap
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, delay_ms: &AtomicU64) {
    let _ = to.set_nodelay(true);
    let mut chunk = [0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        std::thread::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed)));
        if to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Takes connections and never says a word.
pub fn mute() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "redis://127.0.0.1:{}",
        listener.local_addr().unwrap().port()
    );
    (listener, url)
}

/// The rule of docs/redis.md for these, as words for redis-cli; its password is PASSWORD.
pub fn documented_acl(whose: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/redis.md")).unwrap();
    let user = if whose == "agents" {
        "plimsoll"
    } else {
        "haproxy"
    };
    let start = format!("ACL SETUSER {user} ");
    text.lines()
        .find(|line| line.starts_with(&start))
        .unwrap_or_else(|| panic!("docs/redis.md has a line {start:?}"))
        .to_owned()
}

pub fn openssl(directory: &Path, words: &[&str]) {
    let out = Command::new("openssl")
        .args(words)
        .current_dir(directory)
        .output()
        .expect("openssl is installed");
    assert!(
        out.status.success(),
        "openssl {words:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The version of the function library that agents load.
pub fn library_version() -> &'static str {
    let (_, after) = include_str!("../../../../../lua/redis/plimsoll/1-records.lua")
        .split_once("local VERSION = ")
        .unwrap();
    after.split_once('\n').unwrap().0
}
