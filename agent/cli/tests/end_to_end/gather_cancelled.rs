//! Gathers whose callers leave or whose deadline passes, on real agents with real PostgreSQL databases.

use std::{
    io::Read,
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::support::cluster::Cluster;
use crate::support::gather::{Gather, drain};
use crate::support::wait_for;
use fastrand::Rng;
use serde_json::{Value, json};

const CALLERS: u64 = 4;
/// Maximum size of the last line.
const MAX_LAST_BYTES: usize = 8 << 10;

/// The end of a gather, as seen by its caller.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Whole,
    Late,
    Left,
}

/// Nothing but a cancellation ends these soon.
fn long(random: &mut Rng) -> Value {
    match random.u8(..3) {
        0 => json!({"query": "sleep", "parameters": [600]}),
        // The other partitions answer.
        1 => json!({"query": "own", "parameters": [format!("d{}", random.u8(1..=4))]}),
        _ => {
            json!({"query": "many", "parameters": [random.u32(20_000..500_000)], "order_by": [{"column": "i"}]})
        }
    }
}

fn short(random: &mut Rng) -> Value {
    match random.u8(..3) {
        0 => json!({"query": "one"}),
        1 => json!({"query": "sleep", "parameters": [random.f64() * 0.03]}),
        _ => {
            json!({"query": "many", "parameters": [random.u32(1..1000)], "order_by": [{"column": "i"}]})
        }
    }
}

/// Runs a gather that is read completely, abandoned at a random moment within 200 ms, or late at one of the
/// partitions.
fn one(gather: &Gather, random: &mut Rng) -> Seen {
    let moment = Duration::from_millis(random.u64(1..200));
    let end = random.u8(..3);
    let mut question = match end > 0 && random.bool() {
        true => long(random),
        false => short(random),
    };
    // Longer than the test looks for what is left running.
    question["deadline_seconds"] = json!(60);
    if end == 1 {
        question["deadline_seconds"] = json!(moment.as_secs_f64());
    }
    let mut stream = gather.begin(&question);
    if end == 2 {
        leave(stream, moment, random.bool());
        return Seen::Left;
    }
    let last = last_line(&mut stream);
    match (&last["end"]["complete"], &last["error"]["state"]) {
        (Value::Bool(true), _) => Seen::Whole,
        (_, state) if state == "late" && end == 1 => Seen::Late,
        // Who does not take an answer within a second after the deadline has left.
        _ if last.is_null() && end == 1 => Seen::Left,
        _ => panic!("{question}: {last}"),
    }
}

/// At that moment, or where it reads as soon as something has come.
fn leave(mut stream: TcpStream, moment: Duration, reads: bool) {
    if reads {
        stream.set_read_timeout(Some(moment)).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    } else {
        std::thread::sleep(moment);
    }
}

/// Null where there is none.
fn last_line(stream: &mut TcpStream) -> Value {
    let mut end = Vec::new();
    drain(stream, |part| {
        end.extend_from_slice(part);
        end.drain(..end.len().saturating_sub(MAX_LAST_BYTES));
    });
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rfind(|line| line.starts_with("{\"e"));
    last.map_or(Value::Null, |line| serde_json::from_str(line).unwrap())
}

/// Four callers, each with one gather after the other.
fn cancel_at_random(gathers: u64) {
    let cluster = Cluster::start();
    let seed: u64 = std::env::var("PLIMSOLL_SEED").map_or(7, |it| it.parse().unwrap());
    let begun = Instant::now();
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let cluster = &cluster;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    let mut random = Rng::with_seed(seed + caller);
                    let each = (0..gathers / CALLERS).map(|_| one(&cluster.gather, &mut random));
                    each.collect::<Vec<Seen>>()
                })
            })
            .collect();
        let seen = callers.into_iter().map(|caller| caller.join().unwrap());
        seen.flatten().collect()
    });
    let took = begun.elapsed();

    // From above: who is at rest asks nobody below.
    wait_for("no gather runs", || {
        (cluster.gather.metric("plimsoll_gather_running") == 0.0).then_some(())
    });
    wait_for("no agent has a query", || {
        let here = ["queries_waiting", "queries_running"].map(|it| cluster.of_agents(it, ""));
        (here == [0.0, 0.0]).then_some(())
    });
    cluster.wait_idle();

    let count = |wanted: Seen| seen.iter().filter(|seen| **seen == wanted).count() as f64;
    let ended = |outcome: &str| {
        let labels = format!("{{outcome=\"{outcome}\"}}");
        cluster
            .gather
            .metric(&format!("plimsoll_gathers_total{labels}"))
    };
    let [whole, late, left] = [Seen::Whole, Seen::Late, Seen::Left].map(count);
    // Each is counted once it runs no more.
    wait_for("the gathers are counted", || {
        (ended("late") >= late && ended("whole") >= whole).then_some(())
    });
    println!(
        "{gathers} gathers with seed {seed} in {took:.0?}: whole {whole}, late {late}, left {left}"
    );
    println!(
        "of those that were left, {} were answered, {} were cut off",
        ended("whole") - whole,
        ended("left")
    );
    let queries = ["answered", "late", "left"].map(|state| {
        let labels = format!(",state=\"{state}\"");
        cluster.of_agents("queries_total", &labels)
    });
    println!("queries of the agents, answered, late, left: {queries:?}");
    for outcome in ["partial", "refused", "down"] {
        assert_eq!(ended(outcome), 0.0, "{outcome}");
    }
    for state in ["refused", "down"] {
        let labels = format!(",state=\"{state}\"");
        assert_eq!(cluster.of_agents("queries_total", &labels), 0.0, "{state}");
    }
    assert!(whole > 0.0 && late > 0.0 && ended("left") > 0.0);
    assert_eq!(cluster.whole(json!({"query": "one"})).len(), 6);
}

#[test]
fn gathers_that_are_cancelled_at_random_leave_no_query() {
    cancel_at_random(100);
}

#[test]
#[ignore = "takes a while"]
fn a_thousand_gathers_that_are_cancelled_at_random_leave_no_query() {
    cancel_at_random(1000);
}
