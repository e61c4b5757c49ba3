//! A real PostgreSQL primary with standbys, on unix sockets only; ends with its handle.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use super::{Node, SMALL, until, wait_paused};

const SETUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../postgres");

/// The newest of Debian's versions.
fn program(name: &str) -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .expect("needs Debian's postgresql")
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            let path = entry.path().join("bin").join(name);
            path.exists().then_some((version, path))
        })
        .collect();
    found.sort();
    found.pop().expect("needs Debian's postgresql").1
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command as a user that PostgreSQL accepts, ended in order when the test's thread ends.
fn unprivileged(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if is_root() {
        command.args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--init-groups",
        ]);
    }
    command.arg("--").arg(program(name)).stderr(Stdio::null());
    command
}

fn done(command: &mut Command) -> Output {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn whoami() -> String {
    let output = done(Command::new("id").arg("-un"));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// One PostgreSQL: its socket, and its data in a directory below.
pub struct Server {
    pub directory: PathBuf,
    child: Option<Child>,
}

impl Server {
    fn new(directory: PathBuf) -> Self {
        let mut server = Self {
            directory,
            child: None,
        };
        server.start();
        server
    }

    pub fn start(&mut self) {
        let sockets = format!("unix_socket_directories={}", self.directory.display());
        let mut command = unprivileged("postgres");
        command.arg("-D").arg(self.directory.join("data"));
        // Nothing here loses its power, and tests are not to wait for disks.
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "shared_buffers=8MB",
            &sockets,
        ] {
            command.args(["-c", setting]);
        }
        self.child = Some(command.spawn().unwrap());
        until("PostgreSQL answers", || self.psql("SELECT 1").is_some());
    }

    /// Output of a statement; `None` if the server is unavailable.
    pub fn psql(&self, statement: &str) -> Option<String> {
        let output = Command::new(program("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
            ])
            .arg("-h")
            .arg(&self.directory)
            .args(["-c", statement, "postgres"])
            .stderr(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.trim().to_owned())
    }

    /// URL for `--database`.
    pub fn connection(&self) -> String {
        format!(
            "host={} user=stocks dbname=stocks",
            self.directory.display()
        )
    }

    /// A node of stocks on it.
    pub fn node(&self, name: &str, role: &str, flags: &[&str]) -> Node {
        let connection = self.connection();
        let mut all = vec!["--name", name, "--role", role, "--database", &connection];
        all.extend(SMALL);
        all.extend(["--workers", "2"]);
        all.extend(flags);
        Node::start_on(&all)
    }

    /// Ends all its processes at once; unlike SIGKILL this removes its shared memory.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        signal("-QUIT", &[child.id()]);
        child.wait().unwrap();
    }

    /// All its processes, until [`Server::go_on`].
    pub fn pause(&self) {
        wait_paused(&self.signal_all("-STOP"));
    }

    pub fn go_on(&self) {
        self.signal_all("-CONT");
    }

    fn signal_all(&self, name: &str) -> Vec<u32> {
        let postmaster = self.child.as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
        let mut all = vec![postmaster];
        all.extend(
            children
                .unwrap()
                .split_whitespace()
                .map(|pid| pid.parse::<u32>().unwrap()),
        );
        signal(name, &all);
        all
    }
}

fn signal(name: &str, pids: &[u32]) {
    // Some may have ended meanwhile.
    let _ = Command::new("kill")
        .arg(name)
        .args(pids.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.go_on();
        }
        self.kill();
    }
}

/// A new primary; standbys are made from it.
pub struct Databases {
    pub primary: Server,
    root: TempDir,
}

impl Databases {
    pub fn new() -> Self {
        // Accessible to the unprivileged user.
        let root = tempfile::Builder::new()
            .prefix("stocks-sql-")
            .tempdir_in("/tmp")
            .unwrap();
        if is_root() {
            done(Command::new("chown").arg("postgres:").arg(root.path()));
        }
        let directory = place(root.path(), "primary");
        done(
            unprivileged("initdb")
                .arg("-D")
                .arg(directory.join("data"))
                .args(["-U", "postgres", "--auth", "peer", "--no-sync"])
                .args(["--encoding", "UTF8", "--locale", "C", "--wal-segsize", "4"]),
        );
        let mut access = String::new();
        for role in ["postgres", "replicator", "stocks"] {
            for user in [whoami(), "postgres".to_owned()] {
                access.push_str(&format!("lab {user} {role}\n"));
            }
        }
        let data = directory.join("data");
        append(&data.join("pg_ident.conf"), &access);
        let peers = "local all all peer map=lab\nlocal replication all peer map=lab\n";
        fs::write(data.join("pg_hba.conf"), peers).unwrap();
        let common = fs::read_to_string(Path::new(SETUP).join("node.conf")).unwrap();
        append(&data.join("postgresql.conf"), &common);
        let primary = Server::new(directory);
        done(
            Command::new(program("psql"))
                .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"])
                .arg(&primary.directory)
                .arg("-f")
                .arg(Path::new(SETUP).join("roles.sql"))
                .arg("postgres"),
        );
        Self { primary, root }
    }

    pub fn standby(&self, name: &str) -> Server {
        let directory = place(self.root.path(), name);
        let source = format!(
            "host={} user=replicator application_name={name}",
            self.primary.directory.display()
        );
        // It writes its primary's address beside the data.
        done(
            unprivileged("pg_basebackup")
                .args([
                    "--write-recovery-conf",
                    "--checkpoint",
                    "fast",
                    "--no-sync",
                    "--wal-method",
                    "fetch",
                    "-d",
                ])
                .arg(&source)
                .arg("-D")
                .arg(directory.join("data")),
        );
        Server::new(directory)
    }
}

/// A directory of the unprivileged user's.
fn place(root: &Path, name: &str) -> PathBuf {
    let directory = root.join(name);
    fs::create_dir(&directory).unwrap();
    if is_root() {
        done(Command::new("chown").arg("postgres:").arg(&directory));
    }
    directory
}

fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).unwrap();
    fs::write(path, before + text).unwrap();
}
