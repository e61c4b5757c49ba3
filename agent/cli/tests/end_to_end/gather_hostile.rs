//! Malformed answers of one partition out of two: the other one's rows still arrive.

use std::time::{Duration, Instant};

use crate::support::gather::Gather;
use crate::support::stand_in::{GOOD, HEAD, StandIn, Then};
use crate::support::wait_for;
use serde_json::{Value, json};

fn start() -> (StandIn, Gather) {
    let stand_in = StandIn::start();
    let port = stand_in.port;
    let gather = Gather::start(&format!(
        "[nodes]\na = \"127.0.0.1:{port}\"\nb = \"localhost:{port}\"\n\
         [[partition]]\nname = \"bad\"\nnodes = [\"a\"]\n\
         [[partition]]\nname = \"good\"\nnodes = [\"a\"]\n\
         [[partition]]\nname = \"twice\"\nnodes = [\"a\", \"b\"]\n"
    ));
    (stand_in, gather)
}

fn question(partial: bool) -> Value {
    json!({"query": "q", "partitions": ["bad", "good"], "order_by": [{"column": "id"}],
        "partial": partial, "deadline_seconds": 20})
}

#[test]
fn malformed_answers_of_a_partition_do_not_affect_others() {
    let (stand_in, gather) = start();
    let with = |rows: &str| format!("{HEAD}{{\"columns\":[\"id\"]}}\n{rows}");
    let long = "x".repeat(3 << 20);
    let wide: Vec<String> = (0..101).map(|at| format!("c{at}")).collect();
    let cases: Vec<(Vec<u8>, &str, &str)> = vec![
        (
            format!("{HEAD}{{\"columns\":{}}}\n[1]\n", json!(wide)).into(),
            "refused",
            "101 columns",
        ),
        (
            // Refused as without "id" where it begins first, and as unlike the others where it does not.
            format!("{HEAD}{{\"columns\":[\"no\"]}}\n[1]\n").into(),
            "refused",
            "[\"no\"]",
        ),
        (
            with("[1]\n[0]\n{\"end\":{\"rows\":2}}\n").into(),
            "refused",
            "not in order",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":2}}\n").into(),
            "down",
            "1 rows arrived of 2",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":1}}\n{\"end\":{\"rows\":1}}\n").into(),
            "refused",
            "more after its end",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":1}}\n[2]\n").into(),
            "refused",
            "more after its end",
        ),
        (
            with("[1]\n{\"end\":{\"rows\":1}}").into(),
            "refused",
            "ends within a line",
        ),
        (with("[1]\n[2").into(), "refused", "ends within a line"),
        (with("[1]\n").into(), "down", "broke off"),
        (with("").into(), "down", "broke off before its first row"),
        (HEAD.into(), "down", "broke off before its first row"),
        (with("[1\n").into(), "refused", "cannot be read"),
        (with("[1,2]\n").into(), "refused", "cannot be read"),
        (with("[]\n").into(), "refused", "cannot be read"),
        (with("[1e999]\n").into(), "refused", "cannot be read"),
        (
            with("[99999999999999999999999]\n[{}]\n").into(),
            "refused",
            "cannot be read",
        ),
        (with("[[1]]\n").into(), "refused", "cannot be read"),
        (
            with(&format!("{}\n", "[".repeat(500_000))).into(),
            "refused",
            "cannot be read",
        ),
        (
            [with("[\"").as_bytes(), b"\xff\"]\n"].concat(),
            "refused",
            "no UTF-8",
        ),
        (
            with("[1]\n\n").into(),
            "refused",
            "neither a row nor its end",
        ),
        (
            with("[1]\nhello\n").into(),
            "refused",
            "neither a row nor its end",
        ),
        (
            with("{\"end\":{\"rows\":-1}}\n").into(),
            "refused",
            "neither a row nor its end",
        ),
        (
            with("{\"columns\":[\"id\"]}\n").into(),
            "refused",
            "neither a row nor its end",
        ),
        (
            with(&format!("[\"{long}\"]\n")).into(),
            "refused",
            "more than 1048576 bytes",
        ),
        (
            with(&format!("[1]\n[\"{long}\"]\n")).into(),
            "refused",
            "more than 1048576 bytes",
        ),
        (format!("{HEAD}{long}").into(), "refused", "too long"),
        (
            format!("{HEAD}[1]\n").into(),
            "refused",
            "does not begin with its columns",
        ),
        (
            with("{\"error\":{\"state\":\"refused\",\"problem\":\"no such table\"}}\n").into(),
            "refused",
            "no such table",
        ),
        (
            with("[1]\n{\"error\":{\"state\":\"down\",\"problem\":\"it crashed\"}}\n").into(),
            "down",
            "it crashed",
        ),
        (
            with("[1]\n{\"error\":{\"state\":\"late\",\"problem\":\"\"}}\n").into(),
            "late",
            "",
        ),
        (
            "HTTP/1.1 500 Oh\r\n\r\nno JSON".into(),
            "down",
            "status 500",
        ),
        (
            format!("HTTP/1.1 500 Oh\r\n\r\n{long}").into(),
            "down",
            "status 500",
        ),
        (
            "HTTP/1.1 422 Oh\r\n\r\n{\"error\":{\"state\":\"refused\",\"problem\":\"why not\"}}"
                .into(),
            "refused",
            "why not",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n".into(), "down", "node a: "),
        (
            format!("HTTP/1.1 200 OK\r\nx: {long}\r\n\r\n").into(),
            "down",
            "node a: ",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1f\r\n{\"col".into(),
            "down",
            "broke off",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".into(),
            "down",
            "broke off",
        ),
        ("".into(), "down", "node a: "),
    ];
    for (text, state, said) in cases {
        let shown = String::from_utf8_lossy(&text[..text.len().min(150)]).into_owned();
        stand_in.say(text, Then::Close);
        let (status, lines) = gather.ask(&question(true));
        assert_eq!(status, 200, "{shown}: {lines:?}");
        let partitions = &lines.last().unwrap()["end"]["partitions"];
        let told = partitions[0]["problem"].as_str().unwrap_or_default();
        assert_eq!(partitions[0]["state"], json!(state), "{shown}: {told}");
        assert!(told.contains(said), "{shown}: {told}");
        assert_eq!(partitions[1]["rows"], json!(2), "{shown}");
        let (_, lines) = gather.ask(&question(false));
        let error = &lines.last().unwrap()["error"];
        assert_eq!(error["state"], json!(state), "{shown}: {lines:?}");
    }
    // Which of them is right cannot be known.
    stand_in.say(with("[\"a\"]\n{\"end\":{\"rows\":1}}\n"), Then::Close);
    let (status, lines) = gather.ask(&question(true));
    assert_eq!(status, 422, "{lines:?}");
    wait_for("no gather", || {
        (gather.metric("plimsoll_gather_running") == 0.0).then_some(())
    });
}

#[test]
fn a_partition_that_stalls_is_late_and_left() {
    let (stand_in, gather) = start();
    let begun = format!("{HEAD}{{\"columns\":[\"id\"]}}\n");
    for text in [
        "",
        HEAD,
        &begun,
        &format!("{begun}[1]\n"),
        &format!("{begun}[1]\n[2"),
        &format!("{begun}[1]\n{{\"end\":{{\"rows\":1}}}}\n"),
    ] {
        stand_in.say(text, Then::Hold);
        let mut question = question(false);
        question["deadline_seconds"] = json!(0.3);
        let began = Instant::now();
        let (status, lines) = gather.ask(&question);
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(
            (status, &lines[0]["error"]["state"]),
            (504, &json!("late")),
            "{text}: {lines:?}"
        );
        question["partial"] = json!(true);
        let (status, lines) = gather.ask(&question);
        assert_eq!(status, 200, "{lines:?}");
        assert_eq!(
            lines.last().unwrap()["end"]["partitions"][0]["state"],
            json!("late")
        );
        stand_in.wait_closed();
    }
}

#[test]
fn an_answer_without_end_ends_with_the_limit_or_the_deadline() {
    let (stand_in, gather) = start();
    let row = "[5]\n";
    stand_in.say(
        format!("{HEAD}{{\"columns\":[\"id\"]}}\n{row}"),
        Then::Repeat(row.len()),
    );
    let mut question = question(false);
    question["limit"] = json!(1000);
    let (status, lines) = gather.ask(&question);
    assert_eq!((status, lines.len()), (200, 1002));
    assert_eq!(
        lines[1001]["end"]["partitions"][0]["state"],
        json!("enough")
    );
    let reduce = json!([{"function": "count"}]);
    let question =
        json!({"query": "q", "partitions": ["bad"], "reduce": reduce, "deadline_seconds": 0.5});
    assert_eq!(gather.ask(&question).0, 504);
    stand_in.wait_closed();
    assert!(gather.process.as_ref().unwrap().resident() < 64 << 20);
}

#[test]
fn another_node_is_asked_before_the_first_row_and_not_after() {
    let (stand_in, gather) = start();
    let ask =
        || gather.ask(&json!({"query": "q", "partitions": ["twice"], "deadline_seconds": 20}));
    let busy = "{\"error\":{\"state\":\"refused\",\"problem\":\"busy\"}}";
    for (text, times) in [
        (String::new(), 2),
        ("HTTP/1.1 502 Oh\r\n\r\n".to_owned(), 2),
        (format!("HTTP/1.1 429 Oh\r\n\r\n{busy}"), 2),
        (format!("HTTP/1.1 404 Oh\r\n\r\n{busy}"), 2),
        (format!("HTTP/1.1 422 Oh\r\n\r\n{busy}"), 1),
        (format!("{HEAD}{{\"columns\":[\"id\"]}}\n"), 2),
        (format!("{HEAD}{{\"columns\":[\"id\"]}}\n[1]\n"), 1),
        (format!("{HEAD}{GOOD}"), 1),
    ] {
        stand_in.say(text.as_bytes(), Then::Close);
        let before = stand_in.asked();
        let (_, lines) = ask();
        let asked = stand_in.asked() - before;
        assert_eq!(asked, times, "{text}: {lines:?}");
    }
}
