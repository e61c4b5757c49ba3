//! Valid filter configurations, and error messages for invalid ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::borrow::Cow;

use envoy_policy::{
    config::{self, Config, Settings},
    part::Part,
};
use plimsoll_core::{dispatch::Placement, schedule::Policy};

fn parse(text: &str) -> Result<Settings, String> {
    match config::parse(text.as_bytes())? {
        Config::Downstream(settings) => Ok(*settings),
        other => panic!("{other:?}"),
    }
}

/// The least configuration, with more fields.
fn with(more: &str) -> Result<Settings, String> {
    parse(&format!(
        r#"{{"cluster": "stocks", "agents": "plimsoll_agents"{more}}}"#
    ))
}

#[test]
fn two_fields_are_enough() {
    let settings = with("").unwrap();
    assert_eq!(settings.dispatch.placement, Placement::FcHash);
    assert_eq!(settings.hosts_header, "x-plimsoll-hosts");
    assert_eq!(
        (settings.period, settings.lease, settings.dispatch.age_limit),
        (1.0, 3.0, 10.0)
    );
    assert_eq!(settings.key, None);
}

#[test]
fn a_token_of_a_wrong_type_is_not_shown() {
    let problem = with(r#", "token": 271828"#).unwrap_err();
    assert_eq!(problem, "token: must be a string");
}

#[test]
fn all_fields_are_taken_also_as_the_numbers_of_a_struct() {
    let settings = with(
        r#", "position": "downstream", "service": "s", "token": "t", "proxy": "lb1", "policy": "load_informed",
        "key": {"path_segment": 2.0}, "class": {"header": "x-class"}, "period": 0.5, "lease": 2.0, "age_limit": 5.0, "timeout": 0.3, "spill": 0.0,
        "retry_after": 2.0, "alternatives": 1.0, "hosts_header": "x-h",
        "cost": {"from": {"query": "items"}, "route": {"path_prefix": 1}, "default": 2.0, "min": 0.5, "max": 900,
                 "routes": 10.0, "items_header": "x-items"},
        "scheduler": {"arrivals": 3.0, "max_nodes": 2.0, "interval": 0.2, "artificial": 0.3}"#,
    )
    .unwrap();
    let policy = Policy::LoadInformed {
        max_nodes: 2,
        interval: 0.2,
        artificial: 0.3,
    };
    assert_eq!(settings.dispatch.placement, Placement::Scheduled(policy));
    assert_eq!(settings.key, Some(Part::PathSegment(2.0)));
    assert_eq!(settings.class, Some(Part::Header("x-class".to_owned())));
    assert_eq!(settings.cost, Some(Part::Query("items".to_owned())));
    assert_eq!(settings.max_cost, Some(900.0));
    assert_eq!(settings.route, Some(Part::PathPrefix(1.0)));
    assert_eq!(settings.items_header.as_deref(), Some("x-items"));
    assert_eq!((settings.alternatives, settings.retry_after), (1, 2));
}

#[test]
fn the_upstream_position_takes_nothing_else() {
    assert_eq!(
        config::parse(br#"{"position": "upstream"}"#),
        Ok(Config::Upstream)
    );
    let problem = config::parse(br#"{"position": "upstream", "cluster": "stocks"}"#).unwrap_err();
    assert!(problem.starts_with("cluster: unknown field"), "{problem}");
}

#[test]
fn what_is_wrong_is_named() {
    for (more, said) in [
        (r#", "polizy": 1"#, "polizy: unknown field"),
        (
            r#", "policy": "fastest""#,
            "policy: unknown variant `fastest`",
        ),
        (r#", "period": "1s""#, "period: invalid type: string"),
        (
            r#", "period": 0"#,
            "period: must be a number within 0.1..60 s, is 0",
        ),
        (r#", "lease": 1.5"#, "lease: must be at least two periods"),
        (r#", "age_limit": -1"#, "age_limit: must be a number within"),
        (
            r#", "spill": 2"#,
            "spill: must be a number within 0..1, is 2",
        ),
        (
            r#", "alternatives": 1.5"#,
            "alternatives: must be a whole number within 0..8, is 1.5",
        ),
        (
            r#", "retry_after": -1"#,
            "retry_after: must be a whole number",
        ),
        (r#", "proxy": "a b""#, "proxy: must be 1..100 of"),
        (
            r#", "hosts_header": "X-Hosts""#,
            "hosts_header: must be a header's name",
        ),
        (r#", "key": "path""#, "key: "),
        (
            r#", "key": {"path_segment": 0}"#,
            "key.path_segment: must be within 1..100",
        ),
        (
            r#", "key": {"query": ""}"#,
            "key.query: must be a parameter's name",
        ),
        (r#", "key": {"cookie": "a"}"#, "key"),
        (r#", "class": 1"#, "class"),
        (
            r#", "cost": {"from": {"header": ":Bad"}}"#,
            "cost.from.header: must be a header's name",
        ),
        (
            r#", "cost": {"min": 0}"#,
            "cost.min: must be a number within",
        ),
        (
            r#", "cost": {"routes": 0}"#,
            "cost.routes: must be a whole number",
        ),
        (
            r#", "cost": {"max": 0}"#,
            "cost.max: must be a number within",
        ),
        (r#", "cost": {"lest": 1}"#, "cost.lest: unknown field"),
        (
            r#", "news": {"phase": 2}"#,
            "news: only the schedulers look at load",
        ),
        (
            r#", "policy": "job_informed", "news": {"phase": -1}"#,
            "news.phase: must be a number within 0..3600 s, is -1",
        ),
        (
            r#", "policy": "job_informed", "news": {"update": "daily"}"#,
            "news.update: unknown variant",
        ),
        (
            r#", "policy": "job_informed", "news": {"update": "on_access"}"#,
            "news: on_access, and no other update, needs jobs_header or load_header",
        ),
        (
            r#", "policy": "job_informed", "news": {"update": "on_access", "jobs_header": "X Jobs"}"#,
            "news.jobs_header: must be a header's name",
        ),
        (
            r#", "scheduler": {"arrivals": 0}"#,
            "scheduler.arrivals: must be",
        ),
    ] {
        let problem = with(more).unwrap_err();
        assert!(problem.starts_with(said), "{more}: {problem}");
    }
    for (text, said) in [
        ("", "configuration: is missing"),
        ("{", "EOF while parsing"),
        (
            "[]",
            "configuration: must be a JSON object in a google.protobuf.StringValue",
        ),
        ("{}", "missing field `cluster`"),
        (r#"{"cluster": "stocks"}"#, "missing field `agents`"),
        (
            r#"{"cluster": "stocks", "agents": ""}"#,
            "agents: must be the name",
        ),
        (
            r#"{"cluster": "a b", "agents": "x"}"#,
            "cluster: must be 1..120 of",
        ),
        (
            r#"{"cluster": "stocks", "agents": "x"} x"#,
            "trailing characters",
        ),
        (r#"{"position": "sideways"}"#, "position: unknown variant"),
    ] {
        let problem = parse(text).unwrap_err();
        assert!(problem.starts_with(said), "{text}: {problem}");
    }
}

#[test]
fn parts_of_a_request_are_found() {
    fn header<'a>(name: &str) -> Option<Cow<'a, [u8]>> {
        (name == "x-key").then_some(Cow::Borrowed(b"abc"))
    }
    let of = |part: Part, path: &str| {
        let found = part.of(path.as_bytes(), header);
        found.map(|bytes| String::from_utf8(bytes.into_owned()).unwrap())
    };
    let segment = |number, path| of(Part::PathSegment(number), path);
    assert_eq!(segment(2.0, "/stock/S1?items=3").as_deref(), Some("S1"));
    assert_eq!(segment(1.0, "/stock/S1").as_deref(), Some("stock"));
    assert_eq!(segment(3.0, "/stock/S1"), None);
    assert_eq!(segment(1.0, "/?a=/b"), None);
    assert_eq!(segment(2.0, "//x").as_deref(), Some("x"));
    let query = |name: &str, path| of(Part::Query(name.to_owned()), path);
    assert_eq!(query("items", "/a?x=1&items=30#f").as_deref(), Some("30"));
    assert_eq!(query("items", "/a?xitems=3&item=4&items"), None);
    assert_eq!(query("items", "/items=3"), None);
    let prefix = |count, path| of(Part::PathPrefix(count), path);
    assert_eq!(prefix(1.0, "/stock/S1?x").as_deref(), Some("/stock"));
    assert_eq!(prefix(5.0, "/stock/S1?x").as_deref(), Some("/stock/S1"));
    assert_eq!(
        of(Part::Header("x-key".to_owned()), "/").as_deref(),
        Some("abc")
    );
    assert_eq!(of(Part::Header("x-other".to_owned()), "/"), None);
}
