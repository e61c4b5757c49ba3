//! Behaviour common to both shells, the Wasm filter and the native module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use envoy_policy::{
    config::{self, Config, PrimarySettings, proxy_name},
    ending::{client_left, is_through},
    naming::{SET, changes, cost},
    part::Part,
    primaries::{Primaries, Reason},
    primary_link::PrimaryLink,
    refusal::Refusal,
    statistics::HandedOver,
};
use serde_json::Value;

fn settings(more: &str) -> PrimarySettings {
    let text = format!(
        r#"{{"position": "primary", "cluster": "stocks", "agents": "a", "object_set": {{"header": "x-set"}}{more}}}"#
    );
    match config::parse(text.as_bytes()).unwrap() {
        Config::Primary(settings) => *settings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_is_asked_about_primaries_again_when_its_answer_says() {
    let mut primaries = Primaries::new(settings(""), "envoy/1/0".into(), "i".into());
    let mut link = PrimaryLink::new(7);
    let request = link.ask(&mut primaries, 0.0).unwrap();
    assert_eq!((&*request.path, request.timeout), ("/v1/placement", 1.0));
    let body: Value = serde_json::from_slice(request.body.as_ref().unwrap()).unwrap();
    assert_eq!(body["op"], "join");
    link.called(&request, Ok(1), 0.0);
    assert!(link.ask(&mut primaries, 0.5).is_none(), "it waits");
    let wait = br#"{"status": "wait", "wait_ms": 1000}"#;
    assert!(!link.on_answer(&mut primaries, 2, Ok((200, wait)), 0.5));
    assert!(link.on_answer(&mut primaries, 1, Ok((200, wait)), 0.5));
    assert!(link.ask(&mut primaries, 1.35).is_none());
    let request = link.ask(&mut primaries, 1.55).unwrap();
    link.called(&request, Ok(2), 1.55);
    // A failure is not waited for as long.
    assert!(link.on_answer(&mut primaries, 2, Err("it breaks off".into()), 1.6));
    assert!(link.ask(&mut primaries, 1.6).is_none());
    assert!(link.ask(&mut primaries, 1.8).is_some());
}

#[test]
fn a_call_has_the_token_and_a_body_is_posted() {
    let mut primaries = Primaries::new(settings(""), "envoy/1/0".into(), "i".into());
    let mut request = PrimaryLink::new(7).ask(&mut primaries, 0.0).unwrap();
    let named = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        let owned = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    let common = [(":path", "/v1/placement"), (":authority", "agents")];
    let mut post = vec![(":method", "POST")];
    post.extend(common);
    post.extend([
        ("content-type", "application/json"),
        ("authorization", "Bearer secret"),
    ]);
    assert_eq!(request.headers("agents", Some("secret")), named(&post));
    request.body = None;
    let mut get = vec![(":method", "GET")];
    get.extend(common);
    assert_eq!(request.headers("agents", None), named(&get));
}

#[test]
fn the_node_gets_one_name_of_the_set_and_no_token() {
    let headers = [":path", SET, "X_Plimsoll_Fence", "x-set", "x-other"];
    let headers = headers.map(|name| (name.to_ascii_lowercase(), b"/x".to_vec()));
    let path = Part::PathSegment(1.0);
    let (remove, set) = changes(&path, &headers, b"A").unwrap();
    assert_eq!((remove, set), (vec![SET, "x_plimsoll_fence"], Some("A")));
    let own = Part::Header(SET.to_owned());
    let (remove, set) = changes(&own, &headers, b"A").unwrap();
    assert_eq!((remove, set), (vec!["x_plimsoll_fence"], None));
    assert_eq!(changes(&path, &headers, b"\xff"), None);
}

#[test]
fn a_cost_that_is_none_is_the_default() {
    let settings = settings(r#", "cost": {"from": {"query": "items"}, "default": 4}"#);
    for (path, expected) in [
        ("/x?items=12", 12.0),
        ("/x?items=1e10", 4.0),
        ("/x?items=NaN", 4.0),
        ("/x?items=-1", 4.0),
        ("/x", 4.0),
    ] {
        let headers = [(":path".to_owned(), path.as_bytes().to_vec())];
        assert_eq!(cost(&settings, &headers), expected, "{path}");
    }
}

#[test]
fn refusals_say_why_and_when_to_come_again() {
    let of = |refusal: Refusal| {
        let headers = refusal.headers();
        let value = |name| {
            let mut found = headers.iter().filter(|(other, _)| *other == name);
            found.next().map(|(_, value)| value.clone())
        };
        (
            refusal.status,
            value("plimsoll-reason"),
            value("retry-after"),
        )
    };
    let full = (503, Some("full".to_owned()), Some("2".to_owned()));
    assert_eq!(of(Refusal::full(2)), full);
    let moving = (503, Some("moving".to_owned()), Some("2".to_owned()));
    assert_eq!(of(Refusal::no_primary(Reason::Moving, 2)), moving);
    let name = (400, Some("name".to_owned()), None);
    assert_eq!(of(Refusal::no_primary(Reason::Name, 2)), name);
    let lost = (503, Some("lost".to_owned()), Some("2".to_owned()));
    assert_eq!(of(Refusal::lost(2)), lost);
}

#[test]
fn a_stream_is_through_when_its_node_has_answered_or_was_never_reached() {
    let (no_healthy_host, client_gone, timeout) = (0x2, 1 << 14, 0x4);
    assert!(is_through(Some(b"via_upstream"), 0));
    assert!(is_through(None, no_healthy_host));
    assert!(!is_through(None, 0));
    assert!(!is_through(None, timeout));
    assert!(!is_through(None, no_healthy_host | timeout));
    assert!(client_left(client_gone) && !client_left(timeout));
}

#[test]
fn a_counter_is_handed_over_once() {
    let mut handed_over = HandedOver::default();
    assert_eq!(handed_over.more([3, 0, 1, 0]), [3, 0, 1, 0]);
    assert_eq!(handed_over.more([5, 0, 1, 2]), [2, 0, 0, 2]);
}

#[test]
fn the_proxy_is_called_by_its_configuration_else_by_the_node_id() {
    let id = |id: &str| {
        let id = id.to_owned();
        move || Some(id)
    };
    assert_eq!(proxy_name(Some("edge"), id("other")), "edge");
    assert_eq!(proxy_name(None, id("node-7")), "node-7");
    assert_eq!(proxy_name(None, id("no name")), "envoy");
    assert_eq!(proxy_name(None, || None), "envoy");
}
