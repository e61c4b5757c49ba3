//! The configuration of `plimsoll gather`: what is wrong in it, a partition map, reloads.

use std::process::Command;

use crate::support::gather::Gather;
use crate::support::wait_for;
use serde_json::json;

const NODES: &str = "[nodes]\nnode1 = \"127.0.0.1:9\"\nnode2 = \"127.0.0.1:10\"\n";
const PARTITION: &str = "[[partition]]\nname = \"p1\"\nnodes = [\"node1\"]\n";

#[test]
fn each_mistake_names_file_line_and_key() {
    let gather = Gather::unstarted("");
    let file = gather.path("gather.toml").display().to_string();
    for (tables, said) in [
        (PARTITION.to_owned(), ":1: nodes: missing field"),
        (NODES.to_owned(), ": partition: must be 1 to 256 partitions"),
        (
            format!("{NODES}[gather]\nat_twice = 1\n{PARTITION}"),
            ":8: gather.at_twice: unknown field",
        ),
        (
            format!("{NODES}[gather]\nat_once = 0\n{PARTITION}"),
            ":8: gather.at_once: must be from 1 to 256",
        ),
        (
            format!("{NODES}[gather]\nmax_deadline = \"61s\"\n{PARTITION}"),
            ":8: gather.max_deadline: must be at most 1m",
        ),
        (
            format!("{NODES}[gather]\nmax_deadline = \"1s\"\ndeadline = \"2s\"\n{PARTITION}"),
            ":9: gather.deadline: must not be longer",
        ),
        (
            format!("{NODES}[agents]\ntoken_file = \"/nowhere\"\n{PARTITION}"),
            ":8: agents.token_file: /nowhere: No such file",
        ),
        (
            format!("[nodes]\nnode1 = \"x\"\n{PARTITION}"),
            ":5: nodes.node1: must be host and port",
        ),
        (
            format!("{NODES}{PARTITION}{PARTITION}"),
            ":11: partition[1].name: there are two partitions \"p1\"",
        ),
        (
            format!("{NODES}[[partition]]\nname = \"p 1\"\nnodes = [\"node1\"]\n"),
            ":8: partition[0].name: a name must be",
        ),
        (
            format!("{NODES}[[partition]]\nname = \"p1\"\nnodes = []\n"),
            ":9: partition[0].nodes: must be 1 to 8 nodes",
        ),
        (
            format!("{NODES}[[partition]]\nname = \"p1\"\nnodes = [\"node3\"]\n"),
            ":9: partition[0].nodes[0]: node \"node3\" is not in [nodes]",
        ),
        (
            format!("{NODES}[[partition]]\nname = \"p1\"\nnodes = [\"node1\", \"node1\"]\n"),
            ":9: partition[0].nodes[1]: duplicate node \"node1\"",
        ),
        (
            format!("{NODES}[gather]\nmap_file = \"/nowhere\"\n"),
            ":8: gather.map_file: cannot read /nowhere",
        ),
        (
            format!("{NODES}[gather]\nmap_file = \"/nowhere\"\n{PARTITION}"),
            ":9: partition: there is gather.map_file",
        ),
    ] {
        gather.configure(&tables);
        let error = gather.checked();
        assert!(
            error.contains(&format!("{file}{said}")),
            "{tables}\n{error}"
        );
    }
    let tables = format!("{NODES}[gather]\nfree_sql = true\n{PARTITION}");
    gather.configure(&tables);
    assert_eq!(gather.checked(), "");
    let text = std::fs::read_to_string(gather.path("gather.toml")).unwrap();
    std::fs::write(
        gather.path("gather.toml"),
        text.replace("token_file", "# token_file"),
    )
    .unwrap();
    assert!(
        gather
            .checked()
            .contains(":8: gather.free_sql: needs http.token_file")
    );
}

#[test]
fn health_is_that_of_the_one_that_runs() {
    let mut gather = Gather::start(&format!("{NODES}{PARTITION}"));
    assert_eq!(gather.said("--check-health"), "");
    gather.stop();
    let error = gather.said("--check-health");
    assert!(error.contains("Connection refused"), "{error}");
}

#[test]
fn a_map_of_partitions_is_read_and_a_bad_one_refused() {
    let mut gather = Gather::unstarted(&format!("{NODES}[gather]\nmap_file = \"DIR/map.json\"\n"));
    let make = |nodes: &str| {
        std::fs::write(gather.path("rows.csv"), "id\n1\n2\n3\n").unwrap();
        let made = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args([
                "partition",
                "make",
                "--key",
                "id",
                "--by",
                "rows",
                "--parts",
                "3",
                "--nodes",
                nodes,
            ])
            .arg("--input")
            .arg(gather.path("rows.csv"))
            .arg("--output")
            .arg(gather.path("map.json"))
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    };
    make("node1,node3");
    assert!(
        gather.checked().contains("unknown node \"node3\""),
        "{}",
        gather.checked()
    );
    make("node1,node2");
    gather.start_again();
    let (_, lines) = gather.ask(&json!({"query": "q"}));
    let partitions = lines[0]["error"]["partitions"].as_array().unwrap();
    let names: Vec<_> = partitions
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["p1", "p2", "p3"]);

    // The last good one stays.
    let reloads = |result| {
        gather.metric(&format!(
            "plimsoll_config_reloads_total{{result=\"{result}\"}}"
        ))
    };
    std::fs::write(gather.path("map.json"), "{}").unwrap();
    gather.process.as_ref().unwrap().signal("-HUP");
    wait_for("a reload", || (reloads("refused") == 1.0).then_some(()));
    assert!(gather.log().contains("reload refused"), "{}", gather.log());
    let told = |name: &str| gather.ask(&json!({"query": "q", "partitions": [name]})).0;
    assert_eq!((told("p3"), told("p9")), (502, 400));
    gather.configure(&format!(
        "{NODES}[[partition]]\nname = \"p9\"\nnodes = [\"node1\"]\n"
    ));
    gather.process.as_ref().unwrap().signal("-HUP");
    wait_for("a reload", || (reloads("applied") == 1.0).then_some(()));
    assert_eq!((told("p3"), told("p9")), (400, 502));
}
