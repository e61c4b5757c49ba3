//! The agents' configurations: one file per host, one `[[service]]` for each of its servers.

use std::fmt::Write;

use toml::Value;

/// Port of an agent's log listener for its first server; further servers of a host get the next ports.
pub const LOG_PORT: u16 = 5514;
/// Port of an agent's agent-check listener.
pub const CHECK_PORT: u16 = 9101;
/// Placeholder for an unknown address.
const UNKNOWN: &str = "ADDRESS";

/// Source of delays for the agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// HAProxy's log.
    Log,
    /// The service's own histogram.
    Histogram {
        /// URL at which the node's agent reaches it.
        url: String,
        /// Name of the metric.
        name: String,
    },
}

/// Configuration of one host's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Host, in a form for messages.
    pub host: String,
    /// Name of the file, without a directory.
    pub file: String,
    /// Content of the file.
    pub text: String,
}

/// One server of a host.
pub struct Service {
    /// Name of the service in the agent.
    pub name: String,
    /// HAProxy's `agent-send` text, and the server's name in the log.
    pub identity: String,
}

/// Configuration of a host's agent. `address` is `None` if only HAProxy knows it, at run time.
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
