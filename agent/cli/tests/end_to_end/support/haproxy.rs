//! The real HAProxy, gone when dropped.

use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Agent, PATIENCE, Process, free_port, wait_for};

/// A real HAProxy.
pub struct Haproxy {
    directory: tempfile::TempDir,
    _process: Process,
}

impl Haproxy {
    /// Starts an HAProxy with one server controlled by the agent.
    pub fn start(agent: &Agent, agent_send: &str) -> Self {
        Haproxy::with(&format!(
            "frontend in\n  bind 127.0.0.1:{port}\n  default_backend queries\n\
             backend queries\n  balance roundrobin\n  default-server weight 100 agent-check agent-inter 100ms\n  \
             server node1 127.0.0.1:{server} agent-port {check} agent-send \"{agent_send}\"\n",
            port = free_port(),
            server = free_port(),
            check = agent.check_port,
        ))
    }

    /// Starts an HAProxy with these sections.
    pub fn with(sections: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "global\n  stats socket {dir}/stats.sock mode 600 level admin\n\
             defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
             {sections}",
            dir = directory.path().display(),
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
        self.row("queries,node1")
    }

    /// The row of `show stat` for `PROXY,SERVER`.
    pub fn row(&self, of: &str) -> HashMap<String, String> {
        let csv = self.cli("show stat").unwrap();
        let mut lines = csv.lines();
        let names: Vec<_> = lines
            .next()
            .unwrap()
            .trim_start_matches("# ")
            .split(',')
            .collect();
        let start = format!("{of},");
        let row = lines.find(|line| line.starts_with(&start)).unwrap();
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
