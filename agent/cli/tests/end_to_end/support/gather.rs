//! `plimsoll gather` on a free port, gone when dropped.

use std::{
    fs::File,
    io::Read,
    net::TcpStream,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};

use serde_json::Value;

use super::{Process, free_port, http_get, lines, wait_for};

const PATH: &str = "/v1/gather";
/// Token of the callers.
pub const TOKEN: &str = "a-token-for-callers";

pub struct Gather {
    pub directory: tempfile::TempDir,
    pub port: u16,
    pub process: Option<Process>,
}

impl Gather {
    /// Starts a gather with additional tables.
    pub fn start(tables: &str) -> Self {
        let mut gather = Gather::unstarted(tables);
        gather.start_again();
        gather
    }

    pub fn unstarted(tables: &str) -> Self {
        let gather = Gather {
            directory: tempfile::tempdir().unwrap(),
            port: free_port(),
            process: None,
        };
        std::fs::write(gather.path("token"), TOKEN).unwrap();
        gather.configure(tables);
        gather
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `DIR` is its directory.
    pub fn configure(&self, tables: &str) {
        let directory = self.directory.path().display().to_string();
        let text = format!(
            "[http]\nlisten = \"127.0.0.1:{}\"\ntoken_file = \"DIR/token\"\n{tables}",
            self.port
        );
        let text = text.replace("DIR", &directory);
        std::fs::write(self.path("gather.toml"), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command
            .args(["gather", "--config"])
            .arg(self.path("gather.toml"))
            .stdin(Stdio::null());
        command
    }

    pub fn start_again(&mut self) {
        // The one before ends first, or it would still have the port.
        self.process = None;
        let log = File::create(self.path("log")).unwrap();
        let child = self.command().stderr(log).spawn().unwrap();
        self.process = Some(Process(child));
        wait_for("the gather is ready", || {
            if let Some(status) = self.process.as_mut().unwrap().0.try_wait().unwrap() {
                panic!("gather ended with {status}: {}", self.log());
            }
            http_get(self.port, "/healthz").filter(|(status, _)| *status == 200)
        });
    }

    /// Output of a check of its configuration.
    pub fn checked(&self) -> String {
        self.said("--check-config")
    }

    /// Output of another process with the same configuration and this option.
    pub fn said(&self, option: &str) -> String {
        let output = self.command().arg(option).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), said.is_empty(), "{said}");
        said
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        process.signal("-TERM");
        process.wait()
    }

    /// Status and lines.
    pub fn ask(&self, question: &Value) -> (u16, Vec<Value>) {
        lines::ask(self.port, PATH, TOKEN, question)
    }

    /// The connection on which something is asked, its answer not read.
    pub fn begin(&self, question: &Value) -> TcpStream {
        lines::begin(self.port, PATH, TOKEN, question)
    }

    pub fn metric(&self, name: &str) -> f64 {
        let text = http_get(self.port, "/metrics").unwrap().1;
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or(0.0)
    }
}

/// Reads to the end; returns the number of bytes.
pub fn drain(stream: &mut TcpStream, mut each: impl FnMut(&[u8])) -> u64 {
    let (mut buffer, mut all) = (vec![0; 1 << 20], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        each(&buffer[..count]);
        all += count as u64;
    }
    all
}
