//! Input is untrusted: valid input is accepted, and errors name the field of anything else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use plimsoll_core::ring::RingTable;
use plimsoll_wire::{Exchanged, MAX_NAME_BYTES, Ring, RingView};
use serde_json::{Value, json};

fn ring(view: &Value, held: Option<&Ring>) -> Result<Ring, String> {
    RingView::parse(view.to_string().as_bytes())?.ring(held)
}

fn held() -> Ring {
    ring(
        &json!({"service": "s", "version": 4, "slots": 8, "nodes": ["a", "b"], "owners": [0, 3, 1, 4, 255, 1]}),
        None,
    )
    .unwrap()
}

#[test]
fn a_whole_ring_is_read_and_survives_the_way_to_the_workers() {
    let ring = held();
    assert_eq!(ring.table.owners(), [0, 0, 0, 1, 1, 1, 1, 255]);
    assert_eq!(Ring::from_bytes(&ring.to_bytes()), Some(ring));
}

#[test]
fn changes_lead_from_one_ring_to_the_next() {
    let view = json!({"version": 6, "since": 4, "slots": 8, "nodes": ["a", "b", "c"], "changes": [[1, 2, 2], [7, 1, 0]]});
    let next = ring(&view, Some(&held())).unwrap();
    assert_eq!(next.table.owners(), [0, 2, 2, 1, 1, 1, 1, 0]);
    assert_eq!((next.table.version(), next.names.len()), (6, 3));
    assert!(ring(&view, None).unwrap_err().contains("no ring to change"));
    assert!(
        ring(&view, Some(&next))
            .unwrap_err()
            .contains("does not fit")
    );
}

#[test]
fn a_ring_that_is_none_is_refused_and_why() {
    for (view, said) in [
        (
            json!({"version": 1, "slots": 0, "nodes": [], "owners": []}),
            "slots: 0",
        ),
        (
            json!({"version": 1, "slots": 2_000_000, "nodes": [], "owners": []}),
            "slots: 2000000",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a"], "owners": [0]}),
            "odd number",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a"], "owners": [0, 3]}),
            "fewer than slots",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a"], "owners": [0, 4_000_000_000_u32]}),
            "more than slots",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a"], "owners": [256, 4]}),
            "256 is none",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a"], "owners": [1, 4]}),
            "owner 1 is no node",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": [""], "owners": [0, 4]}),
            "owner 0 is no node",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a", "a"], "owners": [0, 4]}),
            "duplicate a",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a b"], "owners": [0, 4]}),
            "nodes: malformed name",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": vec!["a"; 256], "owners": [0, 4]}),
            "256, maximum 255",
        ),
        (
            json!({"version": 1, "slots": 4, "nodes": ["a"]}),
            "neither owners nor changes",
        ),
        (
            json!({"version": -1, "slots": 4, "nodes": ["a"], "owners": [0, 4]}),
            "invalid value",
        ),
        (
            json!({"version": 1e300, "slots": 4, "nodes": ["a"], "owners": [0, 4]}),
            "invalid type",
        ),
        (json!("ring"), "invalid type"),
    ] {
        let problem = ring(&view, None).unwrap_err();
        assert!(problem.contains(said), "{view}: {problem}");
    }
    for (changes, said) in [
        (json!([[7, 2, 0]]), "beyond the table"),
        (json!([[4_294_967_295_u32, 2, 0]]), "beyond the table"),
        (json!([[0, 8, 0], [0, 8, 1]]), "more than slots"),
        (json!([[0, 1, 300]]), "300 is no owner"),
        (json!([[0, 1, 7]]), "owner 7"),
    ] {
        let view =
            json!({"version": 5, "since": 4, "slots": 8, "nodes": ["a", "b"], "changes": changes});
        let problem = ring(&view, Some(&held())).unwrap_err();
        assert!(problem.contains(said), "{view}: {problem}");
    }
    let view = json!({"version": 5, "since": 4, "slots": 9, "nodes": ["a", "b"], "changes": []});
    assert!(
        ring(&view, Some(&held()))
            .unwrap_err()
            .contains("another size")
    );
    let whole = held().to_bytes();
    for length in 0..whole.len() {
        // Cut anywhere it is no ring, or one with fewer slots; it never panics.
        let _ = Ring::from_bytes(&whole[..length]);
    }
    assert!(RingView::parse(b"{\"version\": 1, \"slots\": 4").is_err());
    assert!(RingTable::from_owners(1, 1, vec![0]).is_ok());
}

fn answer() -> Value {
    json!({
        "version": 3,
        "nodes": {
            "node1": {"address": "127.0.0.1:8101", "bound_jobs": 64.0, "mean_cost": 80.0, "jobs": 12.0, "load": 0.4},
            "node2": {"address": null, "bound_jobs": 0.0, "mean_cost": 1.0, "jobs": 0.0, "load": 0.0},
        },
        "dispatchers": {
            "envoy1/1": {"count": 4, "granted": {"node1": 512.0, "node2": 0.0, "stranger": 5.0}},
            "envoy1/2": {"problem": "the cluster has 256 proxies"},
        },
    })
}

#[test]
fn shares_that_are_none_are_refused_and_why() {
    let with = |path: &str, value: Value| {
        let mut answer = answer();
        *answer.pointer_mut(path).unwrap() = value;
        Exchanged::parse(answer.to_string().as_bytes()).unwrap_err()
    };
    for (path, value, said) in [
        (
            "/nodes/node1/bound_jobs",
            json!(-1.0),
            "nodes.node1: numbers",
        ),
        ("/nodes/node1/jobs", json!(1e16), "nodes.node1: numbers"),
        ("/nodes/node1/load", json!("x"), "invalid type"),
        (
            "/nodes/node1/address",
            json!("127.0.0.1:80,evil:80"),
            "nodes.node1.address",
        ),
        (
            "/nodes/node1/address",
            json!("a\r\nb"),
            "nodes.node1.address",
        ),
        ("/nodes/node1/address", json!(""), "nodes.node1.address"),
        (
            "/dispatchers/envoy1~11/granted/node1",
            json!(-5),
            "dispatchers.envoy1/1.granted",
        ),
        (
            "/dispatchers/envoy1~11/granted/node1",
            json!(null),
            "did not match",
        ),
        ("/version", json!(-3), "invalid value"),
    ] {
        let problem = with(path, value);
        assert!(problem.contains(said), "{path}: {problem}");
    }
    let many: serde_json::Map<String, Value> = (0..256)
        .map(|n| {
            (
                format!("n{n}"),
                json!({"bound_jobs": 1, "mean_cost": 1, "jobs": 0, "load": 0}),
            )
        })
        .collect();
    assert!(with("/nodes", Value::Object(many)).contains("nodes: 256"));
    assert!(
        with(
            "/nodes",
            json!({"a b": {"bound_jobs": 1, "mean_cost": 1, "jobs": 0, "load": 0}})
        )
        .contains("name")
    );
}

#[test]
fn every_name_that_redis_takes_is_read() {
    for (bytes, is_read) in [(MAX_NAME_BYTES, true), (MAX_NAME_BYTES + 1, false)] {
        let name = "n".repeat(bytes);
        let table = json!({"version": 1, "slots": 4, "nodes": [name], "owners": [0, 4]});
        assert_eq!(ring(&table, None).is_ok(), is_read, "{bytes}");
        let mut exchanged = answer();
        exchanged["nodes"][name] = exchanged["nodes"]["node1"].clone();
        let read = Exchanged::parse(exchanged.to_string().as_bytes());
        assert_eq!(read.is_ok(), is_read, "{bytes}");
    }
}
