//! The agents' configurations: one file per host, one `[[service]]` for each of its servers.

use std::fmt::Write;

use toml::Value;

/// Port of an agent's log listener for its first server; further servers of a host get the next ports.
pub const LOG_PORT: u16 = 5514;
/// Port of an agent's agent-check listener.
pub const CHECK_PORT: u16 = 9101;
/// Mode of a service until the proxies obey; the guide's command changes it to `enforce`.
pub const OBSERVE: &str = "mode = \"observe\" # proxies are not affected yet";
/// Setting of the directory in which an agent keeps learned values.
pub const STATE: &str = "state_directory = \"/var/lib/plimsoll\"";
/// Placeholder for an unknown address.
pub const UNKNOWN: &str = "ADDRESS";

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
        /// Gauge of requests in progress.
        gauge: Option<String>,
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
    /// HAProxy's `agent-send` text.
    pub identity: String,
    /// The server's name in HAProxy's log.
    pub node: String,
}

/// Comment on an address: empty unless it is not known.
pub fn placeholder(unknown: bool) -> &'static str {
    match unknown {
        true => " # replace by this node's address",
        false => "",
    }
}

/// Configuration of a host's agent. `address` is `None` if only HAProxy knows it, at run time; without `enforce` the
/// agent begins by observing.
pub fn agent(
    host: String,
    file: String,
    address: Option<&str>,
    services: &[Service],
    sla: &str,
    source: &Source,
    enforce: bool,
) -> Agent {
    let at = match address {
        Some(address) if address.contains(':') => format!("[{address}]"),
        Some(address) => address.to_owned(),
        None => UNKNOWN.to_owned(),
    };
    let note = placeholder(address.is_none());
    let quoted = |text: &str| Value::from(text).to_string();
    let mut text = format!(
        "[agent]\n{STATE}\n\n[http]\nlisten = {}{note}\n\n[agent_check]\nlisten = {}{note}\n\n\
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
        if !enforce {
            let _ = writeln!(text, "{OBSERVE}");
        }
        let _ = write!(
            text,
            "\n[service.sla]\ndelay = {}\n\n[service.source]\n",
            quoted(sla)
        );
        let _ = match source {
            Source::Log => write!(
                text,
                "kind = \"haproxy-log\"\nlisten = {}{note}\nnode = {}\n",
                quoted(&format!("udp://{at}:{port}")),
                quoted(&service.node),
            ),
            Source::Histogram { url, name, gauge } => {
                let (url, name) = (quoted(url), quoted(name));
                let jobs = gauge.as_ref().map_or(String::new(), |gauge| {
                    format!(
                        "\n[service.jobs]\nkind = \"prometheus\"\ngauge = {}\n",
                        quoted(gauge)
                    )
                });
                write!(
                    text,
                    "kind = \"prometheus\"\nurl = {url}\nhistogram = {name}\n{jobs}"
                )
            }
        };
    }
    Agent { host, file, text }
}
