//! Bootstraps of Envoy's that are refused.

#![expect(clippy::expect_used)]

mod bootstrap;

use bootstrap::{ENDPOINTS, cluster, planned_to};
use plimsoll_adopt::envoy::Tree;
use proptest::prelude::*;

fn refused(text: &str) -> Vec<String> {
    let problems = planned_to(text, 1000.0, false).expect_err(text);
    problems
        .iter()
        .map(|it| format!("{}: {}", it.line, it.text))
        .collect()
}

#[test]
fn refusals_name_line_and_cause() {
    let plain = cluster("");
    let with = |from: &str, to: &str| {
        let changed = plain.replacen(from, to, 1);
        assert_ne!(changed, plain, "{from}");
        changed
    };
    let node = "        - endpoint: { address: { socket_address: { address: 192.0.2.12, port_value: 80 } } }\n";
    for (text, wanted) in [
        (String::new(), "0: the file is empty"),
        (
            "a: 1\n".to_owned(),
            "0: no cluster \"app\"; static_resources has none",
        ),
        ("a:\n\t- b\n".to_owned(), "2: column 2: tabs"),
        ("a: [1\nb: 2\n".to_owned(), "2: column 2: "),
        ("a: *b\n".to_owned(), "1: column 4: "),
        (format!("{plain}---\na: 1\n"), "33: a second document"),
        (
            with("    connect_timeout: 1s\n", "    name: app\n"),
            "24: duplicate key \"name\", first at line 23",
        ),
        (
            with("    connect_timeout: 1s\n", "    <<: { a: 1 }\n"),
            "24: Envoy does not support merge keys",
        ),
        (
            with("- name: app\n", "- name: other\n"),
            "0: no cluster \"app\"; the clusters are other",
        ),
        (
            format!(
                "dynamic_resources: {{ cds_config: {{}} }}\n{}",
                with("- name: app\n", "- name: other\n")
            ),
            "0: no cluster \"app\"; the clusters are other; those of dynamic_resources.cds_config",
        ),
        (
            format!("{plain}  - name: app\n"),
            "33: duplicate cluster \"app\", first at line 23",
        ),
        (
            with("- name: app\n", "- &a\n    name: app\n") + "  - *a\n",
            "34: duplicate cluster",
        ),
        (
            with("  clusters:\n", "  clusters: &c\n") + "x: *c\n",
            "22: static_resources.clusters is an anchor",
        ),
        (
            with("- endpoint: {", "- endpoint: &e {") + "x: *e\n",
            "29: this anchor is used elsewhere",
        ),
        (
            cluster("    type: LOGICAL_DNS\n"),
            "25: type LOGICAL_DNS uses one name",
        ),
        (
            cluster("    type: ORIGINAL_DST\n"),
            "25: type ORIGINAL_DST sends",
        ),
        (
            cluster("    type: EDS\n"),
            "25: the nodes come from another discovery service",
        ),
        (cluster("    type: 2\n"), "25: type LOGICAL_DNS"),
        (cluster("    type: odd\n"), "25: unknown type ODD"),
        (
            cluster("    type: &t STATIC\n    alt_stat_name: *t\n"),
            "25: type is an anchor",
        ),
        (
            cluster("    cluster_type: { name: x }\n"),
            "25: cluster_type: ",
        ),
        (
            cluster(
                "    transport_socket: { typed_config: { auto_host_sni: true } }\n    type: STRICT_DNS\n",
            ),
            "25: auto_host_sni needs names",
        ),
        (
            cluster("    lb_subset_config: {}\n"),
            "25: lb_subset_config: ",
        ),
        (
            cluster("    transport_socket_matches: []\n"),
            "25: transport_socket_matches: ",
        ),
        (
            cluster("    common_lb_config: { locality_weighted_lb_config: {} }\n"),
            "25: localities have weights",
        ),
        (
            with(ENDPOINTS, ""),
            "23: the cluster has no load_assignment",
        ),
        (
            with("- lb_endpoints:\n", "- lb_endpoints: []\n      - x:\n"),
            "29: its endpoints have \"x\"",
        ),
        (
            with(
                "- lb_endpoints:\n",
                "- priority: 1\n        lb_endpoints:\n",
            ),
            "28: nodes of priority 1",
        ),
        (
            with("192.0.2.12", "192.0.2.11"),
            "30: 192.0.2.11 occurs before, with port 80",
        ),
        (
            with("192.0.2.12", "node2"),
            "30: \"node2\" is not an IP address, and the cluster's type is STATIC",
        ),
        (
            with("192.0.2.12", "0.0.0.0"),
            "30: \"0.0.0.0\" is not the address of a node",
        ),
        (
            with(
                "socket_address: { address: 192.0.2.12, port_value: 80 }",
                "pipe: { path: /x }",
            ),
            "30: this endpoint has no socket_address",
        ),
        (
            with("192.0.2.12, port_value: 80", "192.0.2.12, named_port: x"),
            "30: addresses have \"named_port\"",
        ),
        (
            with(
                node,
                &node.replace("} } }", "} }, health_check_config: { port_value: 81 } }"),
            ),
            "30: endpoints have \"health_check_config\"",
        ),
        (
            with(
                node,
                &node
                    .replace("} } }", "} } }\n          health_status: DRAINING\n")
                    .replace("endpoint: {", "endpoint:\n           {"),
            ),
            "32: this endpoint is DRAINING",
        ),
        (
            cluster("    type: STRICT_DNS\n").replace("192.0.2.12", "many"),
            "31: many resolves to 2 nodes",
        ),
        (
            cluster("    type: STRICT_DNS\n")
                .replace("cluster: app }", "cluster: app, auto_host_rewrite: true }"),
            "17: auto_host_rewrite needs names",
        ),
        (
            with(
                "          http_filters:\n",
                "          http_filters:\n          - name: plimsoll\n",
            ),
            "19: Plimsoll's filter is here already",
        ),
        (format!("node:\n{plain}"), "1: node has no keys"),
        (
            format!("node: {{ id: \"\" }}\n{plain}"),
            "1: endpoint discovery needs node.id",
        ),
    ] {
        let found = refused(&text);
        assert!(found[0].starts_with(wanted), "{wanted}: {found:?}");
    }
    let latin = plain.replace("# the first", "# caf\u{e9}").into_bytes();
    let latin: Vec<u8> = latin.into_iter().filter(|byte| *byte != 0xc3).collect();
    let problem = Tree::parse(&latin).expect_err("a problem");
    assert_eq!((problem.line, problem.text.as_str()), (29, "not UTF-8"));
    let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
    let problem = Tree::parse(deep.as_bytes()).expect_err("a problem");
    assert_eq!(problem.text, "values are nested more than 100 levels deep");
}

proptest! {
    /// Bootstraps with lines and characters taken out, put in and moved.
    #[test]
    fn any_text_is_planned_or_refused(
        changes in prop::collection::vec((0..40usize, 0..60usize, 0..8u8, "[ -~é\t\r\n]{0,4}"), 1..4),
        crlf in any::<bool>(),
    ) {
        let text = cluster("    circuit_breakers: { thresholds: [{ max_retries: 3 }] }\n    common_lb_config:\n      a: 1\n");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (line, column, change, new) in changes {
            let line = line % lines.len();
            let at = lines[line].char_indices().map(|(at, _)| at).nth(column).unwrap_or(lines[line].len());
            match change {
                0 => { lines.remove(line); }
                1 => { let copy = lines[line].clone(); lines.insert(line, copy); }
                2 => { let own = lines[line].split_off(at); lines.insert(line + 1, own); }
                3 => { lines[line].truncate(at); }
                4 => { let own = lines[line].trim_start().to_owned(); lines[line] = format!("{new}{own}"); }
                _ => lines[line].insert_str(at, &new),
            }
            if lines.is_empty() {
                lines.push(new);
            }
        }
        let text = lines.join(if crlf { "\r\n" } else { "\n" });
        if let Ok(plan) = planned_to(&text, 1000.0, false) {
            let after = String::from_utf8(plan.edits.apply(text.as_bytes())).expect("text");
            prop_assert!(planned_to(&after, 1000.0, false).is_ok_and(|it| it.edits.is_empty()));
            for line in text.lines().filter(|it| it.contains("# the only one") || it.contains("prefix: /")) {
                prop_assert!(after.contains(line), "{line:?} is not in {after}");
            }
        }
    }
}
