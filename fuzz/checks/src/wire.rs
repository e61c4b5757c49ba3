use std::{fmt::Debug, str::FromStr};

use plimsoll_core::{dispatch::Observed, placement::ObjectSet};
use plimsoll_net::parse_body;
use plimsoll_wire::{
    Exchange, Exchanged, LEASE_SECONDS, MAX_DISPATCHERS, MAX_NODES, MAX_NUMBER,
    MAX_OBSERVATION_BYTES, NodeService, NodeView, PlacementAnswer, PlacementMessage, PlacementView,
    is_name,
};
use serde::{Serialize, de::DeserializeOwned};

/// What is written of it is read as the same.
fn check_survives<T: Debug + DeserializeOwned + PartialEq + Serialize>(value: &T) {
    let text = serde_json::to_vec(value).unwrap();
    assert_eq!(&serde_json::from_slice::<T>(&text).unwrap(), value);
}

fn is_amount(number: f64) -> bool {
    (0.0..=MAX_NUMBER).contains(&number)
}

/// A body of `POST /v1/observe`, and an answer.
pub fn wire_exchange(data: &[u8]) {
    if let Ok(asked) = parse_body::<Exchange>(data)
        && asked.check().is_ok()
    {
        assert!(asked.dispatchers.len() <= MAX_DISPATCHERS);
        for dispatcher in &asked.dispatchers {
            assert!(is_name(&dispatcher.name) && is_name(&dispatcher.instance));
            let millis = 1000.0 * *LEASE_SECONDS.end();
            assert!(dispatcher.lease_millis() <= millis as u64);
            assert!(dispatcher.nodes.len() <= MAX_NODES);
            for wish in &dispatcher.nodes {
                assert!(is_name(&wish.name) && is_amount(wish.demand) && is_amount(wish.held));
                assert!(wish.observation.len() <= MAX_OBSERVATION_BYTES);
                Observed::parse(&wish.observation);
            }
        }
        check_survives(&asked);
    }
    if let Ok(answer) = Exchanged::parse(data) {
        assert!(answer.nodes.len() <= MAX_NODES);
        for (name, node) in &answer.nodes {
            assert!(is_name(name));
            let numbers = [node.bound_jobs, node.mean_cost, node.jobs, node.load];
            assert!(numbers.into_iter().all(is_amount));
        }
        check_survives(&answer);
    }
}

/// An answer of `GET /v1/node`.
pub fn wire_node(data: &[u8]) {
    let Ok(view) = NodeView::parse(data) else {
        return;
    };
    check_survives(&view);
    for service in view.services.into_values() {
        if let Ok(service) = NodeService::parse(service)
            // An agent that is asked says it, if only that it is unknown.
            && service.capacity.is_some()
        {
            check_survives(&service);
        }
    }
}

/// An answer of `/v1/placement`, a body of `POST /v1/placement`, or the name of a set.
pub fn wire_placement(data: &[u8]) {
    if let Ok(view) = PlacementView::parse(data) {
        check_survives(&view);
    }
    if let Ok(answer) = serde_json::from_slice::<PlacementAnswer>(data) {
        check_survives(&answer);
    }
    if let Ok(message) = parse_body::<PlacementMessage>(data)
        && message.check().is_ok()
    {
        check_survives(&message);
        message.busy.iter().for_each(|set| check_set(set));
        check_set(&message.set);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        check_set(text);
    }
}

fn check_set(text: &str) {
    if let Ok(set) = ObjectSet::from_str(text) {
        assert_eq!(set.to_string(), text);
    }
}
