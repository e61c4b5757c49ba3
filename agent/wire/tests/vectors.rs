//! `vectors/`: the JSON that programs exchange. Every change of a format changes one of these files.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-wire --test vectors` writes them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Debug;

use plimsoll_core::{
    Flow, ServiceMode,
    ring::{NOBODY, RingTable},
};
use plimsoll_wire::{
    Dispatcher, Exchange, Exchanged, ForcedHealth, GoneDispatcher, Granted, Health, Listener,
    LiveNode, NodeDecision, NodeLearned, NodeService, NodeView, Override, PartitionQuery,
    PlacedDispatcher, PlacementAnswer, PlacementMessage, PlacementOperation, PlacementView,
    ProxyView, Ring, RingView, ServiceSettings, Shed, SlaView, SourceSight, Wish,
};
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
        wish("node1", 3.5, 80.0, "3 1 0.500000 0 80 35:1 - 1 0 0"),
        wish("node3", 0.0, 1e15, "3 0 0 0 0 - - 0 0 0"),
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

/// A service of which all is known.
fn known() -> NodeService {
    NodeService {
        address: Some("192.0.2.11:8001".to_owned()),
        settings: ServiceSettings {
            sla: SlaView {
                delay: 0.5,
                more: [("set_point".to_owned(), json!(0.9))].into_iter().collect(),
            },
            mode: ServiceMode::Observe,
            more: [("mpl".to_owned(), json!(false))].into_iter().collect(),
        },
        decision: NodeDecision {
            bound: 5120.0,
            bound_jobs: 64.0,
            reason: "over_sla".to_owned(),
            measured_delay: Some(0.75),
            more: [("mean_cost".to_owned(), json!(80.0))]
                .into_iter()
                .collect(),
        },
        weight_percent: 80,
        capacity: Some(Some(4920.0)),
        weight_bound: 4840.0,
        flow: Some(Flow {
            admitted: 4800.0,
            ended: 4720.0,
            backlog: 3840.0,
            bound: 5120.0,
        }),
        would_refuse: Some(2.5),
        health: Health::Down,
        health_detail: Some("connect: refused".to_owned()),
        set: Override {
            drain: true,
            health: Some(ForcedHealth::Up),
            weight_percent: Some(20),
            bound: Some(4096.0),
        },
        finished: 120,
        failed: 2,
        jobs: Some(48.0),
        load: 1.5,
        backlog: Some(3840.0),
        stepped_at: 1_700_000_001.25,
        observed_seconds: Some(2.0),
        observed_at: Some(1_700_000_001.25),
        source_error: Some("connect: refused".to_owned()),
        sight: Some(SourceSight {
            ratio: 5.0,
            unseen: Some(0.4),
        }),
        learned: Some(NodeLearned {
            age_seconds: 7300.5,
            earlier_run: true,
            more: [("rate".to_owned(), json!(9.0))].into_iter().collect(),
        }),
        shed: Shed {
            fraction: 0.25,
            asked: true,
        },
        proxies: vec![ProxyView {
            identity: "stocks/node1".to_owned(),
            proxy: "lb1".to_owned(),
            address: [192, 0, 2, 1].into(),
            polled_seconds_ago: 0.25,
            share_jobs: 18,
            told: "up 80% maxconn:18".to_owned(),
        }],
        more: [("host_load".to_owned(), json!({"cpu": 0.5, "network": null}))]
            .into_iter()
            .collect(),
    }
}

/// A service with as many unknown values as possible.
fn unknown() -> NodeService {
    NodeService {
        address: None,
        settings: ServiceSettings::default(),
        decision: NodeDecision {
            measured_delay: None,
            ..known().decision
        },
        capacity: Some(None),
        flow: None,
        would_refuse: None,
        health: Health::Up,
        health_detail: None,
        set: Override::default(),
        jobs: None,
        backlog: None,
        observed_seconds: None,
        observed_at: None,
        source_error: None,
        sight: None,
        learned: None,
        shed: Shed::default(),
        proxies: Vec::new(),
        ..known()
    }
}

#[test]
fn nodes() {
    let listener = |address: &str, allow| Listener {
        address: address.to_owned(),
        allow,
        requires: vec!["token".to_owned()],
    };
    let node = NodeView {
        version: "0.1.0".to_owned(),
        uptime_seconds: 90.5,
        unix_time: Some(1_700_000_002.0),
        listeners: [
            ("http.listen".to_owned(), listener("0.0.0.0:9464", None)),
            (
                "agent_check.listen".to_owned(),
                listener("[::]:9101", Some(vec!["192.0.2.0/24".to_owned()])),
            ),
        ]
        .into(),
        services: [
            ("stocks".to_owned(), known()),
            ("orders".to_owned(), unknown()),
        ]
        .into(),
    };
    let case = told_and_more(&node);
    // Readers take the services one by one.
    let read = NodeView::parse(case.to_string().as_bytes()).unwrap();
    for (name, service) in read.services {
        assert_eq!(
            NodeService::parse(service).as_ref(),
            Ok(&node.services[&name])
        );
    }
    compare("node.json", "answers of GET /v1/node", vec![case]);
}

#[test]
fn an_agent_before_capacities_does_not_say_that_its_own_is_unknown() {
    let mut service = told(&unknown());
    service.as_object_mut().unwrap().remove("capacity");
    assert_eq!(NodeService::parse(service).unwrap().capacity, None);
}

#[test]
fn placements() {
    let view = PlacementView {
        cluster: "stocks".to_owned(),
        when_lost: Some("hold".to_owned()),
        lease_seconds: Some(3.0),
        generation: "g1".to_owned(),
        version: 16_385,
        open_in_seconds: 1.5,
        keeper: Some("node1/1a2b".to_owned()),
        epoch: 3,
        known_version: 16_384,
        named: 2,
        nodes: Some([("node1".to_owned(), 34), ("node2".to_owned(), 32)].into()),
        moving: vec!["=orders".to_owned(), "*7".to_owned()],
        dispatchers: vec![PlacedDispatcher {
            id: "envoy1/1".to_owned(),
            silent_seconds: 4.25,
            is_silent: true,
            version: 16_384,
        }],
        gone: vec![GoneDispatcher {
            id: "envoy1/2".to_owned(),
            since_seconds: 12.0,
        }],
        last_plan: Some(json!({"reason": "even"})),
    };
    let none = PlacementView {
        generation: String::new(),
        version: 0,
        keeper: None,
        nodes: None,
        last_plan: None,
        ..view.clone()
    };
    let cases = vec![told_and_more(&view), told_and_more(&none)];
    compare("placement.json", "answers of GET /v1/placement", cases);
    let mut older = told(&view);
    for key in ["when_lost", "lease_seconds"] {
        older.as_object_mut().unwrap().remove(key);
    }
    let older = PlacementView::parse(older.to_string().as_bytes()).unwrap();
    assert_eq!((older.when_lost, older.lease_seconds), (None, None));
}

#[test]
fn placement_messages() {
    let report = PlacementMessage {
        cluster: Some("stocks".to_owned()),
        id: "envoy1/1#1f.3".to_owned(),
        generation: "g1".to_owned(),
        version: 12,
        busy: vec!["=A17".to_owned()],
        loads: [("*3".to_owned(), 4.0), ("*9:B2".to_owned(), 0.5)].into(),
        ..PlacementMessage::new(PlacementOperation::Report)
    };
    let join = PlacementMessage {
        id: "envoy1/1#1f.3".to_owned(),
        ..PlacementMessage::new(PlacementOperation::Join)
    };
    let leave = PlacementMessage {
        op: PlacementOperation::Leave,
        idle: true,
        ..join.clone()
    };
    let forget = PlacementMessage {
        op: PlacementOperation::Forget,
        ..join.clone()
    };
    let wish = PlacementMessage {
        set: "*7".to_owned(),
        node: "node2".to_owned(),
        ..PlacementMessage::new(PlacementOperation::Move)
    };
    let cases = [report, join, leave, forget, wish];
    let cases = cases.iter().map(|message| {
        assert_eq!(message.check(), Ok(()));
        told(message)
    });
    compare(
        "placement_message.json",
        "bodies of POST /v1/placement",
        cases.collect(),
    );
}

#[test]
fn placement_answers() {
    let entries = vec![("*0".to_owned(), "node1".to_owned())];
    let cases = [
        PlacementAnswer::Open {
            generation: "g1".to_owned(),
            version: 12,
            lease_ms: 3000,
            request_limit_ms: 10_000,
            when_lost: "hold".to_owned(),
            entries: entries.clone(),
        },
        PlacementAnswer::Wait { wait_ms: 250 },
        PlacementAnswer::Ok {
            version: Some(13),
            deltas: vec!["12 13 =A17 >node1".to_owned()],
        },
        PlacementAnswer::Ok {
            version: None,
            deltas: Vec::new(),
        },
        PlacementAnswer::Table {
            generation: "g1".to_owned(),
            version: 13,
            entries,
        },
        PlacementAnswer::Unknown,
    ];
    compare(
        "placement_answer.json",
        "answers of POST /v1/placement",
        cases.iter().map(told_and_more).collect(),
    );
}

#[test]
fn partition_queries() {
    let named = PartitionQuery {
        partition: "p1".into(),
        query: Some("by_symbol".into()),
        sql: None,
        parameters: vec![json!("S1"), json!(2.5), Value::Null].into(),
        limit: Some(100),
        deadline_seconds: 1.5,
    };
    let free = PartitionQuery {
        query: None,
        sql: Some("select 1".into()),
        parameters: Vec::new().into(),
        limit: None,
        ..named.clone()
    };
    let cases = vec![told(&named), told(&free)];
    compare(
        "partition_query.json",
        "bodies of POST /v1/partition-query",
        cases,
    );
}
