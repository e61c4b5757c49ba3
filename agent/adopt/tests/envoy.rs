//! Edits of an Envoy bootstrap, and what stays.

#![expect(clippy::expect_used, clippy::panic)]

mod bootstrap;

use bootstrap::{CHECKED, LISTENER, cluster, planned_to};
use plimsoll_adopt::{
    Plan,
    envoy::{Cluster, Tree, Wish, clusters, plan},
};

/// The file as it is then, the notes and the plan; a second plan changes nothing.
fn adopt(text: &str) -> (String, Vec<String>, Plan) {
    let found =
        planned_to(text, 1000.0, false).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    let after = String::from_utf8(found.edits.apply(text.as_bytes())).expect("text");
    let again = planned_to(&after, 1000.0, false).unwrap_or_else(|it| panic!("{after}: {it:?}"));
    assert!(
        again.edits.is_empty() && again.agents.is_empty(),
        "{after}: {:?}",
        again.edits
    );
    let notes = found
        .notes
        .iter()
        .map(|it| format!("{}: {}", it.line, it.text))
        .collect();
    (after, notes, found)
}

#[test]
fn edits_follow_the_guide() {
    let text = format!(
        "# Ours.\n{}  # the end\n",
        cluster("    type: STATIC # as it was\n")
    );
    let (after, notes, plan) = adopt(&text);
    let expected = format!(
        r#"# Ours.
{}  clusters:
  - name: app
    connect_timeout: 1s
    type: EDS # as it was
    eds_cluster_config:
      service_name: app
      eds_config:
        resource_api_version: V3
        api_config_source:
          api_type: REST
          transport_api_version: V3
          cluster_names: [plimsoll_agents]
          refresh_delay: 0.5s
          request_timeout: 0.5s
    common_lb_config:
      update_merge_window: 0s
    lb_policy: ROUND_ROBIN
    circuit_breakers:
      thresholds: [{{ max_connections: 8000, max_pending_requests: 8000, max_requests: 8000 }}]
{CHECKED}  - name: plimsoll_agents
    connect_timeout: 0.5s
    health_checks:
      - {{ timeout: 0.5s, interval: 1s, unhealthy_threshold: 2, healthy_threshold: 2, http_health_check: {{ path: /readyz }} }}
    load_assignment:
      cluster_name: plimsoll_agents
      endpoints:
        - priority: 0
          lb_endpoints:
            - endpoint: {{ address: {{ socket_address: {{ address: 192.0.2.11, port_value: 9464 }} }} }}
        - priority: 1
          lb_endpoints:
            - endpoint: {{ address: {{ socket_address: {{ address: 192.0.2.12, port_value: 9464 }} }} }}
node: {{ id: envoy-1, cluster: edge }}
  # the end
"#,
        LISTENER.replace(
            "          stat_prefix: web\n",
            r#"          stat_prefix: web
          local_reply_config:
            mappers:
              - filter:
                  response_flag_filter: { flags: [DO, UDO] }
                headers_to_add:
                  - { header: { key: retry-after, value: "1" } }
                  - { header: { key: plimsoll-reason, value: full } }
"#
        ),
    );
    assert_eq!(after, expected);
    assert_eq!(notes, [] as [&str; 0]);
    assert_eq!(
        plan.agents
            .iter()
            .map(|it| (it.host.as_str(), it.file.as_str()))
            .collect::<Vec<_>>(),
        [
            ("192.0.2.11", "192.0.2.11.toml"),
            ("192.0.2.12", "192.0.2.12.toml")
        ]
    );
    assert_eq!(
        plan.agents[1].text,
        r#"[agent]
period = "1s"
state_directory = "/var/lib/plimsoll"

[http]
listen = "192.0.2.12:9464"

[control]
socket = "/run/plimsoll/control.sock"

[envoy]
peers = ["http://192.0.2.11:9464", "http://192.0.2.12:9464"]

[[service]]
name = "app"
mode = "observe" # proxies are not affected yet
address = "192.0.2.12:80"

[service.sla]
delay = "1s"

[service.source]
kind = "prometheus"
url = "http://127.0.0.1:80/metrics"
histogram = "seconds"

[service.jobs]
kind = "prometheus"
gauge = "busy"

[service.health]
kind = "tcp"
address = "192.0.2.12:80"
"#
    );
    let enforced = planned_to(&text, 250.0, true).expect("a plan");
    assert!(!enforced.agents[0].text.contains("mode ="));
    let after = String::from_utf8(enforced.edits.apply(text.as_bytes())).expect("text");
    assert!(after.contains("refresh_delay: 0.125s\n"), "{after}");
}

#[test]
fn every_layout_is_kept() {
    let text = cluster(
        "    # its type\n    type: \"STRICT_DNS\"\n    common_lb_config: {healthy_panic_threshold: {value: 0}} # ü\n",
    );
    let (plain, ..) = adopt(&text);
    assert!(plain.contains("    # its type\n    type: EDS\n"), "{plain}");
    assert!(
        plain.contains(
            "common_lb_config: {update_merge_window: 0s, healthy_panic_threshold: {value: 0}} # ü\n"
        ),
        "{plain}"
    );
    let (crlf, ..) = adopt(&text.replace('\n', "\r\n"));
    assert_eq!(crlf, plain.replace('\n', "\r\n"));
    let (marked, ..) = adopt(&format!("\u{feff}{text}"));
    assert_eq!(marked, format!("\u{feff}{plain}"));
    let (cut, ..) = adopt(text.trim_end());
    assert_eq!(cut, plain.trim_end());
    let (second, ..) = adopt(&format!("%YAML 1.2\n---\n{text}...\n"));
    assert!(second.ends_with("cluster: edge }\n...\n"), "{second}");

    let indented = text.replace("  clusters:\n  - name", "  clusters:\n      - name");
    let (head, body) = indented
        .split_once("      - name: app\n")
        .expect("the cluster");
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let (after, ..) = adopt(&format!("{head}      - name: app\n{body}"));
    assert!(
        after.contains("\n        type: EDS\n")
            && after.contains("\n      - name: plimsoll_agents\n        connect_timeout"),
        "{after}"
    );

    let (last, ..) = adopt(&cluster("").replace(
        CHECKED,
        "    circuit_breakers:\n      thresholds:\n      - max_retries: 9",
    ));
    assert!(
        last.contains("      - max_retries: 9\n        max_connections: 8000\n")
            && last.contains("        max_requests: 8000\n  - name: plimsoll_agents\n"),
        "{last}"
    );

    let first = format!(
        "{LISTENER}  clusters:\n  - load_assignment: {{ endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: \
         {{ address: \"::1\", port_value: 80 }} }} }} }}] }}] }} # here\n    name: app\n"
    );
    let (after, ..) = adopt(&first);
    assert!(
        after.contains("  - type: EDS\n    eds_cluster_config:\n      service_name: app\n"),
        "{after}"
    );
    assert!(
        after.contains("\n    name: app\n  - name: plimsoll_agents\n"),
        "{after}"
    );

    let flow = "{static_resources: {clusters: [{name: app, type: STATIC, load_assignment: {endpoints: [{lb_endpoints: \
                [{endpoint: {address: {socket_address: {address: 192.0.2.1, port_value: 80}}}}]}]}, circuit_breakers: \
                {thresholds: [{max_retries: 9}]}}]}, node: {}}";
    let (after, ..) = adopt(flow);
    for part in [
        "type: EDS, eds_cluster_config: { service_name: app, ",
        "[{ name: plimsoll_agents, connect_timeout: 0.5s, ",
        "[{max_connections: 8000, max_pending_requests: 8000, max_requests: 8000, max_retries: 9}]",
        "node: { id: envoy-1, cluster: edge }}",
    ] {
        assert!(after.contains(part), "{part}: {after}");
    }
}

#[test]
fn plans_a_file_of_10000_lines() {
    let many: String = (0..2500)
        .map(|it| {
            format!("  - name: c{it}\n    # one\n    type: LOGICAL_DNS\n    connect_timeout: 1s\n")
        })
        .collect();
    let text = cluster("").replace("  clusters:\n", &format!("  clusters:\n{many}"));
    let (after, ..) = adopt(&text);
    assert!(after.contains(&many));
}

#[test]
fn existing_settings_are_kept() {
    for (keys, kept, note) in [
        ("    lb_policy: MAGLEV\n", "    lb_policy: MAGLEV\n", ""),
        (
            "    lbPolicy: least_request\n",
            "    lbPolicy: least_request\n",
            "LEAST_REQUEST stays: it supports weights",
        ),
        (
            "    lb_policy: RANDOM # any\n",
            "    lb_policy: ROUND_ROBIN # any\n",
            "RANDOM does not support weights",
        ),
        (
            "    load_balancing_policy: { policies: [] }\n",
            "    load_balancing_policy: { policies: [] }\n",
            "load_balancing_policy stays",
        ),
        (
            "    circuit_breakers:\n      thresholds:\n      - priority: HIGH\n        max_requests: 1\n      - max_requests: 100\n",
            "      - priority: HIGH\n        max_requests: 1\n      - max_requests: 100\n        max_connections: 8000\n        \
             max_pending_requests: 8000\n",
            "max_requests 100 stays, and may refuse before",
        ),
        (
            "    circuit_breakers: { thresholds: [{ priority: HIGH }] }\n",
            "    circuit_breakers: { thresholds: [{ priority: HIGH }] }\n",
            "circuit_breakers stay",
        ),
        (
            "    common_lb_config:\n      update_merge_window: 3s\n",
            "    common_lb_config:\n      update_merge_window: 0s\n",
            "",
        ),
        (
            "    dns_refresh_rate: 5s\n",
            "    dns_refresh_rate: 5s\n",
            "has no effect",
        ),
        (
            "    transport_socket: { name: tls }\n",
            "    transport_socket: { name: tls }\n",
            "the same for all nodes",
        ),
    ] {
        let (after, notes, _) = adopt(&cluster(keys));
        assert!(after.contains(kept), "{keys}: {after}");
        assert!(
            notes.iter().any(|it| it.contains(note)) || note.is_empty(),
            "{keys}: {notes:?}"
        );
    }
    for (from, to, note) in [
        (
            "port_value: 80 } } }",
            "port_value: 80 } }, hostname: a }",
            "names of endpoints are removed",
        ),
        (
            "port_value: 80 } } }",
            "port_value: 80 } } }\n          load_balancing_weight: 3",
            "weights of endpoints are removed",
        ),
        (
            "      endpoints:\n",
            "      policy: { overprovisioning_factor: 140 }\n      endpoints:\n",
            "policy is removed",
        ),
        (CHECKED, "", "no health_checks, no outlier_detection"),
        (
            "          stat_prefix: web\n",
            "          stat_prefix: web\n          local_reply_config: { mappers: [] }\n",
            "local_reply_config stays",
        ),
        (
            "{ cluster: app }",
            "{ cluster_header: x }",
            "known only at run time",
        ),
        (
            "{ cluster: app }",
            "{ cluster: other }",
            "no route_config of this file leads to the cluster",
        ),
        (
            "  clusters:\n",
            "  clusters:\n  - name: old\n    load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: { address: { \
             socket_address: { address: 192.0.2.12, port_value: 80 } } } }] }] }\n",
            "cluster \"old\" also sends to 192.0.2.12:80",
        ),
        (
            "static_resources:\n",
            "dynamic_resources: {}\nstatic_resources:\n",
            "not in this file",
        ),
        (
            "http_connection_manager.v3.HttpConnectionManager\n",
            "tcp_proxy.v3.TcpProxy\n          cluster: app\n",
            "tcp_proxy stays",
        ),
    ] {
        let text = cluster("");
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let (_, notes, _) = adopt(&changed);
        assert!(notes.iter().any(|it| it.contains(note)), "{to}: {notes:?}");
    }
    let (after, ..) = adopt(&format!(
        "node:\n  id: mine\n  metadata: {{}}\n{}",
        cluster("")
    ));
    assert!(
        after.starts_with("node:\n  id: mine\n  metadata: {}\n  cluster: edge\nstatic"),
        "{after}"
    );
    let (weighted, ..) = adopt(&cluster("").replace(
        "{ cluster: app }",
        "{ weighted_clusters: { clusters: [{ name: app, weight: 1 }] } }",
    ));
    assert!(weighted.contains("plimsoll-reason"), "{weighted}");
}

#[test]
fn names_are_resolved_by_agents() {
    let text = cluster("    type: strict_dns\n")
        .replace("192.0.2.11", "known")
        .replace("192.0.2.12", "node-2.internal");
    let (after, _, plan) = adopt(&text);
    assert!(
        after.contains("    type: STRICT_DNS\n    health_checks:\n"),
        "{after}"
    );
    assert!(
        after.contains("{ address: node-2.internal, port_value: 9464 }"),
        "{after}"
    );
    for (agent, parts) in plan.agents.iter().zip([
        ["listen = \"192.0.2.21:9464\"\n", "address = \"known:80\"\n"],
        [
            "listen = \"ADDRESS:9464\" # replace by this node's",
            "address = \"node-2.internal:80\"\n",
        ],
    ]) {
        for part in parts {
            assert!(agent.text.contains(part), "{part}: {}", agent.text);
        }
        assert!(
            agent
                .text
                .contains("peers = [\"http://known:9464\", \"http://node-2.internal:9464\"]")
        );
    }
}

#[test]
fn a_second_cluster_asks_its_own_agents() {
    let (text, ..) = adopt(&cluster(""));
    let (head, tail) = text.split_once("  clusters:\n").expect("clusters");
    let one = |ip: &str| {
        format!(
            "  - name: other\n    load_assignment: {{ endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: \
             {{ address: {ip}, port_value: 81 }} }} }} }}] }}] }}\n"
        )
    };
    let wish = |enforce| Wish {
        cluster: "other",
        sla: "1s",
        sla_milliseconds: 1000.0,
        metrics: "http://127.0.0.1/",
        histogram: "x",
        gauge: None,
        enforce,
        resolve: &|_| Vec::new(),
    };
    let with_other = format!("{head}  clusters:\n{}{tail}", one("192.0.2.99"));
    let plan = plan(with_other.as_bytes(), &wish(true)).expect("a plan");
    let after = String::from_utf8(plan.edits.apply(with_other.as_bytes())).expect("text");
    assert!(
        after.contains("cluster_names: [plimsoll_agents_other]"),
        "{after}"
    );
    assert!(
        after.contains("  - name: plimsoll_agents_other\n"),
        "{after}"
    );
    assert_eq!(after.matches("node:").count(), 1);
    let tree = Tree::parse(after.as_bytes()).expect("a tree");
    let names: Vec<String> = clusters(&tree).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["other", "app"]);
}

#[test]
fn clusters_are_listed() {
    let text = cluster("");
    let tree = Tree::parse(text.as_bytes()).expect("a tree");
    assert_eq!(
        clusters(&tree),
        [Cluster {
            name: "app".to_owned(),
            line: 23,
            kind: "STATIC".to_owned(),
            endpoints: vec!["192.0.2.11:80".to_owned(), "192.0.2.12:80".to_owned()],
        }]
    );
}
