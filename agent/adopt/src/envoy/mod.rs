//! Adds Plimsoll to an Envoy bootstrap in YAML: plans the edits of docs/envoy.md for one cluster whose nodes are
//! written in the file, and the agents' configurations.

mod agents;
mod cluster;
mod endpoints;
mod listeners;
mod new;
mod yaml;

use std::net::IpAddr;

use crate::{
    config::Problem,
    plan::{Note, Plan},
};
use endpoints::Endpoint;
use new::{Editor, New};
use yaml::{Id, Kind};

pub use yaml::Tree;

/// Name of the agents' cluster, from which Envoy discovers the nodes.
const AGENTS: &str = "plimsoll_agents";
/// Port of an agent's HTTP server.
const AGENT_PORT: u16 = 9464;
/// Maximum number of agents that Envoy polls in turn; all give the same answers.
const MAX_ASKED: usize = 8;

/// Request of the operator.
pub struct Wish<'a> {
    /// Name of the cluster.
    pub cluster: &'a str,
    /// SLA delay in the format of the agent's `sla.delay`.
    pub sla: &'a str,
    /// The same in milliseconds.
    pub sla_milliseconds: f64,
    /// URL at which a node's agent reaches the service's metrics.
    pub metrics: &'a str,
    /// Name of the delay histogram in these metrics.
    pub histogram: &'a str,
    /// Name of the gauge of requests in progress in these metrics.
    pub gauge: Option<&'a str>,
    /// Whether Envoy obeys the agents at once; otherwise they only observe at first.
    pub enforce: bool,
    /// Resolver of host names; empty for names unknown here.
    pub resolve: &'a dyn Fn(&str) -> Vec<IpAddr>,
}

impl Wish<'_> {
    /// The agents' period, in milliseconds: the SLA or less, and 1 s at most.
    fn period_milliseconds(&self) -> f64 {
        self.sla_milliseconds.clamp(10.0, 1000.0)
    }
}

/// A cluster of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its type, such as `STATIC`.
    pub kind: String,
    /// Its endpoints, as `address:port`.
    pub endpoints: Vec<String>,
}

/// Clusters of the file, without the agents'.
pub fn clusters(tree: &Tree) -> Vec<Cluster> {
    listed(tree)
        .iter()
        .map(|id| Cluster {
            name: tree.text_at(*id, &["name"]).unwrap_or_default().to_owned(),
            line: tree.line(*id),
            kind: kind(tree, *id),
            endpoints: endpoints::addresses(tree, *id),
        })
        .filter(|cluster| !cluster.name.starts_with(AGENTS))
        .collect()
}

fn listed<'a>(tree: &'a Tree) -> &'a [Id] {
    match tree.path(tree.root(), &["static_resources", "clusters"]) {
        Some(clusters) => tree.items(clusters),
        None => &[],
    }
}

/// A cluster's type by its name, which may be written in lower case or as a number.
fn kind(tree: &Tree, cluster: Id) -> String {
    let written = tree.text_at(cluster, &["type"]).unwrap_or_default();
    let known = ["STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST"];
    enumerated(written, &known)
}

/// A value of an enumeration by its name; the first is the default.
fn enumerated(written: &str, known: &[&str]) -> String {
    let number = written.parse::<usize>().ok();
    match number.and_then(|number| known.get(number)) {
        Some(name) => (*name).to_owned(),
        None if written.is_empty() => known.first().map(|it| (*it).to_owned()).unwrap_or_default(),
        None => written.to_ascii_uppercase(),
    }
}

/// Plan in progress.
struct Draft<'a> {
    tree: &'a Tree<'a>,
    wish: &'a Wish<'a>,
    /// The cluster.
    cluster: Id,
    /// Its type in the file.
    kind: String,
    editor: Editor<'a>,
    notes: Vec<Note>,
    problems: Vec<Problem>,
}

/// Creates the plan. The error has all problems in the file's order.
pub fn plan(bytes: &[u8], wish: &Wish) -> Result<Plan, Vec<Problem>> {
    let found = draft(bytes, wish)?;
    // Edits rely on the layout of the surrounding lines; a file in which that is unreliable is not changed.
    let after = found.edits.apply(bytes);
    match draft(&after, wish) {
        Ok(again) if again.edits.is_empty() => Ok(found),
        _ => Err(vec![Problem {
            line: 0,
            text: "its layout leaves no place for the changes: write static_resources, its clusters and this cluster in \
                   block style"
                .to_owned(),
        }]),
    }
}

fn draft(bytes: &[u8], wish: &Wish) -> Result<Plan, Vec<Problem>> {
    let tree = Tree::parse(bytes).map_err(|problem| vec![problem])?;
    let cluster = find(&tree, wish.cluster).map_err(|problem| vec![problem])?;
    let mut draft = Draft {
        tree: &tree,
        wish,
        cluster,
        kind: kind(&tree, cluster),
        editor: Editor::new(&tree),
        notes: Vec::new(),
        problems: Vec::new(),
    };
    let agents = draft.all();
    if !draft.problems.is_empty() {
        draft.problems.sort_by_key(|problem| problem.line);
        return Err(draft.problems);
    }
    draft.notes.sort_by_key(|note| note.line);
    draft.notes.dedup();
    Ok(Plan {
        edits: draft.editor.edits,
        agents,
        notes: draft.notes,
    })
}

fn find(tree: &Tree, name: &str) -> Result<Id, Problem> {
    let problem = |line, text| Err(Problem { line, text });
    let root = tree.root();
    for keys in [&["static_resources"][..], &["static_resources", "clusters"]] {
        let shared = tree.path(root, keys).filter(|id| tree.is_shared(*id));
        if let Some(id) = shared {
            let text = format!("{} is an anchor or an alias: write it out", keys.join("."));
            return problem(tree.line(id), text);
        }
    }
    let named = |id: &&Id| tree.text_at(**id, &["name"]) == Some(name);
    let mut found = listed(tree).iter().filter(named).copied();
    let Some(first) = found.next() else {
        let names: Vec<String> = clusters(tree).into_iter().map(|it| it.name).collect();
        let others = match names.as_slice() {
            [] => "static_resources has none".to_owned(),
            names => format!("the clusters are {}", names.join(", ")),
        };
        let elsewhere = match tree.path(root, &["dynamic_resources", "cds_config"]) {
            Some(_) => {
                "; those of dynamic_resources.cds_config are not in this file: change them where they are made, \
                        as docs/envoy.md says"
            }
            None => "",
        };
        let text = format!("no cluster \"{name}\"; {others}{elsewhere}");
        return problem(0, text);
    };
    if let Some(second) = found.next() {
        let text = format!(
            "duplicate cluster \"{name}\", first at line {}: rename one",
            tree.line(first)
        );
        return problem(tree.line(second), text);
    }
    if tree.is_shared(first) {
        let text = format!("cluster \"{name}\" is an anchor or an alias: write it out");
        return problem(tree.line(first), text);
    }
    Ok(first)
}

impl Draft<'_> {
    fn refuse(&mut self, line: usize, text: impl Into<String>) {
        self.problems.push(Problem {
            line,
            text: text.into(),
        });
    }

    fn note(&mut self, line: usize, text: impl Into<String>) {
        self.notes.push(Note {
            line,
            text: text.into(),
        });
    }

    /// Plans all edits, and the agents.
    fn all(&mut self) -> Vec<crate::Agent> {
        let name = self.wish.cluster;
        if name.len() > 120 || name.chars().any(char::is_control) {
            let text = "a service's name must be at most 120 printable characters";
            self.refuse(self.tree.line(self.cluster), text);
        }
        if self.is_adopted() {
            self.settings(None);
            self.listeners();
            self.node();
            return Vec::new();
        }
        self.refusals();
        let endpoints = self.endpoints();
        if !self.problems.is_empty() {
            return Vec::new();
        }
        // Of several additions at one position, such as the end of the file, the innermost comes first.
        let (asked, is_new) = self.asked(&endpoints);
        self.settings(Some(&asked));
        self.listeners();
        if is_new {
            self.add_agents(&asked, &endpoints[..endpoints.len().min(MAX_ASKED)]);
        }
        self.node();
        self.remarks(&endpoints);
        agents::agents(&endpoints, self.wish)
    }

    /// Whether the cluster already discovers its nodes through agents.
    fn is_adopted(&self) -> bool {
        let keys = [
            "eds_cluster_config",
            "eds_config",
            "api_config_source",
            "cluster_names",
        ];
        let asked = self.tree.path(self.cluster, &keys);
        let is_agents = |id: &Id| self.tree.text(*id).starts_with(AGENTS);
        self.kind == "EDS" && asked.is_some_and(|it| self.tree.items(it).iter().any(is_agents))
    }

    /// Returns the name of these nodes' agent cluster, and whether it is new.
    fn asked(&mut self, endpoints: &[Endpoint]) -> (String, bool) {
        let targets: Vec<String> = endpoints
            .iter()
            .take(MAX_ASKED)
            .map(|it| format!("{}:{AGENT_PORT}", it.host.bracketed()))
            .collect();
        let own = format!("{AGENTS}_{}", self.wish.cluster);
        let tree = self.tree;
        for name in [AGENTS, own.as_str()] {
            let is = |id: &&Id| tree.text_at(**id, &["name"]) == Some(name);
            match listed(tree).iter().find(is) {
                None => return (name.to_owned(), true),
                Some(id) if endpoints::addresses(tree, *id) == targets => {
                    return (name.to_owned(), false);
                }
                Some(_) => {}
            }
        }
        let text = format!("cluster \"{own}\" exists with other agents: remove it");
        self.refuse(tree.line(self.cluster), text);
        (own, false)
    }

    fn add_agents(&mut self, name: &str, endpoints: &[Endpoint]) {
        let check = New::flow_map(vec![
            ("timeout", New::plain("0.5s")),
            ("interval", New::plain("1s")),
            ("unhealthy_threshold", New::plain(2)),
            ("healthy_threshold", New::plain(2)),
            (
                "http_health_check",
                New::flow_map(vec![("path", New::plain("/readyz"))]),
            ),
        ]);
        let mut cluster = vec![
            ("name", New::text(name)),
            ("connect_timeout", New::plain("0.5s")),
        ];
        if endpoints.iter().any(|it| it.host.is_name()) {
            cluster.push(("type", New::plain("STRICT_DNS")));
        }
        cluster.push(("health_checks", New::Seq(vec![check])));
        let levels = endpoints.iter().enumerate().map(|(priority, endpoint)| {
            let address = New::flow_map(vec![
                ("address", endpoint.host.written()),
                ("port_value", New::plain(AGENT_PORT)),
            ]);
            let address = New::Map(vec![("socket_address", address)]);
            let target = New::flow_map(vec![("address", address)]);
            New::Map(vec![
                ("priority", New::plain(priority)),
                (
                    "lb_endpoints",
                    New::Seq(vec![New::Map(vec![("endpoint", target)])]),
                ),
            ])
        });
        cluster.push((
            "load_assignment",
            New::Map(vec![
                ("cluster_name", New::text(name)),
                ("endpoints", New::Seq(levels.collect())),
            ]),
        ));
        let found = self.tree.get(self.tree.root(), "static_resources");
        if let Some((key, clusters)) = found.and_then(|it| self.tree.entry(it, "clusters")) {
            self.editor.add_item(key, clusters, &New::Map(cluster));
        }
    }

    /// Adds the node id that endpoint discovery needs.
    fn node(&mut self) {
        let root = self.tree.root();
        let named = [
            ("id", New::plain("envoy-1")),
            ("cluster", New::plain("edge")),
        ];
        let Some((key, node)) = self.tree.entry(root, "node") else {
            let node = New::flow_map(named.to_vec());
            self.editor.add_entries(root, None, &[("node", node)]);
            return;
        };
        let line = self.tree.line(key);
        let own = self.tree.value(self.tree.follow(node));
        if !matches!(own.kind, Kind::Map(_)) {
            self.refuse(line, "node has no keys: remove it, or set id and cluster");
            return;
        }
        let missing: Vec<_> = named
            .into_iter()
            .filter(|(key, _)| self.tree.text_at(node, &[key]).is_none_or(str::is_empty))
            .collect();
        let empty = missing
            .iter()
            .any(|(key, _)| self.tree.get(node, key).is_some());
        if missing.is_empty() {
            return;
        }
        if empty || self.tree.is_shared(node) {
            self.refuse(
                line,
                "endpoint discovery needs node.id and node.cluster: write them out",
            );
            return;
        }
        self.editor.add_entries(node, None, &missing);
    }
}
