//! Real database servers from Debian's packages, each in a throw-away directory; gone when dropped.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::{Agent, PATIENCE, Process, Service, free_port, on_path, wait_for};

/// Password of the agent's user.
pub const PASSWORD: &str = "a secret of 32 bytes, or about it";

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn whoami() -> String {
    let output = done(Command::new("id").arg("-un"));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[track_caller]
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Ends with this signal where the test's thread does.
fn tied(signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]);
    command
}

/// Databases take their time to start on a busy machine.
fn wait_long(what: &str, mut condition: impl FnMut() -> Option<()>) {
    let until = Instant::now() + 2 * PATIENCE;
    while condition().is_none() {
        assert!(Instant::now() < until, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients that wait for an answer, until dropped.
pub struct Clients {
    _processes: Vec<Process>,
}

fn clients(count: usize, mut one: impl FnMut() -> Command) -> Clients {
    let clients = (0..count).map(|_| {
        let mut command = one();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Process(command.stderr(Stdio::null()).spawn().unwrap())
    });
    Clients {
        _processes: clients.collect(),
    }
}

/// MariaDB on a port and a socket, with an account `plimsoll`.
pub struct MariaDb {
    pub directory: TempDir,
    pub port: u16,
    process: Option<Process>,
}

impl MariaDb {
    pub fn start() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("plimsoll-sql-")
            .tempdir_in("/tmp")
            .unwrap();
        done(
            // A server that starts removes the temporary tables of others from a directory they share.
            Command::new("mariadb-install-db")
                .env("TMPDIR", directory.path())
                .arg("--no-defaults")
                .arg(format!("--user={}", whoami()))
                .arg(data(&directory))
                .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
                .args(["--skip-name-resolve", "--innodb-log-file-size=4M"]),
        );
        let mut server = MariaDb {
            directory,
            port: free_port(),
            process: None,
        };
        server.start_again();
        // Nobody but this account is needed from here on.
        server.sql(&format!(
            "CREATE USER admin@localhost; GRANT ALL ON *.* TO admin@localhost WITH GRANT OPTION; \
             CREATE USER plimsoll@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; \
             CREATE OR REPLACE USER '{}'@localhost IDENTIFIED VIA unix_socket",
            whoami()
        ));
        server
    }

    pub fn start_again(&mut self) {
        let log = File::create(self.directory.path().join("log")).unwrap();
        let mut command = tied("KILL");
        command
            .env("TMPDIR", self.directory.path())
            .args(["--", "/usr/sbin/mariadbd", "--no-defaults"])
            .arg(format!("--user={}", whoami()))
            .arg(data(&self.directory))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args(["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M"])
            .args([
                "--innodb-flush-log-at-trx-commit=0",
                "--performance-schema=OFF",
            ]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        self.process = Some(Process(command.stderr(log).spawn().unwrap()));
        let mut process = self.process.take().unwrap();
        wait_long("MariaDB answers", || {
            let ended = process.0.try_wait().unwrap();
            assert!(ended.is_none(), "MariaDB ended: {}", self.log());
            let up = ["admin", "root"].iter().any(|user| {
                let mut client = self.client(user);
                let output = client.args(["-e", "SELECT 1"]).output().unwrap();
                output.status.success()
            });
            up.then_some(())
        });
        self.process = Some(process);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn client(&self, user: &str) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user"]);
        command.arg(user).arg("--socket").arg(self.socket());
        command
    }

    /// Runs a statement as a privileged user.
    pub fn sql(&self, statement: &str) -> String {
        let run = |user| {
            let mut client = self.client(user);
            client.args(["-e", statement]).output().unwrap()
        };
        let mut output = run("admin");
        if !output.status.success() {
            output = run("root");
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statement}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn busy(&self, count: usize) -> Clients {
        clients(count, || {
            let mut client = self.client("admin");
            client.args(["-e", "SELECT SLEEP(600)"]);
            client
        })
    }

    /// Takes the questions of `busy` back.
    pub fn end_busy(&self) {
        let ids = self
            .sql("SELECT id FROM information_schema.processlist WHERE info = 'SELECT SLEEP(600)'");
        for id in ids.split_ascii_whitespace() {
            self.sql(&format!("KILL QUERY {id}"));
        }
    }

    /// Kills all processes at once with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }
}

fn data(directory: &TempDir) -> String {
    format!("--datadir={}", directory.path().join("data").display())
}

/// PostgreSQL on a port and a socket, with a role `plimsoll`; by port a password is asked for.
pub struct PostgreSql {
    pub directory: TempDir,
    pub port: u16,
    process: Option<Process>,
}

/// Beside the server on the PATH, or else the newest of Debian's versions, which are off it.
fn program(name: &str) -> PathBuf {
    if let Some(server) = on_path("postgres") {
        return server.with_file_name(name);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect("needs Debian's postgresql");
    let newest = versions.filter_map(|entry| {
        let entry = entry.ok()?;
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let path = entry.path().join("bin").join(name);
        path.exists().then_some((version, path))
    });
    newest.max().expect("needs Debian's postgresql").1
}

/// A command that runs as a user accepted by PostgreSQL.
fn unprivileged(name: &str) -> Command {
    let mut command = tied("QUIT");
    if is_root() {
        command.args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--init-groups",
        ]);
    }
    command.arg("--").arg(program(name));
    command
}

impl PostgreSql {
    /// Without data yet.
    fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("plimsoll-sql-")
            .tempdir_in("/tmp")
            .unwrap();
        if is_root() {
            done(Command::new("chown").arg("postgres:").arg(directory.path()));
        }
        PostgreSql {
            port: free_port(),
            directory,
            process: None,
        }
    }

    pub fn start() -> Self {
        let mut server = PostgreSql::new();
        done(
            unprivileged("initdb")
                .arg("-D")
                .arg(server.data())
                .args(["-U", "postgres", "--auth-local", "trust", "--no-sync"])
                .args(["--auth-host", "scram-sha-256", "--locale", "C"])
                .args(["--wal-segsize", "4"]),
        );
        server.start_again();
        server.sql(&format!(
            "CREATE ROLE plimsoll LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_monitor"
        ));
        server
    }

    /// Another that follows this one.
    pub fn standby(&self) -> Self {
        let mut standby = PostgreSql::new();
        let from = format!(
            "host={} port={} user=postgres",
            self.directory.path().display(),
            self.port
        );
        done(
            unprivileged("pg_basebackup")
                .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
                .arg("-D")
                .arg(standby.data())
                .args(["-d", &from]),
        );
        // It asks after half of that whether its primary is still there.
        let more = "wal_receiver_timeout = 400ms\nwal_retrieve_retry_interval = 100ms\n";
        let config = File::options()
            .append(true)
            .open(standby.data().join("postgresql.conf"));
        config.unwrap().write_all(more.as_bytes()).unwrap();
        standby.start_again();
        standby
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn start_again(&mut self) {
        self.spawn();
        wait_long("PostgreSQL answers", || {
            let process = self.process.as_mut().unwrap();
            if process.0.try_wait().unwrap().is_some() {
                // After `kill` it refuses to start while a backend of before still holds the shared memory.
                let log = self.log();
                assert!(log.contains("is still in use"), "{log}");
                self.spawn();
            }
            let output = self.client().args(["-c", "SELECT 1"]).output().unwrap();
            output.status.success().then_some(())
        });
    }

    fn spawn(&mut self) {
        let mut command = unprivileged("postgres");
        command.arg("-D").arg(self.data());
        for setting in [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "shared_buffers=8MB",
            &format!("port={}", self.port),
            &format!(
                "unix_socket_directories={}",
                self.directory.path().display()
            ),
        ] {
            command.args(["-c", setting]);
        }
        let log = File::create(self.log_path()).unwrap();
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        self.process = Some(Process(command.stderr(log).spawn().unwrap()));
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        let name = format!(".s.PGSQL.{}", self.port);
        self.directory.path().join(name)
    }

    fn client(&self) -> Command {
        self.client_of("postgres")
    }

    fn client_of(&self, database: &str) -> Command {
        let mut command = Command::new(program("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        command.args(["-U", "postgres", "-d", database, "-p"]);
        command.arg(self.port.to_string()).arg("-h");
        command.arg(self.directory.path());
        command
    }

    pub fn sql(&self, statement: &str) -> String {
        self.sql_in("postgres", statement)
    }

    /// Number of the agents' connections with this state.
    pub fn queries(&self, state: &str) -> String {
        let count = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plimsoll-partition' AND state {state}"
        );
        self.sql(&count).trim().to_owned()
    }

    pub fn sql_in(&self, database: &str, statement: &str) -> String {
        let output = done(self.client_of(database).args(["-c", statement]));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn busy(&self, count: usize) -> Clients {
        clients(count, || {
            let mut client = self.client();
            client.args(["-c", "SELECT pg_sleep(600)"]);
            client
        })
    }

    /// Takes the questions of `busy` back.
    pub fn end_busy(&self) {
        self.sql(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'",
        );
    }

    /// SIGKILL: its backends end when they notice.
    pub fn kill(&mut self) {
        self.process = None;
    }
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        // So that it removes its shared memory; SIGKILL follows.
        if let Some(process) = &mut self.process {
            process.signal("-QUIT");
            let _ = process.0.wait();
        }
    }
}

/// An agent whose jobs come from this `[service.jobs]` table, not started. `PASSWORD` in it is a file
/// with the password.
pub fn unstarted(service: &Service, jobs: &str) -> Agent {
    unstarted_with(service, "jobs", jobs)
}

/// The same with another table of the service's.
pub fn unstarted_with(service: &Service, name: &str, table: &str) -> Agent {
    let agent = Agent::unstarted(service, "");
    let file = password_file(&agent);
    fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    set_table(&agent, name, table);
    agent
}

pub fn password_file(agent: &Agent) -> PathBuf {
    agent.directory.path().join("password")
}

/// The table from here on; to be started or reloaded.
pub fn set_jobs(agent: &Agent, jobs: &str) {
    set_table(agent, "jobs", jobs);
}

/// The same with another table.
pub fn set_table(agent: &Agent, name: &str, table: &str) {
    let config = agent.config();
    let header = format!("[service.{name}]");
    let config = config.split(&header).next().unwrap();
    let file = password_file(agent);
    let table = table.replace("PASSWORD", &toml_path(&file));
    agent.write_config(&format!("{config}{header}\n{table}\n"));
}

fn toml_path(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

pub fn jobs(agent: &Agent) -> Option<f64> {
    agent.service("stocks")["jobs"].as_f64()
}

pub fn wait_jobs(agent: &Agent, wanted: Option<f64>) {
    wait_for(&format!("{wanted:?} jobs: {}", agent.log()), || {
        (jobs(agent) == wanted).then_some(())
    });
}

pub fn failures(agent: &Agent) -> f64 {
    agent.count("plimsoll_source_failures_total{kind=\"jobs\",service=\"stocks\"}")
}

pub fn wait_logged(agent: &Agent, text: &str) {
    wait_for(&format!("{text:?} in the log: {}", agent.log()), || {
        agent.log().contains(text).then_some(())
    });
}

/// Asserts that the agent keeps working, and that its log contains no secret.
pub fn assert_serving(agent: &Agent) {
    assert_eq!(agent.words(), "up 50% maxconn:40");
    let before = steps(agent);
    wait_for("another step", || (steps(agent) > before).then_some(()));
    assert!(!agent.log().contains(PASSWORD));
}

pub fn steps(agent: &Agent) -> f64 {
    let text = agent.get("/metrics").unwrap().1;
    let steps = text.lines().filter(|line| {
        line.starts_with("plimsoll_steps_total{") && line.contains("service=\"stocks\"")
    });
    let each = steps.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    each.sum::<f64>()
}

/// A packet of MySQL's.
pub fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&[length[0], length[1], length[2], sequence], body].concat()
}

/// MySQL's first packet.
pub fn hello(plugin: &str, capabilities: u32) -> Vec<u8> {
    let [c0, c1, c2, c3] = capabilities.to_le_bytes();
    let mut body = b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0".to_vec();
    body.extend([c0, c1, 45, 2, 0, c2, c3, 21]);
    body.extend([0; 10]);
    body.extend(b"ijklmnopqrst\0");
    body.extend(plugin.as_bytes());
    body.push(0);
    packet(0, &body)
}

/// Capabilities required of every server that the agent talks to.
pub const CAPABLE: u32 = 0x0008_8200;
