//! The capacity that `stocks capacity` predicts is the capacity a saturated node has.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{BINARY, Node, SMALL};

fn predicted(flags: &[&str]) -> f64 {
    let out = Command::new(BINARY)
        .arg("capacity")
        .args(SMALL)
        .args(flags)
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// Items/s of a node that always has more requests than workers, on evenly drawn stocks.
fn measured(flags: &[&str], warm_up: Duration, window: Duration) -> f64 {
    let mut all = SMALL.to_vec();
    all.extend(flags);
    let node = Node::start(&all).until_ready();
    let done = AtomicBool::new(false);
    let items = || node.metric(r#"stocks_items_total{class="query"}"#);
    std::thread::scope(|scope| {
        for client in 0..24u64 {
            let (node, done) = (&node, &done);
            scope.spawn(move || {
                let mut state = client + 1;
                while !done.load(Ordering::Relaxed) {
                    // A linear congruential generator draws the stock.
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let stock = (state >> 33) % 300;
                    assert_eq!(
                        node.get(&format!("/stock/S{stock:04}?items=80")).status,
                        200
                    );
                }
            });
        }
        std::thread::sleep(warm_up);
        let (start, before) = (Instant::now(), items());
        std::thread::sleep(window);
        let rate = (items() - before) / start.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        rate
    })
}

fn assert_close(measured: f64, predicted: f64) {
    println!("measured {measured:.0} items/s, predicted {predicted:.0} items/s");
    assert!(
        (measured / predicted - 1.0).abs() < 0.1,
        "measured {measured:.0} items/s, predicted {predicted:.0} items/s"
    );
}

#[test]
fn default_latencies_with_a_quarter_of_the_rows_cached() {
    let flags = ["--cache-rows", "6000"];
    assert_close(
        measured(&flags, Duration::from_millis(1500), Duration::from_secs(4)),
        predicted(&flags),
    );
}

#[test]
fn updates_take_their_share_of_the_workers() {
    // 600 updates/s of 5 ms keep three workers of eight busy.
    let flags = [
        "--cache-rows",
        "0",
        "--slowdown",
        "2",
        "--price-update-min",
        "500ms",
        "--price-update-max",
        "500ms",
        "--update-latency",
        "2500us",
    ];
    let without = &flags[..8];
    assert!((predicted(&flags) / predicted(without) - 0.625).abs() < 1e-3);
    assert_close(
        measured(&flags, Duration::from_millis(500), Duration::from_secs(4)),
        predicted(&flags),
    );
}

#[test]
fn slowdown_divides_the_capacity() {
    // No cache to warm up: every item is a miss.
    let flags = ["--slowdown", "5", "--cache-rows", "0"];
    assert_close(
        measured(&flags, Duration::from_millis(500), Duration::from_secs(5)),
        predicted(&flags),
    );
}
