//! Groups servers by host, and determines their agents' addresses.

use super::{Draft, Wish, plain};
use crate::{
    address::{self, Host},
    agents::{self, Agent, LOG_PORT, Service, Source},
};

/// Maximum length of an `agent-send` text that the agent accepts.
const MAX_IDENTITY_BYTES: usize = 120;

/// Host with an agent.
pub struct Node {
    /// `None` if only HAProxy resolves it, at run time.
    host: Option<Host>,
    file: String,
    services: Vec<Service>,
}

impl Node {
    /// Addresses to which HAProxy sends log lines.
    pub fn log_targets(&self) -> impl Iterator<Item = String> {
        let at = match &self.host {
            Some(Host::Ip(ip)) if ip.is_ipv6() => format!("[{ip}]"),
            Some(Host::Ip(ip)) => ip.to_string(),
            Some(Host::Name(name)) => name.clone(),
            Some(Host::Unix) | None => "127.0.0.1".to_owned(),
        };
        (LOG_PORT..)
            .zip(&self.services)
            .map(move |(port, _)| format!("{at}:{port}"))
    }
}

fn is_identity(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_graphic();
    (1..=MAX_IDENTITY_BYTES).contains(&text.len()) && text.bytes().all(is_good)
}

impl Draft<'_> {
    /// Hosts of the servers that get an agent.
    pub fn nodes(&mut self) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut names: Vec<(String, usize)> = Vec::new();
        let servers = std::mem::take(&mut self.servers);
        for server in &servers {
            let line = server.line.number;
            if let Some((_, first)) = names.iter().find(|(name, _)| name == server.name) {
                self.refuse(
                    line,
                    format!(
                        "duplicate server \"{}\", first at line {first}",
                        server.name
                    ),
                );
            }
            names.push((server.name.to_owned(), line));
            if !plain(server.name) {
                self.refuse(
                    line,
                    "HAProxy allows only letters, digits and -_.: in names",
                );
            }
            if let Some(keyword) = server.own.lacking() {
                let text = format!("server \"{}\": {keyword} has no value", server.name);
                self.refuse(line, text);
            }
            // It would escape what is appended.
            let last = server.line.words.last();
            if last.is_some_and(|word| word.text.ends_with('\\')) {
                let text = format!(
                    "server \"{}\": its last word ends in a backslash",
                    server.name
                );
                self.refuse(line, text);
            }
            if server.without_agent(&servers) {
                continue;
            }
            if server.foreign_agent(&servers) {
                self.refuse(
                    line,
                    format!(
                        "server \"{}\" already has an agent-check (agent-port {}), whose answers would \
                         conflict with Plimsoll's: remove it first",
                        server.name,
                        server.effective.get("agent-port").unwrap_or("unknown"),
                    ),
                );
            }
            let Some(host) = self.host(server) else {
                continue;
            };
            let backend = &self.section.name;
            let service = Service {
                name: backend.clone(),
                identity: server.identity(backend),
                node: format!("{backend}/{}", server.name),
            };
            let identity = &service.identity;
            if !is_identity(identity) {
                let text = format!(
                    "server \"{}\": an agent accepts up to {MAX_IDENTITY_BYTES} printable ASCII characters for the \
                     text of agent-send, not {identity:?}",
                    server.name
                );
                self.refuse(line, text);
            }
            match nodes
                .iter_mut()
                .find(|node| host.is_some() && node.host == host)
            {
                Some(node) => node.services.push(service),
                None => nodes.push(Node {
                    host,
                    file: format!("{}.toml", server.name),
                    services: vec![service],
                }),
            }
        }
        self.servers = servers;
        for node in nodes.iter_mut().filter(|node| node.services.len() > 1) {
            for service in &mut node.services {
                service.name.clone_from(&service.identity);
            }
        }
        nodes
    }

    /// Host of a server: `None` if it is refused, `Some(None)` if it is known only at run time.
    fn host(&mut self, server: &crate::Server) -> Option<Option<Host>> {
        let line = server.line.number;
        let variable = |name: &str| self.config.variable(name, self.wish.environment);
        let found = match &server.address.unset {
            Some(name) => Err(address::unset(name)),
            None => address::parse(&server.address.text, &variable),
        };
        let host = match found {
            Ok((host, _)) => host,
            Err(why) => {
                self.refuse(line, format!("server \"{}\": {why}", server.name));
                return None;
            }
        };
        let by_name = matches!(host, Host::Name(_));
        if server.template {
            if self.wish.source == Source::Log {
                self.refuse(
                    line,
                    format!(
                        "server-template \"{}\": its nodes are known only at run time, but HAProxy's log needs their \
                         addresses earlier: name the service's own histogram with --metrics and --histogram",
                        server.name
                    ),
                );
            }
            return Some(None);
        }
        let starts_without = server
            .effective
            .get("init-addr")
            .is_some_and(|it| it.split(',').any(|it| it == "none"));
        if by_name && starts_without && self.wish.source == Source::Log {
            self.refuse(
                line,
                format!(
                    "server \"{}\": HAProxy may start without the address of its name (init-addr), but could not send \
                     it log lines then: name the service's own histogram with --metrics and --histogram, or \
                     write its address",
                    server.name
                ),
            );
        }
        if server.address.text.contains('$') && self.wish.source == Source::Log {
            self.note(
                line,
                "the log lines contain the address from the current environment",
            );
        }
        Some(Some(host))
    }
}

/// Configurations of the hosts' agents.
pub fn agents(nodes: &[Node], wish: &Wish) -> Vec<Agent> {
    nodes
        .iter()
        .map(|node| {
            let (host, address) = match &node.host {
                Some(Host::Ip(ip)) => (ip.to_string(), Some(ip.to_string())),
                Some(Host::Name(name)) => {
                    (name.clone(), (wish.resolve)(name).map(|ip| ip.to_string()))
                }
                Some(Host::Unix) => ("this host".to_owned(), Some("127.0.0.1".to_owned())),
                None => ("every node of the template".to_owned(), None),
            };
            agents::agent(
                host,
                node.file.clone(),
                address.as_deref(),
                &node.services,
                wish.sla,
                &wish.source,
                wish.enforce,
            )
        })
        .collect()
}
