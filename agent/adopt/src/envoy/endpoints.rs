//! Endpoints of a cluster in the file, and their properties that an agent cannot serve to Envoy.

use std::{fmt, net::IpAddr};

use super::{
    Draft,
    new::New,
    yaml::{Id, Kind, Tree, is_key},
};

/// Maximum number of peers of an agent.
const MAX_PEERS: usize = 256;

/// Host of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name that Envoy resolves.
    Name(String),
}

impl Host {
    /// Whether it is a name.
    pub fn is_name(&self) -> bool {
        matches!(self, Host::Name(_))
    }

    /// The value as written in YAML.
    pub fn written(&self) -> New {
        match self {
            Host::Ip(ip) if ip.is_ipv4() => New::plain(ip),
            other => New::text(&other.to_string()),
        }
    }

    /// The value as written before a port.
    pub fn bracketed(&self) -> String {
        match self {
            Host::Ip(ip) if ip.is_ipv6() => format!("[{ip}]"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(ip) => write!(f, "{ip}"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

/// A node that gets an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its host.
    pub host: Host,
    /// The service's port there.
    pub port: u16,
}

/// All `lb_endpoints`, each with its locality.
fn all(tree: &Tree, cluster: Id) -> Vec<(Id, Id)> {
    let Some(localities) = tree.path(cluster, &["load_assignment", "endpoints"]) else {
        return Vec::new();
    };
    let of = |locality: Id| tree.get(locality, "lb_endpoints").map(|it| (locality, it));
    let found = tree.items(localities).iter().filter_map(|id| of(*id));
    found
        .flat_map(|(locality, endpoints)| {
            let items = tree.items(endpoints).iter();
            items.map(move |endpoint| (locality, *endpoint))
        })
        .collect()
}

/// Addresses of a cluster's endpoints, for display.
pub fn addresses(tree: &Tree, cluster: Id) -> Vec<String> {
    all(tree, cluster)
        .into_iter()
        .map(|(_, id)| {
            let at = tree.path(id, &["endpoint", "address", "socket_address"]);
            let at = |key| at.and_then(|it| tree.text_at(it, &[key])).unwrap_or("?");
            match at("address") {
                address if address.contains(':') => format!("[{address}]:{}", at("port_value")),
                address => format!("{address}:{}", at("port_value")),
            }
        })
        .collect()
}

impl Draft<'_> {
    /// Nodes of the cluster; rejects properties that an agent cannot serve to Envoy.
    pub fn endpoints(&mut self) -> Vec<Endpoint> {
        let (tree, line) = (self.tree, self.tree.line(self.cluster));
        let Some((_, assignment)) = tree.entry(self.cluster, "load_assignment") else {
            self.refuse(line, "the cluster has no load_assignment");
            return Vec::new();
        };
        self.known(
            assignment,
            "load_assignment",
            &["cluster_name", "endpoints", "policy"],
        );
        if let Some(policy) = tree.get(assignment, "policy") {
            let text = "load_assignment.policy is removed: the agents provide the drop fraction";
            self.note(tree.line(policy), text);
        }
        let localities = tree.get(assignment, "endpoints").unwrap_or(assignment);
        let known = [
            "lb_endpoints",
            "locality",
            "priority",
            "load_balancing_weight",
            "metadata",
        ];
        for locality in tree.items(localities).to_vec() {
            self.known(locality, "its endpoints", &known);
        }
        if let [_, second, ..] = tree.items(localities)
            && tree.get(*second, "priority").is_none()
        {
            self.note(
                tree.line(*second),
                "localities are removed: the agents put all nodes into one",
            );
        }
        let mut found: Vec<Endpoint> = Vec::new();
        for (locality, id) in all(tree, self.cluster) {
            let priority = tree.get(locality, "priority");
            if let Some(priority) = priority.filter(|it| !matches!(tree.text(*it), "" | "0")) {
                let text = format!(
                    "nodes of priority {} are used when others fail, but agents provide no priorities: put them \
                     into a separate cluster",
                    tree.text(priority)
                );
                self.refuse(tree.line(priority), text);
            }
            let Some(endpoint) = self.endpoint(id) else {
                continue;
            };
            if let Some(other) = found.iter().find(|it| it.host == endpoint.host) {
                let text = format!(
                    "{} occurs before, with port {}: a host's agent provides only one address per service",
                    endpoint.host, other.port
                );
                self.refuse(tree.line(id), text);
            }
            found.push(endpoint);
        }
        if found.is_empty() && self.problems.is_empty() {
            self.refuse(line, "the cluster has no endpoints");
        }
        if found.len() > MAX_PEERS {
            let text = format!(
                "the cluster has {} nodes, but an agent supports only {MAX_PEERS} peers",
                found.len()
            );
            self.refuse(line, text);
        }
        self.problems.dedup();
        found
    }

    /// Rejects keys other than these.
    fn known(&mut self, id: Id, what: &str, known: &[&str]) {
        let tree = self.tree;
        for (key, _) in tree.entries(id).to_vec() {
            let text = tree.text(key);
            if !known.iter().any(|it| is_key(text, it)) {
                let text = format!("{what} have \"{text}\", which agents do not provide");
                self.refuse(tree.line(key), text);
            }
        }
    }

    fn endpoint(&mut self, id: Id) -> Option<Endpoint> {
        let tree = self.tree;
        let known = [
            "endpoint",
            "load_balancing_weight",
            "metadata",
            "health_status",
        ];
        self.known(id, "endpoints", &known);
        if let Some(status) = tree.get(id, "health_status")
            && !matches!(
                tree.text(status).to_ascii_uppercase().as_str(),
                "" | "0" | "1" | "UNKNOWN" | "HEALTHY"
            )
        {
            let text = format!(
                "this endpoint is {}: remove it, or make it healthy and drain its agent",
                tree.text(status)
            );
            self.refuse(tree.line(status), text);
        }
        for (key, text) in [
            (
                "load_balancing_weight",
                "weights of endpoints are removed: the agents provide them",
            ),
            (
                "metadata",
                "metadata of endpoints are removed: the agents provide none",
            ),
        ] {
            if let Some(value) = tree.get(id, key) {
                self.note(tree.line(value), text);
            }
        }
        let endpoint = tree.get(id, "endpoint").unwrap_or(id);
        if endpoint != id {
            self.known(endpoint, "endpoints", &["address", "hostname"]);
        }
        if let Some(name) = tree.get(endpoint, "hostname") {
            let text = "names of endpoints are removed: %UPSTREAM_HOST_NAME% becomes the address";
            self.note(tree.line(name), text);
        }
        let Some(address) = tree.path(endpoint, &["address", "socket_address"]) else {
            let text = "this endpoint has no socket_address, so there is no host whose agent could be polled";
            self.refuse(tree.line(id), text);
            return None;
        };
        self.known(
            address,
            "addresses",
            &["address", "port_value", "protocol", "ipv4_compat"],
        );
        let (written, line) = (
            tree.text_at(address, &["address"]).unwrap_or_default(),
            tree.line(address),
        );
        let port = tree.text_at(address, &["port_value"]).unwrap_or_default();
        let Some(port) = port.parse().ok().filter(|port| *port > 0) else {
            self.refuse(
                line,
                format!("{written:?} has no port_value from 1 to 65535, but {port:?}"),
            );
            return None;
        };
        let host = match written.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Err("is not the address of a node"),
            Ok(ip) => Ok(Host::Ip(ip)),
            Err(_) if self.kind == "STATIC" => {
                Err("is not an IP address, and the cluster's type is STATIC")
            }
            Err(_) if is_name(written) => Ok(Host::Name(written.to_owned())),
            Err(_) => Err("is neither an address nor a host name"),
        };
        let host = match host {
            Ok(host) => host,
            Err(why) => {
                self.refuse(line, format!("{written:?} {why}"));
                return None;
            }
        };
        if let Host::Name(name) = &host {
            let addresses = (self.wish.resolve)(name);
            let same_family = |it: &&IpAddr| it.is_ipv4() == addresses[0].is_ipv4();
            let count = addresses.iter().filter(same_family).count();
            if count > 1 {
                let text = format!(
                    "{name} resolves to {count} nodes, each of which has its own agent: list them individually"
                );
                self.refuse(line, text);
                return None;
            }
        }
        Some(Endpoint { host, port })
    }

    /// Whether an endpoint has a name: by `hostname`, or by its address.
    pub fn has_names(&self) -> bool {
        let tree = self.tree;
        self.kind != "STATIC"
            || all(tree, self.cluster)
                .iter()
                .any(|(_, id)| tree.path(*id, &["endpoint", "hostname"]).is_some())
    }

    /// Whether this value is a map.
    pub fn is_map(&self, id: Id) -> bool {
        matches!(self.tree.value(self.tree.follow(id)).kind, Kind::Map(_))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it))
}
