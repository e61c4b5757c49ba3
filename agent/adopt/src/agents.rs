//! The agents' configurations: one file a host, one `[[service]]` for each of its servers.

use std::fmt::Write;

use toml::Value;

/// The port of every agent's log listener; further servers of one host have the next ones.
pub const LOG_PORT: u16 = 5514;
/// Where HAProxy asks.
pub const CHECK_PORT: u16 = 9101;
/// Stands where an address is not known.
const UNKNOWN: &str = "ADDRESS";

/// Where the agent learns how long requests take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// HAProxy's log.
    Log,
    /// The service's own histogram.
    Histogram {
        /// As the agent on the node reaches it.
        url: String,
        /// The metric's name.
        name: String,
    },
}

/// What one host's agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The host, in words for people.
    pub host: String,
    /// A name for the file, without a directory.
    pub file: String,
    /// The file.
    pub text: String,
}

/// One server of a host.
pub struct Service {
    /// The agent's name for it.
    pub name: String,
    /// HAProxy's `agent-send`, and its server in the log.
    pub identity: String,
}

/// `address` is none where only HAProxy knows it, at run time.
pub fn agent(
    host: String,
    file: String,
    address: Option<&str>,
    services: &[Service],
    sla: &str,
    source: &Source,
) -> Agent {
    let at = match address {
        Some(address) if address.contains(':') => format!("[{address}]"),
        Some(address) => address.to_owned(),
        None => UNKNOWN.to_owned(),
    };
    let note = if address.is_none() {
        " # this node's address in its place"
    } else {
        ""
    };
    let quoted = |text: &str| Value::from(text).to_string();
    let mut text = format!(
        "[agent]\nstate_directory = \"/var/lib/plimsoll\"\n\n[http]\nlisten = {}{note}\n\n[agent_check]\nlisten = {}{note}\n\n\
         [control]\nsocket = \"/run/plimsoll/control.sock\"\n",
        quoted(&format!("{at}:9464")),
        quoted(&format!("{at}:{CHECK_PORT}")),
    );
    for (service, port) in services.iter().zip(LOG_PORT..) {
        let identity = quoted(&service.identity);
        let _ = write!(text, "\n[[service]]\nname = {}\n", quoted(&service.name));
        if service.name != service.identity {
            let _ = writeln!(text, "identities = [{identity}]");
        }
        let _ = write!(
            text,
            "\n[service.sla]\ndelay = {}\n\n[service.source]\n",
            quoted(sla)
        );
        let _ = match source {
            Source::Log => write!(
                text,
                "kind = \"haproxy-log\"\nlisten = {}{note}\nnode = {identity}\n",
                quoted(&format!("udp://{at}:{port}")),
            ),
            Source::Histogram { url, name } => write!(
                text,
                "kind = \"prometheus\"\nurl = {}\nhistogram = {}\n",
                quoted(url),
                quoted(name),
            ),
        };
    }
    Agent { host, file, text }
}
