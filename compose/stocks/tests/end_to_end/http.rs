//! Answers, limits and bad input over HTTP.

use crate::support;
use crate::support::{Cluster, Node, SMALL, free_address};

#[test]
fn counts_the_items_it_touched() {
    let node = Node::start(&SMALL).until_ready();
    let answer = node.get("/stock/S0007?items=80");
    assert_eq!((answer.status, answer.items), (200, Some(80)));
    assert_eq!(answer.body["rows"].as_array().unwrap().len(), 80);
    // Beyond its own 102 rows, those of its sector.
    let answer = node.get("/stock/S0007?items=150");
    assert_eq!(answer.items, Some(150));
    assert_eq!(answer.body["rows"][102]["symbol"], "S0027");
    assert_eq!(node.get("/stock/S0007?items=-5").items, Some(1));
    assert_eq!(node.get("/stock/S0007?items=99999").items, Some(1000));
    assert_eq!(node.get("/portfolio/3").items, Some(80));
    assert_eq!(node.metric("stocks_jobs"), 0.0);
    assert_eq!(
        node.metric("stocks_cache_hits_total") + node.metric("stocks_cache_misses_total"),
        80.0 + 150.0 + 1.0 + 1000.0 + 80.0
    );
}

#[test]
fn a_sale_undoes_a_purchase_of_the_same_shares() {
    let node = Node::start(
        &[
            &SMALL[..],
            &["--price-update-min", "1h"],
            &["--price-update-max", "2h"],
        ]
        .concat(),
    )
    .until_ready();
    let before = node.cash(4);
    let order = r#"{"account":4,"symbol":"S0002","shares":3}"#;
    assert_eq!(node.post("/purchase", order).status, 200);
    assert!(node.cash(4) < before);
    let sale = node.post("/sale", order);
    assert_eq!((sale.status, sale.items), (200, Some(20)));
    assert_eq!(node.cash(4), before);
    let too_many = r#"{"account":4,"symbol":"S0002","shares":1000000}"#;
    assert_eq!(node.post("/sale", too_many).status, 409);
    assert_eq!(node.post("/purchase", too_many).status, 409);
    assert_eq!(node.cash(4), before);
}

#[test]
fn prices_move() {
    let flags = [
        &SMALL[..],
        &["--price-update-min", "50ms", "--price-update-max", "100ms"],
    ];
    let node = Node::start(&flags.concat()).until_ready();
    support::until("the quote has moved, also in the cache", || {
        node.get("/stock/S0001?items=2").body["rows"][1]["updates"]
            .as_i64()
            .unwrap()
            > 1
    });
}

#[test]
fn refuses_bad_requests() {
    let cluster = Cluster::new(&[]);
    let master = cluster.master().until_ready();
    let slave = cluster.slave("a").until_ready();
    for (path, status) in [
        ("/stock/NOPE", 404),
        ("/stock/S0001?items=many", 400),
        ("/stock/S0001?items=99999999999999999999", 400),
        ("/portfolio/50", 404),
        ("/portfolio/-1", 400),
        ("/portfolio/x", 400),
        ("/purchase", 405),
        ("/nothing", 404),
    ] {
        assert_eq!(master.get(path).status, status, "{path}");
    }
    let order = |account: &str, symbol: &str, shares: &str| {
        format!(r#"{{"account":{account},"symbol":"{symbol}","shares":{shares}}}"#)
    };
    for (body, status) in [
        (String::new(), 400),
        ("{".to_owned(), 400),
        (order("1", "S0001", "0"), 400),
        (order("1", "S0001", "-3"), 400),
        (order("1", "S0001", "9223372036854775807"), 400),
        (order("1", "S0001", "1.5"), 400),
        (order("-1", "S0001", "1"), 400),
        (order("50", "S0001", "1"), 404),
        (order("1", "NOPE", "1"), 404),
        (order("1", &"x".repeat(5000), "1"), 413),
    ] {
        assert_eq!(master.post("/purchase", &body).status, status, "{body}");
    }
    assert_eq!(slave.purchase(1).status, 405);
    assert_eq!(master.metric("stocks_replication_sequence"), 0.0);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let slow = [
        "--workers",
        "1",
        "--queue-limit",
        "2",
        "--process-latency",
        "10ms",
    ];
    let node = Node::start(&[&SMALL[..], &slow].concat()).until_ready();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| node.get("/stock/S0001?items=50").status))
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let refused = statuses.iter().filter(|&&status| status == 503).count();
    assert!((5..=6).contains(&refused), "{statuses:?}");
    assert_eq!(
        node.metric(r#"stocks_requests_failed_total{class="query"}"#),
        refused as f64
    );
}

#[test]
fn ends_cleanly_and_keeps_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::start_in(directory.path(), &SMALL).until_ready();
    assert_eq!(node.purchase(1).status, 200);
    let cash = node.cash(1);
    node.signal("-TERM");
    assert_eq!(node.ended(), Some(0));
    let mut node = Node::start_in(directory.path(), &SMALL).until_ready();
    assert_eq!(node.cash(1), cash);
    node.signal("-INT");
    assert_eq!(node.ended(), Some(0));
}

#[test]
fn bad_flags_are_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap().to_string();
    let free = free_address().to_string();
    let directory = tempfile::tempdir().unwrap();
    for (flags, named) in [
        (vec!["--workers", "0"], "--workers 0"),
        (vec!["--slowdown", "NaN"], "--slowdown NaN"),
        (vec!["--symbols", "0"], "--symbols 0"),
        (vec!["--price-update-min", "9s"], "--price-update-min 9s"),
        (vec!["--role", "slave"], "--master ADDR"),
        (vec!["--master", &free], "--role slave"),
        (vec!["--listen", &in_use], &in_use),
        (vec!["--name", "a b"], "--name"),
        (vec!["--primary"], "--primary"),
        (
            vec!["--witness-directory", "/dev/null/x"],
            "--witness-directory",
        ),
        (
            vec!["--role", "slave", "--primary", "--database", "host=/x"],
            "--primary: not with --database",
        ),
    ] {
        let directory = directory.path().to_str().unwrap();
        support::ends_naming(&[&["--data-dir", directory], &flags[..]].concat(), named);
    }
}
