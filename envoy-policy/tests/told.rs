//! Workers' reports are combined into one exchange, and each worker gets its shares from the answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use envoy_policy::told::{Shares, Told, exchange};
use plimsoll_core::dispatch::NodeReport;
use plimsoll_wire::Exchanged;
use serde_json::{Value, json};

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
fn shares_are_read_for_each_dispatcher() {
    let answer = Exchanged::parse(answer().to_string().as_bytes()).unwrap();
    let shares = Shares::of(&answer, "envoy1/1", 7.0).unwrap();
    assert_eq!((shares.count, shares.asked_at), (4, 7.0));
    let nodes = shares.nodes();
    // One that no agent speaks for is not there.
    assert_eq!(nodes.len(), 2);
    assert_eq!(
        (nodes[0].granted, nodes[0].address.as_str()),
        (512.0, "127.0.0.1:8101")
    );
    assert_eq!(nodes[1].address, "");
    assert_eq!(
        Shares::of(&answer, "envoy1/2", 7.0),
        Err("the cluster has 256 proxies")
    );
    assert!(Shares::of(&answer, "envoy1/3", 7.0).is_err());
}

#[test]
fn an_exchange_asks_for_every_live_node() {
    let told = || Told {
        taken: 0,
        beat: 1,
        at: 7.0,
        name: "envoy1/1".to_owned(),
        instance: "ab".to_owned(),
        in_flight: 0.0,
        requests: 0,
        nodes: vec![
            NodeReport {
                name: "node1".to_owned(),
                demand: 3.5,
                held: 80.0,
                observation: "3 1 0.5 0 80 35:1 - 1 0 0".to_owned(),
            }
            .into(),
        ],
    };
    let live = ["node1".to_owned(), "node2".to_owned()];
    let body = |told: Told| -> Value {
        serde_json::from_slice(&exchange(Some("s"), 3.0, vec![told], &live)).unwrap()
    };
    assert_eq!(
        body(told()),
        json!({"service": "s", "dispatchers": [{
            "name": "envoy1/1", "instance": "ab", "lease_seconds": 3.0,
            "nodes": [
                {"name": "node1", "demand": 3.5, "held": 80.0, "observation": "3 1 0.5 0 80 35:1 - 1 0 0"},
                {"name": "node2", "demand": 0.0, "held": 1e15, "observation": "3 0 0 0 0 - - 0 0 0"},
            ],
        }]})
    );
    // It does not know its newest shares yet: nothing of what it was granted is free.
    let mut behind = told();
    behind.hold_all();
    assert_eq!(body(behind)["dispatchers"][0]["nodes"][0]["held"], 1e15);
}
