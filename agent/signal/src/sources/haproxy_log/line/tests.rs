use super::*;

fn finished(seconds: f64, in_node: f64, cost: Option<f64>) -> End {
    End::Finished {
        delay: Seconds(seconds),
        in_node: Seconds(in_node),
        cost: cost.map(Cost),
    }
}

fn failed(in_node: f64) -> End {
    End::Failed {
        in_node: Seconds(in_node),
    }
}

fn left(age: f64, in_node: f64) -> End {
    End::Left {
        age: Seconds(age),
        in_node: Seconds(in_node),
    }
}

fn end(line: &[u8]) -> End {
    parse(line, &Node::new("q/n")).end
}

#[test]
fn lines() {
    let cases = [
        (
            "plimsoll q/n 100 1 200 3 200 -- 80",
            finished(0.304, 0.204, Some(80.0)),
        ),
        (
            "<134>Nov 21 06:14:09 haproxy[7]: plimsoll q/n 0 0 12 0 200 ---- -",
            End::Malformed,
        ),
        (
            "<134>Nov 21 06:14:09 haproxy[7]: plimsoll q/n 0 0 12 0 404 -- -",
            finished(0.012, 0.012, None),
        ),
        (
            "<134>Nov 21 06:14:09 plimsoll haproxy[7]: plimsoll q/n 0 0 12 0 200 -- -",
            finished(0.012, 0.012, None),
        ),
        (
            "plimsoll q/n 0 -1 5 0 200 -- -",
            finished(0.005, 0.005, None),
        ),
        ("plimsoll q/n 0 0 -1 -1 504 sH -", failed(0.0)),
        ("plimsoll q/n 90 0 -1 -1 9/5099 504 sH -", failed(5.0)),
        ("plimsoll q/n 0 0 2 1 500 -- -", failed(0.003)),
        // A client that left before the response began had waited since its request was complete.
        ("plimsoll q/n 20 0 -1 -1 30/5030 400 CH -", left(5.0, 4.98)),
        ("plimsoll q/n 7 -1 -1 -1 0/7 503 CQ -", left(0.007, 0.0)),
        ("plimsoll q/n 0 0 -1 -1 5/3 -1 cH -", left(0.0, 0.0)),
        // A client that left during the response may have been slow to read it.
        (
            "plimsoll q/n 0 1 2 9000 0/9003 200 CD -",
            left(0.003, 0.003),
        ),
        (
            "plimsoll q/n 0 0 2 9000 0/9002 200 cD -",
            left(0.002, 0.002),
        ),
        ("plimsoll q/n 0 0 2 1 0/3 500 CD -", failed(0.003)),
        // Earlier formats had neither this word nor a stamp.
        ("plimsoll q/n 0 0 2 9 200 CD -", left(0.002, 0.002)),
        ("plimsoll q/n 0 0 -1 -1 400 CH -", left(0.0, 0.0)),
        (
            "plimsoll q/n 100 1 200 3 9/313 200 -- 80",
            finished(0.304, 0.204, Some(80.0)),
        ),
        (
            "plimsoll q/n 100 1 200 3 9/313 @1795397087093/7 200 -- 80 GET \u{e9}",
            finished(0.304, 0.204, Some(80.0)),
        ),
        (
            "plimsoll q/n 0 0 1 0 @1795397087093/7 200 -- 80",
            finished(0.001, 0.001, Some(80.0)),
        ),
        (
            "plimsoll q/n 0 0 1 0 0/1 @1795397087093 200 -- 80",
            End::Malformed,
        ),
        ("plimsoll q/n 0 0 1 0 0/1 @-1/7 200 -- 80", End::Malformed),
        (
            "plimsoll q/n 0 0 1 0 0/1 @1/7/3/lb.example/51 200 -- 80",
            finished(0.001, 0.001, Some(80.0)),
        ),
        ("plimsoll q/n 0 0 1 0 0/1 @1/7/3 200 -- 80", End::Malformed),
        (
            "plimsoll q/n 0 0 1 0 0/1 @1/7/3/lb 200 -- 80",
            End::Malformed,
        ),
        (
            "plimsoll q/n 0 0 1 0 0/1 @1/7/-3/lb/51 200 -- 80",
            End::Malformed,
        ),
        (
            "plimsoll q/n 0 0 1 0 0/1 @1/7/4000000000/lb/51 200 -- 80",
            End::Malformed,
        ),
        (
            "plimsoll q/n 0 0 1 0 0/1 @9999999999999999/7 200 -- 80",
            End::Malformed,
        ),
        ("plimsoll q/n 0 0 1 0 0/1 @1/-7 200 -- 80", End::Malformed),
        ("plimsoll q/n 0 0 1 0 9/ 200 -- -", End::Malformed),
        ("plimsoll q/n 0 0 1 0 -2/3 200 -- -", End::Malformed),
        ("plimsoll q/n 0 -1 -1 -1 503 SC -", failed(0.0)),
        ("plimsoll q/n 500 -1 -1 -1 503 sQ -", End::Refused),
        ("plimsoll q/<NOSRV> 0 -1 -1 -1 503 SC -", End::OtherNode),
        ("plimsoll q/n2 0 0 1 0 200 -- -", End::OtherNode),
        ("plimsoll q/n2", End::OtherNode),
        ("plimsoll qq/n 0 0 1 0 200 -- -", End::OtherNode),
        // Requests that the SLA does not cover, regardless of how they ended.
        (
            "plimsoll q/n 0 1 2 9000 0/9003 200 -- excluded",
            End::Excluded,
        ),
        (
            "plimsoll q/n 0 1 2 9000 0/9003 200 CD excluded",
            End::Excluded,
        ),
        ("plimsoll q/n 500 -1 -1 -1 503 sQ excluded x", End::Excluded),
        ("plimsoll q/n 0 0 1 0 200 -- exclude", End::Malformed),
        ("plimsoll q/n 0 0 -2 0 200 -- -", End::Malformed),
        ("plimsoll q/n 0 0 99999999999 0 200 -- -", End::Malformed),
        ("plimsoll q/n 0 0 1 0 200 -- -5", End::Malformed),
        ("plimsoll q/n 0 0 1 0 200 -- NaN", End::Malformed),
        ("plimsoll q/n 0 0", End::Malformed),
        ("something else", End::Malformed),
        ("", End::Malformed),
    ];
    for (line, expected) in cases {
        assert_eq!(end(line.as_bytes()), expected, "{line}");
    }
    assert_eq!(end(b"plimsoll q/n \xff"), End::Malformed);
    // Further fields after the format are ignored.
    assert_eq!(
        end(b"plimsoll q/n 0 0 1 0 200 -- - /caf\xe9"),
        finished(0.001, 0.001, None)
    );
}

#[test]
fn who_asked_the_backend_and_found_no_room() {
    let cases = [
        ("plimsoll q/n 0 0 1 0 200 -- -", Asked::Had),
        ("plimsoll q/n2 0 0 1 0 200 -- 5", Asked::Had),
        ("plimsoll q/n2 0 0 -1 -1 504 sH -", Asked::Had),
        ("plimsoll q/n2 9 -1 -1 -1 0/9 503 CQ -", Asked::Had),
        ("plimsoll q/<NOSRV> 0 -1 -1 -1 503 SC -", Asked::Had),
        ("plimsoll q/n 500 -1 -1 -1 503 sQ -", Asked::Refused),
        ("plimsoll q/<NOSRV> 500 -1 -1 -1 503 sQ -", Asked::Refused),
        // A full `maxqueue`.
        ("plimsoll q/n2 0 -1 -1 -1 503 SQ -", Asked::Refused),
        // `http-request deny` and `return`.
        ("plimsoll q/<NOSRV> -1 -1 -1 -1 403 PR -", Asked::No),
        ("plimsoll q/<NOSRV> -1 -1 -1 -1 503 LR -", Asked::No),
        ("plimsoll q/n2 0 0 1 0 200 -- excluded", Asked::No),
        ("plimsoll q/n2 nonsense", Asked::No),
        ("plimsoll other/<NOSRV> 500 -1 -1 -1 503 sQ -", Asked::No),
        ("plimsoll in/<NOSRV> -1 -1 -1 -1 400 PR -", Asked::No),
    ];
    for (line, expected) in cases {
        let read = parse(line.as_bytes(), &Node::new("q/n"));
        assert_eq!(read.asked, expected, "{line}");
    }
}

#[test]
fn a_line_that_was_cut_is_none_or_costs_less() {
    let whole: &[u8] =
        b"<134>Nov 21 06:14:09 lb haproxy[7]: plimsoll q/n 1 1 29 3 0/34 @1795397087093/7/3/lb/51 200 -- 80";
    assert_eq!(end(whole), finished(0.034, 0.033, Some(80.0)));
    for length in 0..whole.len() - 1 {
        let seen = end(&whole[..length]);
        let is_none = matches!(seen, End::Malformed | End::OtherNode);
        assert!(is_none, "{length}: {seen:?}");
    }
    assert_eq!(
        end(&whole[..whole.len() - 1]),
        finished(0.034, 0.033, Some(8.0))
    );
}

#[test]
fn a_line_written_before_the_end_of_the_data_is_detected() {
    let early = |line: &str| parse(line.as_bytes(), &Node::new("q/n")).early;
    assert!(early("plimsoll q/n 0 0 1 0 0/+1 200 -- -"));
    assert!(!early("plimsoll q/n 0 0 1 0 0/1 200 -- -"));
}
