//! Listeners that send requests to the cluster: marks refusals, and notes what agents cannot do for them.

use super::{
    Draft,
    new::New,
    yaml::{Id, Kind},
};

const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";

impl Draft<'_> {
    /// Plans the edits of HTTP connection managers.
    pub fn listeners(&mut self) {
        let tree = self.tree;
        let typed = |kind: &str| -> Vec<Id> {
            let is = |id: &Id| {
                let written = tree.get(*id, "@type").map(|it| tree.text(it));
                let is_map = matches!(tree.value(*id).kind, Kind::Map(_));
                is_map && written.is_some_and(|it| it.rsplit('/').next() == Some(kind))
            };
            tree.ids().filter(is).collect()
        };
        let mut leads = false;
        for manager in typed(MANAGER) {
            let routes = tree.get(manager, "route_config");
            if routes.is_some_and(|it| self.routes(it)) {
                leads = true;
                self.second_tier(manager);
                self.mark(manager);
            }
        }
        for proxy in typed(TCP) {
            if tree.text_at(proxy, &["cluster"]) == Some(self.wish.cluster) {
                leads = true;
                let text = "tcp_proxy stays: weights also apply to its connections, refusals only to HTTP requests";
                self.note(tree.line(proxy), text);
            }
        }
        if !leads {
            let text = "no route_config of this file leads to the cluster, so refusals are not marked: add the guide's \
                        local_reply_config where its routes are";
            self.note(tree.line(self.cluster), text);
        }
    }

    /// Rejects a connection manager with Plimsoll's filter or module.
    fn second_tier(&mut self, manager: Id) {
        let tree = self.tree;
        let filters = tree.get(manager, "http_filters");
        let own = filters.iter().flat_map(|it| tree.items(*it)).find(|id| {
            let name = tree.text_at(**id, &["name"]).unwrap_or_default();
            let of_module = tree.text_at(**id, &["typed_config", "filter_name"]);
            name.starts_with("plimsoll") || of_module == Some("plimsoll")
        });
        if let Some(id) = own.filter(|_| !self.is_adopted()) {
            let text = "Plimsoll's filter is here already and admits requests by itself: the agents would have some of \
                        them refused once more";
            self.refuse(tree.line(*id), text);
        }
    }

    /// Whether any of these routes leads to the cluster.
    fn routes(&mut self, routes: Id) -> bool {
        let tree = self.tree;
        let span = tree.value(tree.follow(routes)).span.clone();
        let inside: Vec<Id> = tree
            .ids()
            .filter(|id| {
                let own = &tree.value(*id).span;
                span.start <= own.start && own.end <= span.end
            })
            .collect();
        let mut leads = false;
        for id in inside {
            let name = Some(self.wish.cluster);
            let weighted = tree.path(id, &["weighted_clusters", "clusters"]);
            let mut of_weighted = weighted.iter().flat_map(|it| tree.items(*it));
            let own = tree
                .get(id, "cluster")
                .filter(|_| tree.text_at(id, &["cluster"]) == name);
            if own.is_none() && !of_weighted.any(|it| tree.text_at(*it, &["name"]) == name) {
                if let Some(header) = tree.get(id, "cluster_header") {
                    let text = "the clusters of this route are known only at run time";
                    self.note(tree.line(header), text);
                }
                continue;
            }
            leads = true;
            let rewrite = tree.get(id, "auto_host_rewrite");
            if let Some(rewrite) = rewrite.filter(|it| tree.text(*it) == "true" && self.has_names())
                && !self.is_adopted()
            {
                let text = "auto_host_rewrite needs names of endpoints, but agents provide addresses: use \
                            host_rewrite_literal";
                self.refuse(tree.line(rewrite), text);
            }
        }
        leads
    }

    /// Marks responses that Envoy refuses on behalf of the agents.
    fn mark(&mut self, manager: Id) {
        const KEY: &str = "local_reply_config";
        let tree = self.tree;
        if let Some((key, config)) = tree.entry(manager, KEY) {
            let mappers = tree.value(tree.follow(config)).span.clone();
            let text = String::from_utf8_lossy(&tree.bytes()[mappers]);
            if !text.contains("plimsoll-reason") {
                let text = "local_reply_config stays: refusals look like other 503s, without plimsoll-reason";
                self.note(tree.line(key), text);
            }
            return;
        }
        if tree.is_shared(manager) {
            let text =
                "this connection manager is an anchor and stays: refusals have no plimsoll-reason";
            self.note(tree.line(manager), text);
            return;
        }
        let header = |key: &str, value: &str| {
            let header = New::flow_map(vec![("key", New::text(key)), ("value", New::text(value))]);
            New::flow_map(vec![("header", header)])
        };
        let flags = New::Seq(["DO", "UDO"].iter().map(New::plain).collect());
        let filter = New::Map(vec![(
            "response_flag_filter",
            New::flow_map(vec![("flags", flags)]),
        )]);
        let mapper = New::Map(vec![
            ("filter", filter),
            (
                "headers_to_add",
                New::Seq(vec![
                    header("retry-after", "1"),
                    header("plimsoll-reason", "full"),
                ]),
            ),
        ]);
        let mappers = New::Map(vec![("mappers", New::Seq(vec![mapper]))]);
        self.editor
            .add_entries(manager, Some("stat_prefix"), &[(KEY, mappers)]);
    }
}
