//! Private authorities, their certificates, and programs that use them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{Agent, redis::openssl, wait_for};

const NEW: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";

/// An authority, in a directory of its own.
pub struct Authority(tempfile::TempDir);

impl Authority {
    /// With certificates `server`, for loopback, and `client`.
    pub fn new() -> Self {
        let authority = Authority(tempfile::tempdir().unwrap());
        authority.run("-keyout ca.key -out ca.pem -subj /CN=test-ca");
        authority.issue("server", "subjectAltName=IP:127.0.0.1,DNS:localhost");
        authority.issue("client", "extendedKeyUsage=clientAuth");
        authority
    }

    fn issue(&self, name: &str, extension: &str) {
        self.run(&format!(
            "-keyout {name}.key -out {name}.pem -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext basicConstraints=critical,CA:FALSE -addext {extension}"
        ));
    }

    fn run(&self, words: &str) {
        let words = format!("{NEW} {words}");
        openssl(self.0.path(), &words.split(' ').collect::<Vec<_>>());
    }

    /// `NAME.pem`, `NAME.key`; `ca.pem` is the authority's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The text of a table's lines that name these files, by key.
    pub fn keys(&self, files: &[(&str, &str)]) -> String {
        let line =
            |(key, name): &(&str, &str)| format!("{key} = \"{}\"\n", self.file(name).display());
        files.iter().map(line).collect()
    }

    /// `[tls]` of a client with its certificate.
    pub fn client_table(&self) -> String {
        let files = [
            ("ca_file", "ca.pem"),
            ("certificate_file", "client.pem"),
            ("key_file", "client.key"),
        ];
        format!("[tls]\n{}", self.keys(&files))
    }

    /// `[http.tls]` of a server that wants certificates of its clients.
    pub fn server_table(&self) -> String {
        let files = [
            ("certificate_file", "server.pem"),
            ("key_file", "server.key"),
            ("client_ca_file", "ca.pem"),
        ];
        format!("[http.tls]\n{}", self.keys(&files))
    }

    /// Arguments of a program of ours with the client's certificate.
    pub fn arguments(&self) -> Vec<String> {
        let files = [
            ("--ca-file", "ca.pem"),
            ("--certificate-file", "client.pem"),
            ("--key-file", "client.key"),
        ];
        let words = files.iter().flat_map(|(option, name)| {
            [(*option).to_owned(), self.file(name).display().to_string()]
        });
        words.collect()
    }

    /// Status by curl, which trusts this authority; what it says where there is none.
    pub fn get(&self, port: u16, path: &str, own: Option<&Authority>) -> Result<u16, String> {
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            "--max-time",
            "5",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]);
        command.arg("--cacert").arg(self.file("ca.pem"));
        if let Some(own) = own {
            command.arg("--cert").arg(own.file("client.pem"));
            command.arg("--key").arg(own.file("client.key"));
        }
        command.arg(format!("https://127.0.0.1:{port}{path}"));
        let output = command.output().expect("curl is installed");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).parse().unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Has a running agent speak TLS to clients of this authority.
    pub fn guard(&self, agent: &Agent) {
        agent.write_config(&(agent.config() + "\n" + &self.server_table()));
        agent.process.as_ref().unwrap().signal("-HUP");
        self.wait_tls(agent.http_port);
    }

    pub fn wait_tls(&self, port: u16) {
        wait_for("it speaks TLS", || {
            (self.get(port, "/readyz", Some(self)) == Ok(200)).then_some(())
        });
    }
}

/// Puts a file in place of another at once.
pub fn replace(file: &Path, with: &Path) {
    let next = file.with_extension("next");
    std::fs::copy(with, &next).unwrap();
    std::fs::rename(next, file).unwrap();
}
