//! `vectors/`: the JSON of what programs exchange. Whoever changes a format changes one of these files.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-wire --test vectors` writes them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Debug;

use plimsoll_core::ring::{NOBODY, RingTable};
use plimsoll_wire::{Dispatcher, Exchange, Exchanged, Granted, LiveNode, Ring, RingView, Wish};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use vectors::compare;

#[path = "../../core/tests/vectors/mod.rs"]
mod vectors;

/// The JSON, from which its reader makes the same again, whatever else a newer program says.
fn told<T: Debug + DeserializeOwned + PartialEq + Serialize>(it: &T) -> Value {
    let told = serde_json::to_value(it).unwrap();
    assert_eq!(serde_json::from_value::<T>(told.clone()).unwrap(), *it);
    told
}

fn told_and_more<T: Debug + DeserializeOwned + PartialEq + Serialize>(it: &T) -> Value {
    let told = told(it);
    let mut more = told.clone();
    more["more"] = json!({"unknown": []});
    assert_eq!(serde_json::from_value::<T>(more).unwrap(), *it);
    told
}

fn ring(version: u64, owners: &[u8]) -> Ring {
    Ring {
        table: RingTable::from_owners(version, 3, owners.to_vec()).unwrap(),
        names: vec!["node1".to_owned(), String::new(), "node3".to_owned()],
    }
}

#[test]
fn rings() {
    let old = ring(7, &[0, 0, 0, 0, 0, 2, 2, 2, 2, NOBODY, NOBODY, NOBODY]);
    let new = ring(9, &[0, 0, 0, 2, 2, 2, 2, 2, 2, 0, NOBODY, NOBODY]);
    let none = ring(1, &[NOBODY; 4]);
    let whole = |ring: &Ring| {
        let view = RingView::whole("stocks", ring);
        assert_eq!(view.clone().ring(None).as_ref(), Ok(ring));
        told_and_more(&view)
    };
    let changes = |moves: &[(u32, u8)]| {
        let view = RingView::changes("stocks", &new, 7, moves.iter().copied());
        assert_eq!(view.clone().ring(Some(&old)).as_ref(), Ok(&new));
        told_and_more(&view)
    };
    let cases = vec![
        whole(&old),
        whole(&none),
        // Slot 4 moved twice.
        changes(&[(4, NOBODY), (3, 2), (4, 2), (9, 0)]),
        // As many runs as make the whole table no larger.
        changes(&[(0, 0), (2, 0), (3, 2), (4, 2), (6, 2), (9, 0)]),
    ];
    compare("ring.json", "answers of GET /v1/ring", cases);
}

#[test]
fn exchanges() {
    let wish = |name: &str, demand, held, observation: &str| Wish {
        name: name.to_owned(),
        demand,
        held,
        observation: observation.to_owned(),
    };
    let dispatcher = |name: &str, lease_seconds, nodes| Dispatcher {
        name: name.to_owned(),
        instance: "1a2b".to_owned(),
        lease_seconds,
        nodes,
    };
    let wishes = vec![
        wish("node1", 3.5, 80.0, "2 1 0.500000 0 80 35:1 -"),
        wish("node3", 0.0, 1e15, "2 0 0 0 0 - -"),
    ];
    let exchange = Exchange {
        service: Some("stocks".to_owned()),
        dispatchers: vec![
            dispatcher("envoy1/1", 3.0, wishes),
            dispatcher("envoy1/2", 0.0, vec![]),
        ],
    };
    let unnamed = Exchange {
        service: None,
        dispatchers: vec![],
    };
    for exchange in [&exchange, &unnamed] {
        assert_eq!(exchange.check(), Ok(()));
    }
    let live = |address: Option<&str>, bound_jobs| LiveNode {
        address: address.map(str::to_owned),
        bound_jobs,
        mean_cost: 80.0,
        jobs: 12.0,
        load: 0.4,
    };
    let shares = Granted::Shares {
        count: 4,
        granted: [("node1".to_owned(), 512.0), ("node3".to_owned(), 0.0)].into(),
    };
    let refused = Granted::Refused {
        problem: "the cluster has 256 proxies".to_owned(),
    };
    let exchanged = Exchanged {
        version: 9,
        nodes: [
            ("node1".to_owned(), live(Some("192.0.2.11:8001"), 64.0)),
            ("node3".to_owned(), live(None, 0.0)),
        ]
        .into(),
        dispatchers: [
            ("envoy1/1".to_owned(), shares),
            ("envoy1/2".to_owned(), refused),
        ]
        .into(),
    };
    let answer = told_and_more(&exchanged);
    let read = Exchanged::parse(answer.to_string().as_bytes());
    assert_eq!(read.as_ref(), Ok(&exchanged));
    let cases = vec![
        json!({"asked": told(&exchange), "answer": answer}),
        json!({"asked": told(&unnamed), "answer": told(&Exchanged {
            version: 0,
            nodes: [].into(),
            dispatchers: [].into(),
        })}),
    ];
    compare(
        "exchange.json",
        "bodies of POST /v1/observe, and answers",
        cases,
    );
}
