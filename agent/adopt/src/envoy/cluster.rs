//! Edits of the cluster's own keys, and notes on keys that stay.

use super::{
    Draft,
    endpoints::{self, Endpoint},
    enumerated, listed,
    new::New,
};

/// Value of each circuit breaker limit in the guide.
const LIMIT: u32 = 8000;
const LIMITS: [&str; 3] = ["max_connections", "max_pending_requests", "max_requests"];

type Entries = Vec<(&'static str, New)>;

impl Draft<'_> {
    /// Rejects a cluster whose nodes the agents cannot serve by endpoint discovery.
    pub fn refusals(&mut self) {
        let (tree, cluster) = (self.tree, self.cluster);
        let line = |key| tree.entry(cluster, key).map(|(key, _)| tree.line(key));
        let kind = line("type").unwrap_or(tree.line(cluster));
        match self.kind.as_str() {
            "STATIC" | "STRICT_DNS" => {}
            "EDS" => self.refuse(kind, "the nodes come from another discovery service, which would have to provide the weights"),
            "LOGICAL_DNS" => self.refuse(
                kind,
                "type LOGICAL_DNS uses one name for all nodes, so there is no list of nodes to weight: use \
                 STRICT_DNS with a name for each node",
            ),
            "ORIGINAL_DST" => self.refuse(
                kind,
                "type ORIGINAL_DST sends to the address that the client chose, so there are no nodes to weight",
            ),
            other => self.refuse(kind, format!("unknown type {other}")),
        }
        for (key, why) in [
            (
                "cluster_type",
                "this type of cluster discovers its own nodes",
            ),
            (
                "lb_subset_config",
                "subsets depend on metadata of endpoints, which agents do not provide",
            ),
            (
                "transport_socket_matches",
                "socket matches depend on metadata of endpoints, which agents do not provide",
            ),
            (
                "hosts",
                "this key belongs to Envoy's API v2: use load_assignment",
            ),
        ] {
            if let Some(at) = line(key) {
                self.refuse(at, format!("{key}: {why}"));
            }
        }
        if let Some(id) = tree.path(
            cluster,
            &["common_lb_config", "locality_weighted_lb_config"],
        ) {
            self.refuse(
                tree.line(id),
                "localities have weights, which agents do not provide",
            );
        }
        let sni = ["transport_socket", "typed_config", "auto_host_sni"];
        if let Some(id) = tree.path(cluster, &sni)
            && tree.text(id) == "true"
            && self.has_names()
        {
            let text =
                "auto_host_sni needs names of endpoints, but agents provide addresses: use sni";
            self.refuse(tree.line(id), text);
        }
        if let Some((key, value)) = tree.entry(cluster, "load_assignment") {
            let span = tree.value(key).span.start..tree.value(value).span.end;
            if let Some(shared) = tree.shared_within(&span) {
                let text = "this anchor is used elsewhere, and would be removed with the load_assignment: move it there";
                self.refuse(tree.line(shared), text);
            }
        }
        if let Some((key, _)) = tree.entry(cluster, "eds_cluster_config") {
            self.refuse(
                tree.line(key),
                "eds_cluster_config does not match the type: remove it",
            );
        }
    }

    /// Plans the keys of the cluster; `asked` is the cluster of the agents, `None` if it is already configured.
    pub fn settings(&mut self, asked: Option<&str>) {
        let mut new: Entries = Vec::new();
        if asked.is_some() {
            self.put("type", "EDS", &mut new);
        }
        new.extend(asked.map(|asked| ("eds_cluster_config", self.discovery(asked))));
        self.merge_window(&mut new);
        self.balancing(&mut new);
        self.limits(&mut new);
        let assignment = self.tree.entry(self.cluster, "load_assignment");
        match assignment.filter(|_| asked.is_some()) {
            Some(entry) => self.editor.replace_entry(self.cluster, entry, &new),
            None if new.is_empty() => {}
            None => self.editor.add_entries(self.cluster, None, &new),
        }
    }

    /// Sets a scalar of the cluster.
    fn put(&mut self, key: &'static str, text: &str, new: &mut Entries) {
        match self.tree.get(self.cluster, key) {
            None => new.push((key, New::plain(text))),
            Some(value) if self.tree.is_shared(value) => {
                let text = format!("{key} is an anchor or an alias: write it out");
                self.refuse(self.tree.line(value), text);
            }
            Some(value) => self.editor.replace_scalar(value, text),
        }
    }

    fn discovery(&self, asked: &str) -> New {
        let plain = |text: &str| New::plain(text);
        // Half the agents' period.
        let refresh = format!("{}s", self.wish.period_milliseconds() / 2000.0);
        let source = New::Map(vec![
            ("api_type", plain("REST")),
            ("transport_api_version", plain("V3")),
            (
                "cluster_names",
                New::Flow(Box::new(New::Seq(vec![New::text(asked)]))),
            ),
            ("refresh_delay", New::plain(refresh)),
            ("request_timeout", plain("0.5s")),
        ]);
        New::Map(vec![
            ("service_name", New::text(self.wish.cluster)),
            (
                "eds_config",
                New::Map(vec![
                    ("resource_api_version", plain("V3")),
                    ("api_config_source", source),
                ]),
            ),
        ])
    }

    /// So that a new drop fraction takes effect at once.
    fn merge_window(&mut self, new: &mut Entries) {
        const KEY: &str = "update_merge_window";
        let tree = self.tree;
        let Some(config) = tree.get(self.cluster, "common_lb_config") else {
            new.push(("common_lb_config", New::Map(vec![(KEY, New::plain("0s"))])));
            return;
        };
        let set = tree.get(config, KEY);
        match set {
            Some(value) if tree.text(value) == "0s" => {}
            _ if tree.is_shared(config)
                || !self.is_map(config)
                || set.is_some_and(|it| tree.is_shared(it)) =>
            {
                let text = "common_lb_config stays, since it is an anchor's, an alias or empty; without \
                            update_merge_window 0s what the agents say is in force up to 1 s later";
                self.note(tree.line(config), text);
            }
            Some(value) => self.editor.replace_scalar(value, "0s"),
            None => self
                .editor
                .add_entries(config, None, &[(KEY, New::plain("0s"))]),
        }
    }

    fn balancing(&mut self, new: &mut Entries) {
        let (tree, cluster) = (self.tree, self.cluster);
        if let Some((key, _)) = tree.entry(cluster, "load_balancing_policy") {
            let text = "load_balancing_policy stays: see that it takes weights; the guide has ROUND_ROBIN, MAGLEV or \
                        RING_HASH";
            self.note(tree.line(key), text);
            return;
        }
        let known = [
            "ROUND_ROBIN",
            "LEAST_REQUEST",
            "RING_HASH",
            "RANDOM",
            "",
            "MAGLEV",
            "CLUSTER_PROVIDED",
        ];
        let set = tree.get(cluster, "lb_policy");
        let line = tree.line(set.unwrap_or(cluster));
        match enumerated(set.map_or("", |it| tree.text(it)), &known).as_str() {
            "ROUND_ROBIN" if set.is_none() => new.push(("lb_policy", New::plain("ROUND_ROBIN"))),
            "ROUND_ROBIN" | "MAGLEV" | "RING_HASH" => {}
            "RANDOM" => {
                self.note(
                    line,
                    "lb_policy RANDOM does not support weights, and becomes ROUND_ROBIN",
                );
                self.put("lb_policy", "ROUND_ROBIN", new);
            }
            "LEAST_REQUEST" => self.note(
                line,
                "lb_policy LEAST_REQUEST stays: it supports weights; the guide has ROUND_ROBIN",
            ),
            other => {
                let text = format!("lb_policy {other} stays: it may not support weights");
                self.note(line, text);
            }
        }
    }

    /// Raises Envoy's default limits of 1,024; limits set by the operator stay.
    fn limits(&mut self, new: &mut Entries) {
        let tree = self.tree;
        let limit = |key: &&'static str| (*key, New::plain(LIMIT));
        let all = || New::flow_map(LIMITS.iter().map(limit).collect());
        let Some((key, breakers)) = tree.entry(self.cluster, "circuit_breakers") else {
            let thresholds = New::Flow(Box::new(New::Seq(vec![all()])));
            new.push((
                "circuit_breakers",
                New::Map(vec![("thresholds", thresholds)]),
            ));
            return;
        };
        let of_default = |id: &&usize| {
            let priority = tree.text_at(**id, &["priority"]).unwrap_or_default();
            enumerated(priority, &["DEFAULT", "HIGH"]) == "DEFAULT"
        };
        let thresholds = tree.get(breakers, "thresholds");
        let found = thresholds.and_then(|it| tree.items(it).iter().find(of_default).copied());
        let shared = [Some(breakers), thresholds, found]
            .into_iter()
            .flatten()
            .any(|it| tree.is_shared(it));
        let Some(found) = found.filter(|it| !shared && self.is_map(*it)) else {
            let text = format!(
                "circuit_breakers stay, since they are an anchor's, an alias or of no default priority: what they do \
                 not set is 1,024, which may refuse before the agents do; the guide has {LIMIT}"
            );
            self.note(tree.line(key), text);
            return;
        };
        let missing: Entries = LIMITS
            .iter()
            .filter(|key| tree.get(found, key).is_none())
            .map(limit)
            .collect();
        for key in LIMITS {
            let Some(value) = tree.get(found, key) else {
                continue;
            };
            if tree.text(value).parse().is_ok_and(|it: u32| it < LIMIT) {
                let text = format!(
                    "{key} {} stays, and may refuse before the agents do; the guide has {LIMIT}",
                    tree.text(value)
                );
                self.note(tree.line(value), text);
            }
        }
        if !missing.is_empty() {
            self.editor.add_entries(found, None, &missing);
        }
    }

    /// Adds notes on what stays, in the cluster and elsewhere.
    pub fn remarks(&mut self, endpoints: &[Endpoint]) {
        let (tree, cluster, root) = (self.tree, self.cluster, self.tree.root());
        let own = tree.line(cluster);
        if tree.get(cluster, "health_checks").is_none()
            && tree.get(cluster, "outlier_detection").is_none()
        {
            let text = "no health_checks, no outlier_detection: a node that dies with its agent gets requests until the \
                        others tell, three periods later; add one of them";
            self.note(own, text);
        }
        if self.wish.gauge.is_none() {
            let text =
                "without a gauge of requests in progress (--gauge) the agents detect bursts later";
            self.note(own, text);
        }
        for key in [
            "dns_refresh_rate",
            "respect_dns_ttl",
            "dns_lookup_family",
            "dns_resolvers",
            "typed_dns_resolver_config",
            "dns_resolution_config",
            "dns_jitter",
        ] {
            if let Some((key, _)) = tree.entry(cluster, key) {
                let text = format!(
                    "{} stays, and has no effect: the agents resolve names",
                    tree.text(key)
                );
                self.note(tree.line(key), text);
            }
        }
        if let Some((key, _)) = tree.entry(cluster, "transport_socket") {
            let text = "transport_socket stays, the same for all nodes; it does not apply to requests to agents and their metrics";
            self.note(tree.line(key), text);
        }
        if let Some((key, _)) = tree.entry(root, "dynamic_resources") {
            self.note(
                tree.line(key),
                "resources from dynamic_resources are not in this file, and are not checked",
            );
        }
        let ours: Vec<String> = endpoints
            .iter()
            .map(|it| format!("{}:{}", it.host.bracketed(), it.port))
            .collect();
        for id in listed(tree).iter().filter(|id| **id != cluster) {
            let theirs = endpoints::addresses(tree, *id);
            if let Some(shared) = theirs.iter().find(|it| ours.contains(it)) {
                let text = format!(
                    "cluster \"{}\" also sends to {shared}, and stays: weights and refusals do not apply to its requests",
                    tree.text_at(*id, &["name"]).unwrap_or_default()
                );
                self.note(tree.line(*id), text);
            }
        }
    }
}
