//! A worker's requests: every one that came has ended, and nothing is left in flight.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use envoy_policy::{
    config::{self, Config},
    engine::{Admission, Engine, Ticket},
};
use plimsoll_core::{
    dispatch::NodeShare,
    ring::{RingTable, key_hash},
};

const CONFIG: &str = r#"{"cluster": "stocks", "agents": "agents", "key": {"path_segment": 2},
    "cost": {"from": {"query": "items"}, "route": {"path_prefix": 1}, "default": 4, "items_header": "x-items"}}"#;

fn engine(granted: f64) -> Engine {
    engine_with(CONFIG, granted)
}

fn engine_with(config: &str, granted: f64) -> Engine {
    let Config::Downstream(settings) = config::parse(config.as_bytes()).unwrap() else {
        panic!("no settings");
    };
    let mut engine = Engine::new(*settings, 7);
    let share = |name: &str, port: u16| NodeShare {
        name: name.to_owned(),
        address: format!("10.0.0.1:{port}"),
        granted,
        bound_jobs: granted,
        mean_cost: 1.0,
        jobs: 0.0,
        load: 0.0,
    };
    let shares = [share("node1", 1), share("node2", 2), share("node3", 3)];
    engine.dispatcher().on_shares(0.0, 1, &shares);
    let owners = (0..96).map(|slot| slot / 32).collect();
    let names = shares.map(|share| share.name).to_vec();
    let table = RingTable::from_owners(1, 3, owners).unwrap();
    engine.dispatcher().on_ring(table, names);
    engine
}

fn pass(engine: &mut Engine, path: &str) -> (Ticket, String) {
    match engine.admit(0.0, path.as_bytes(), |_| None) {
        Admission::Pass(ticket) => (ticket, engine.hosts(ticket)),
        Admission::Full => panic!("full"),
    }
}

#[test]
fn the_owner_of_the_key_is_named_first_and_others_after_it() {
    let mut engine = engine(100.0);
    for key in ["S0001", "S0002", "S0003", "S0004"] {
        let owner = (u64::from(key_hash(key.as_bytes())) * 3) >> 32;
        let (ticket, hosts) = pass(&mut engine, &format!("/stock/{key}?items=1"));
        let hosts: Vec<&str> = hosts.split(',').collect();
        assert_eq!(engine.host(ticket), Some(hosts[0]));
        assert_eq!(hosts[0], format!("10.0.0.1:{}", owner + 1));
        assert_eq!(hosts.len(), 3);
        assert!(hosts[1] != hosts[0] && hosts[2] != hosts[1] && hosts[2] != hosts[0]);
    }
}

#[test]
fn retries_stay_among_the_nodes_that_take_work() {
    let mut engine = engine(100.0);
    let drained = |name: &str, port: u16| NodeShare {
        name: name.to_owned(),
        address: format!("10.0.0.1:{port}"),
        granted: 0.0,
        bound_jobs: 0.0,
        mean_cost: 1.0,
        jobs: 0.0,
        load: 0.0,
    };
    let shares = [drained("node1", 1), drained("node3", 3)];
    engine.dispatcher().on_shares(0.0, 1, &shares);
    let (_, hosts) = pass(&mut engine, "/stock/S0001?items=1");
    assert_eq!(hosts, "10.0.0.1:2,10.0.0.1:2,10.0.0.1:2");
}

#[test]
fn every_way_to_end_leaves_nothing() {
    let mut engine = engine(1000.0);
    // It never got to a host.
    let (ticket, _) = pass(&mut engine, "/stock/a?items=8");
    assert_eq!(engine.in_flight(), (8.0, 1));
    engine.end(ticket);
    engine.end(ticket);
    assert_eq!(engine.in_flight(), (0.0, 0));
    // An answer; a retry elsewhere before it; a client that left.
    let (ticket, hosts) = pass(&mut engine, "/stock/a?items=8");
    let mut hosts = hosts.split(',');
    let failed = engine.attempt(ticket, hosts.next().unwrap(), 1.0).unwrap();
    assert_eq!(engine.in_flight(), (8.0, 1));
    engine.attempt_ended(failed, || 1.1, false);
    assert_eq!(engine.in_flight(), (0.0, 0));
    let mut second = engine.attempt(ticket, hosts.next().unwrap(), 1.2).unwrap();
    // Two attempts at once, as with hedging.
    let third = engine.attempt(ticket, hosts.next().unwrap(), 1.3).unwrap();
    assert_eq!(engine.in_flight(), (16.0, 2));
    engine.answered(&mut second, 1.5, 200, Some(70.0));
    engine.end(ticket);
    assert_eq!(engine.in_flight(), (16.0, 2));
    engine.attempt_ended(second, || 1.6, false);
    engine.attempt_ended(third, || 1.6, true);
    assert_eq!(engine.in_flight(), (0.0, 0));
    let report = engine.dispatcher().report();
    let mut seen: Vec<&str> = report
        .iter()
        .map(|node| node.observation.as_str())
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "3 0 0.000000 0 0 - 32:1 2 0 0",
            "3 0 0.000000 1 0 - - 2 0 0",
            "3 1 0.300000 0 70 32:1 - 2 0 0"
        ]
    );
}

#[test]
fn attempts_that_outlast_their_request_know_that_its_client_left() {
    let mut engine = engine(100.0);
    let observed = |engine: &mut Engine| {
        let report = engine.dispatcher().report();
        let line = report.iter().map(|node| node.observation.clone());
        line.collect::<Vec<_>>()
    };
    let before = observed(&mut engine);
    for _ in 0..10 {
        let (ticket, host) = pass(&mut engine, "/stock/S0001?items=5");
        let host = host.split(',').next().unwrap();
        let attempt = engine.attempt(ticket, host, 0.0).unwrap();
        engine.client_left(ticket);
        engine.end(ticket);
        // Its place is not another's while the attempt is under way.
        let (other, _) = pass(&mut engine, "/stock/S0001?items=5");
        engine.attempt_ended(attempt, || 0.1, false);
        engine.end(other);
    }
    assert_eq!(engine.in_flight(), (0.0, 0));
    assert_eq!(engine.counts().ejections, 0);
    assert_ne!(observed(&mut engine), before);
    // Otherwise the host is to blame.
    for _ in 0..10 {
        let (ticket, host) = pass(&mut engine, "/stock/S0001?items=5");
        let host = host.split(',').next().unwrap();
        let attempt = engine.attempt(ticket, host, 0.0).unwrap();
        engine.end(ticket);
        engine.attempt_ended(attempt, || 0.1, false);
    }
    assert!(engine.counts().ejections > 0);
}

#[test]
fn a_ticket_of_an_ended_request_is_worth_nothing() {
    let mut engine = engine(1000.0);
    let (old, hosts) = pass(&mut engine, "/stock/a");
    engine.end(old);
    let (new, _) = pass(&mut engine, "/stock/a");
    assert!(engine.attempt(old, &hosts, 0.0).is_none());
    engine.end(old);
    assert_eq!(engine.in_flight(), (4.0, 1));
    engine.end(new);
    assert_eq!(engine.in_flight(), (0.0, 0));
    assert_eq!(Ticket::from_bytes(&new.to_bytes(5)), Some((5, new)));
    assert_eq!(Ticket::from_bytes(b"short"), None);
}

#[test]
fn an_attempt_at_an_unknown_host_is_not_counted_but_releases_the_reservation() {
    let mut engine = engine(1000.0);
    let (ticket, _) = pass(&mut engine, "/stock/a?items=8");
    let attempt = engine.attempt(ticket, "10.9.9.9:1", 0.0).unwrap();
    assert_eq!(engine.in_flight(), (0.0, 0));
    engine.attempt_ended(attempt, || 1.0, true);
    engine.end(ticket);
    assert_eq!(engine.in_flight(), (0.0, 0));
}

#[test]
fn the_share_of_a_host_that_the_proxy_passes_over_admits_nothing_more() {
    let mut engine = engine(20.0);
    let first = "/stock/S0001?items=4";
    let (ticket, hosts) = pass(&mut engine, first);
    let named = hosts.split(',').next().unwrap().to_owned();
    let taken = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"].map(str::to_owned);
    let taken = taken.into_iter().find(|host| *host != named).unwrap();
    let mut under_way = vec![engine.attempt(ticket, &taken, 0.0).unwrap()];
    let mut placed_elsewhere = 0;
    while let Admission::Pass(ticket) = engine.admit(0.0, first.as_bytes(), |_| None) {
        let host = engine.host(ticket).unwrap().to_owned();
        placed_elsewhere += usize::from(host != named);
        let host = if host == named { &taken } else { &host };
        under_way.push(engine.attempt(ticket, host, 0.0).unwrap());
        assert!(
            under_way.len() < 100,
            "what goes elsewhere is let in without end"
        );
    }
    assert!(placed_elsewhere > 0);
    assert_eq!(engine.counts().ejections, 1);
    for attempt in under_way {
        engine.attempt_ended(attempt, || 0.1, true);
    }
    assert_eq!(engine.in_flight(), (0.0, 0));
}

#[test]
fn without_news_requests_pass_unnamed_but_are_counted() {
    let mut engine = engine(1000.0);
    engine.on_time(60.0);
    let admission = engine.admit(60.0, b"/stock/a?items=8", |_| None);
    let Admission::Pass(ticket) = admission else {
        panic!("refused");
    };
    assert_eq!(
        (engine.host(ticket), engine.hosts(ticket)),
        (None, String::new())
    );
    let attempt = engine.attempt(ticket, "10.0.0.1:2", 60.0).unwrap();
    assert_eq!(engine.in_flight(), (8.0, 1));
    engine.attempt_ended(attempt, || 61.0, false);
    engine.end(ticket);
    assert_eq!(engine.in_flight(), (0.0, 0));
}

#[test]
fn a_cost_is_stated_or_learned_by_route() {
    let mut engine = engine(1000.0);
    let cost = |engine: &mut Engine, path: &str| {
        let (ticket, _) = pass(engine, path);
        let (cost, _) = engine.in_flight();
        engine.end(ticket);
        cost
    };
    assert_eq!(cost(&mut engine, "/stock/a?items=30"), 30.0);
    assert_eq!(cost(&mut engine, "/stock/a?items=NaN"), 1.0);
    assert_eq!(cost(&mut engine, "/stock/a?items=-5"), 1.0);
    assert_eq!(cost(&mut engine, "/stock/a?items=x"), 4.0);
    for (status, items) in [
        (200, Some(50.0)),
        (500, Some(9.0)),
        (200, Some(f64::NAN)),
        (200, Some(-1.0)),
    ] {
        let (ticket, hosts) = pass(&mut engine, "/stock/a");
        let host = hosts.split(',').next().unwrap();
        let mut attempt = engine.attempt(ticket, host, 0.0).unwrap();
        engine.answered(&mut attempt, 0.1, status, items);
        engine.attempt_ended(attempt, || 0.1, false);
        engine.end(ticket);
    }
    assert_eq!(cost(&mut engine, "/stock/b"), 50.0);
    assert_eq!(cost(&mut engine, "/other/b"), 4.0);
}

#[test]
fn what_is_too_much_is_refused_and_alone_it_is_not() {
    let config = r#"{"cluster": "stocks", "agents": "agents", "cost": {"from": {"query": "items"}, "max": 100}}"#;
    let mut engine = engine_with(config, 10.0);
    let big: Vec<Ticket> = (0..3)
        .map(|_| pass(&mut engine, "/stock?items=1e9").0)
        .collect();
    assert_eq!(engine.in_flight(), (300.0, 3));
    assert_eq!(engine.admit(0.0, b"/stock/a", |_| None), Admission::Full);
    big.into_iter().for_each(|ticket| engine.end(ticket));
    assert_eq!(engine.in_flight(), (0.0, 0));
}

#[test]
fn the_lowest_class_is_refused_first_also_where_it_is_malformed() {
    let config = r#"{"cluster": "stocks", "agents": "agents", "class": {"query": "class"}}"#;
    for low in ["/?class=3", "/?class=9", "/?class=-1", "/?class=low"] {
        let mut engine = engine_with(config, 10.0);
        let ask = |engine: &mut Engine, path: &'static str| match engine.admit(
            0.0,
            path.as_bytes(),
            |_| None,
        ) {
            Admission::Pass(ticket) => Some(ticket),
            Admission::Full => None,
        };
        let mut under_way = Vec::new();
        while let Some(ticket) = ask(&mut engine, low) {
            under_way.push(ticket);
        }
        assert_eq!(under_way.len(), 30, "{low}");
        // Two more a node.
        let mut beyond = Vec::new();
        for high in ["/", "/?class=", "/?class=0"].repeat(2) {
            beyond.push(ask(&mut engine, high).unwrap());
            assert_eq!(ask(&mut engine, low), None, "{low}");
        }
        assert_eq!(ask(&mut engine, "/"), None);
        beyond.into_iter().for_each(|ticket| engine.end(ticket));
        engine.end(under_way.pop().unwrap());
        assert_eq!(ask(&mut engine, low), None, "{low}");
        assert!(ask(&mut engine, "/").is_some());
    }
}

#[test]
fn an_answer_tells_of_its_nodes_load() {
    let config = r#"{"cluster": "stocks", "agents": "agents", "policy": "load_informed",
        "scheduler": {"interval": 0, "artificial": 0.01},
        "news": {"update": "on_access", "phase": 60, "load_header": "x-load"}}"#;
    let mut engine = engine_with(config, 1000.0);
    let mut went = [0; 3];
    let mut answer = |engine: &mut Engine, now: f64, load: [f64; 3]| {
        let (ticket, hosts) = pass(engine, "/");
        let host = hosts.split(',').next().unwrap();
        let place = host.strip_prefix("10.0.0.1:").unwrap();
        let place = place.parse::<usize>().unwrap() - 1;
        went[place] += 1;
        let mut attempt = engine.attempt(ticket, host, now).unwrap();
        engine.answered(&mut attempt, now, 200, None);
        engine.told(&attempt, now, None, Some(load[place]));
        engine.attempt_ended(attempt, || now, false);
        engine.end(ticket);
        went
    };
    // Nobody was asked yet, so each is idle until it has told otherwise.
    let load = [0.9, 0.4, f64::NAN];
    let mut last = [0; 3];
    for number in 0..30 {
        last = answer(&mut engine, f64::from(number), load);
    }
    // What is no number is not told, so the third goes on as it was.
    assert!(last[0] <= 2 && last[1] <= 2 && last[2] >= 26, "{last:?}");
}

#[test]
fn a_request_tells_no_more_than_ten_times_what_answers_tell() {
    let mut engine = engine(1000.0);
    let cost = |engine: &mut Engine| {
        let (ticket, hosts) = pass(engine, "/stock/a?items=1e9");
        let (cost, _) = engine.in_flight();
        let host = hosts.split(',').next().unwrap();
        let mut attempt = engine.attempt(ticket, host, 0.0).unwrap();
        engine.answered(&mut attempt, 0.1, 200, Some(7.0));
        engine.attempt_ended(attempt, || 0.1, false);
        engine.end(ticket);
        cost
    };
    assert_eq!((cost(&mut engine), cost(&mut engine)), (40.0, 70.0));
}
