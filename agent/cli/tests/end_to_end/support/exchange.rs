//! Exchanges as a proxy makes them.

use serde_json::{Value, json};

use crate::support::{Agent, http_post, wait_for};

pub const PATH: &str = "/v1/observe";
pub const IDLE: &str = "1 0 0.000000 0 0 -";

pub fn ask(agent: &Agent, body: &Value) -> (u16, Value) {
    ask_text(agent, &body.to_string())
}

pub fn ask_text(agent: &Agent, body: &str) -> (u16, Value) {
    let (status, text) = http_post(agent.http_port, PATH, "", body).unwrap();
    let answer = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status} {text:?}"));
    (status, answer)
}

pub fn problem(agent: &Agent, body: &str) -> (u16, String) {
    let (status, answer) = ask_text(agent, body);
    (
        status,
        answer["problem"].as_str().unwrap_or_default().to_owned(),
    )
}

/// A dispatcher that wants this of node1.
pub fn dispatcher(name: &str, instance: &str, demand: f64) -> Value {
    json!({
        "name": name, "instance": instance, "lease_seconds": 60.0,
        "nodes": [{"name": "node1", "demand": demand, "observation": IDLE}],
    })
}

pub fn one(name: &str, demand: f64) -> Value {
    json!({"dispatchers": [dispatcher(name, "i", demand)]})
}

pub fn granted(answer: &Value, name: &str) -> f64 {
    let share = &answer["dispatchers"][name]["granted"]["node1"];
    share.as_f64().unwrap_or_else(|| panic!("{answer}"))
}

/// Waits until all of node1's bound of 40 is granted, or granted again.
pub fn wait_granted(agent: &Agent) {
    wait_for("shares", || {
        let (status, answer) = ask(agent, &one("envoy1/1", 1.0));
        let share = &answer["dispatchers"]["envoy1/1"]["granted"]["node1"];
        (status == 200 && *share == 40.0).then_some(())
    });
}
