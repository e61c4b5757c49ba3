//! Ends of an answer, and refusals.

use super::*;

/// All rows that can leave now.
fn drain<T>(gathering: &mut Gathering<T>) -> (Vec<T>, Step<T>) {
    let mut out = Vec::new();
    loop {
        match gathering.step() {
            Step::Row(_, payload) => out.push(payload),
            other => return (out, other),
        }
    }
}

#[test]
fn second_answers_and_late_rows_are_ignored() {
    let mut gathering = gathering(
        2,
        Plan {
            partial: true,
            ..plan(How::Concatenate)
        },
    );
    let a = columns(&["a"]);
    assert!(gathering.begin(0, 1, &a));
    // The message system delivered the query twice.
    assert!(!gathering.begin(0, 2, &a));
    assert_eq!(
        gathering.offer(0, 2, vec![].into(), "twice"),
        Offer::Ignored
    );
    assert_eq!(gathering.offer(0, 1, vec![].into(), "first"), Offer::Taken);
    gathering.end(0, 2, 0);
    gathering.end(0, 1, 1);
    assert_eq!(
        gathering.offer(0, 1, vec![].into(), "after"),
        Offer::Ignored
    );
    assert!(!gathering.begin(0, 3, &a));
    // Not begun.
    assert_eq!(
        gathering.offer(1, 1, vec![].into(), "early"),
        Offer::Ignored
    );
    assert!(gathering.begin(1, 1, &a));
    assert_eq!(
        gathering.offer(1, 1, vec![].into(), "in time"),
        Offer::Taken
    );
    gathering.tick(Seconds(9.9));
    assert_eq!(gathering.report().partitions[1].state, State::Answering);
    gathering.tick(Seconds(10.0));
    assert_eq!(gathering.offer(1, 1, vec![].into(), "late"), Offer::Ignored);
    gathering.end(1, 1, 2);
    assert_eq!(
        drain(&mut gathering),
        (vec!["first", "in time"], Step::Done)
    );
    let report = gathering.report();
    assert!(!report.complete);
    let each: Vec<_> = report
        .partitions
        .iter()
        .map(|it| (&it.state, it.rows, it.ignored))
        .collect();
    assert_eq!(each, [(&State::Answered, 1, 2), (&State::Late, 1, 2)]);
    // A partition beyond the map.
    assert_eq!(
        gathering.offer(2, 1, vec![].into(), "nobody's"),
        Offer::Ignored
    );
    assert!(!gathering.begin(2, 1, &a));
}

#[test]
fn failed_partition_fails_the_gather_unless_partial() {
    for partial in [false, true] {
        let mut gathering = gathering(
            3,
            Plan {
                partial,
                ..plan(How::Merge(vec![key("a", false, false)]))
            },
        );
        for at in [0, 1] {
            assert!(gathering.begin(at, 1, &columns(&["a", "b"])));
            assert_eq!(
                gathering.offer(at, 1, vec![Value::Int(at as i64)].into(), at),
                Offer::Taken
            );
        }
        gathering.end(0, 1, 1);
        // A row was lost on the way.
        gathering.end(1, 1, 2);
        assert!(!gathering.begin(2, 1, &columns(&["a"])));
        let (out, end) = drain(&mut gathering);
        let report = gathering.report();
        let words: Vec<_> = report.partitions.iter().map(|it| it.state.word()).collect();
        assert_eq!(words, ["answered", "down", "refused"]);
        assert!(!report.complete);
        if partial {
            assert_eq!((out, end), (vec![0, 1], Step::Done));
        } else {
            let Step::Failed(failure) = end else {
                panic!("{end:?}")
            };
            assert!(out.is_empty());
            assert_eq!(
                failure.to_string(),
                "partition \"p1\" is down: 1 rows arrived of 2 sent"
            );
        }
    }
}

#[test]
fn gather_without_any_answer_fails() {
    for how in [
        How::Concatenate,
        How::Reduce(vec![reduction(Function::Count, None)]),
    ] {
        let mut gathering = gathering::<()>(
            2,
            Plan {
                partial: true,
                ..plan(how)
            },
        );
        gathering.fail(0, State::Down("no route".into()));
        gathering.tick(Seconds(11.0));
        assert_eq!(gathering.step(), Step::Failed(Failure::Nobody));
        assert_eq!(gathering.step(), Step::Failed(Failure::Nobody));
    }
}

#[test]
fn limit_completes_without_partition_ends() {
    let order = vec![key("a", false, false)];
    let mut gathering = gathering(
        2,
        Plan {
            limit: Some(1),
            ..plan(How::Merge(order))
        },
    );
    for at in [1, 0] {
        assert!(gathering.begin(at, 1, &columns(&["a"])));
        assert_eq!(gathering.step(), Step::Wait(Some(0)));
        assert_eq!(
            gathering.offer(at, 1, vec![Value::Null].into(), at),
            Offer::Taken
        );
    }
    assert_eq!(drain(&mut gathering), (vec![0], Step::Done));
    let report = gathering.report();
    assert!(report.complete && report.rows == 1);
    assert!(report.partitions.iter().all(|it| it.state == State::Enough));
}

#[test]
fn mixed_types_and_rows_out_of_order_are_refused() {
    let ask = || {
        gathering(
            2,
            Plan {
                partial: true,
                ..plan(How::Merge(vec![key("a", false, false)]))
            },
        )
    };
    let mut mixed = ask();
    for (at, value) in [(0, Value::Null), (0, Value::Int(1)), (1, text("1"))] {
        mixed.begin(at, 1, &columns(&["a"]));
        mixed.offer(at, 1, vec![value].into(), ());
    }
    let Step::Failed(failure) = mixed.step() else {
        panic!()
    };
    assert_eq!(
        failure.to_string(),
        "column \"a\" has a text in partition \"p1\", and a number before"
    );

    let mut disordered = ask();
    disordered.begin(0, 1, &columns(&["a"]));
    assert_eq!(
        disordered.offer(0, 1, vec![Value::Int(2)].into(), ()),
        Offer::Taken
    );
    assert_eq!(
        disordered.offer(0, 1, vec![Value::Int(1)].into(), ()),
        Offer::Ignored
    );
    let why = disordered.report().partitions[0]
        .state
        .why()
        .unwrap()
        .to_owned();
    assert_eq!(
        why,
        "rows are not in order: row 2 sorts before its predecessor"
    );

    let mut lacking = ask();
    assert!(!lacking.begin(0, 1, &columns(&["b"])));
    let why = lacking.report().partitions[0]
        .state
        .why()
        .unwrap()
        .to_owned();
    assert_eq!(why, "no column \"a\" among [\"b\"]");
}

#[test]
fn sums_are_checked_and_only_whole_answers_count() {
    let sum = |rows: &[&[Value]], partial| {
        let how = How::Reduce(vec![reduction(Function::Sum, Some("n"))]);
        let mut gathering = gathering(
            rows.len(),
            Plan {
                partial,
                ..plan(how)
            },
        );
        for (at, values) in rows.iter().enumerate() {
            gathering.begin(at, 1, &columns(&["n"]));
            for value in *values {
                gathering.offer(at, 1, vec![value.clone()].into(), ());
            }
            // The last of several breaks off.
            if !partial || at + 1 < rows.len() {
                gathering.end(at, 1, values.len() as u64);
            }
        }
        gathering.tick(Seconds(10.0));
        gathering.step()
    };
    let int = Value::Int;
    assert_eq!(
        sum(&[&[int(i64::MAX), int(1)], &[int(-1)]], false),
        Step::Reduced(vec![int(i64::MAX)])
    );
    assert_eq!(
        sum(&[&[int(1), Value::Float(0.5)]], false),
        Step::Reduced(vec![Value::Float(1.5)])
    );
    assert_eq!(
        sum(&[&[Value::Null], &[]], false),
        Step::Reduced(vec![Value::Null])
    );
    assert_eq!(
        sum(&[&[int(1)], &[int(2)], &[int(4)]], true),
        Step::Reduced(vec![int(3)])
    );
    let overflow = Step::Failed(Failure::Overflow { column: "n".into() });
    assert_eq!(sum(&[&[int(i64::MAX)], &[int(1)]], false), overflow);
    assert_eq!(
        sum(&[&[Value::Float(1e308)], &[Value::Float(1e308)]], false),
        overflow
    );
    let Step::Failed(failure) = sum(&[&[text("1")]], false) else {
        panic!()
    };
    assert_eq!(
        failure.to_string(),
        "column \"n\" has no sum: it has a text"
    );
}

#[test]
fn invalid_plans_are_refused() {
    let refused = |plan: Plan| {
        Gathering::<()>::new(["p".to_owned()], plan)
            .err()
            .map(|it| it.to_string())
    };
    assert_eq!(
        refused(plan(How::Merge(vec![]))).unwrap(),
        "an order or a reduction must have 1 to 100 columns, has 0"
    );
    let sum = plan(How::Reduce(vec![reduction(Function::Sum, None)]));
    assert_eq!(refused(sum).unwrap(), "sum needs a column");
    let count = plan(How::Reduce(vec![reduction(Function::Count, None)]));
    assert!(
        refused(Plan {
            limit: Some(1),
            ..count
        })
        .unwrap()
        .contains("one row")
    );
    let never = Seconds(f64::NAN);
    assert!(
        refused(Plan {
            deadline: never,
            ..plan(How::Concatenate)
        })
        .unwrap()
        .contains("deadline")
    );
}

#[test]
fn invalid_maps_are_refused_with_the_place() {
    let partition = |name: &str, node: &str, parts: Option<[u32; 2]>| Partition {
        name: name.into(),
        node: node.into(),
        parts: parts.map(|[first, last]| first..=last),
    };
    let nodes = ["n1", "n2"];
    let map = |parts, partitions| PartitionMap::new(nodes, parts, partitions);
    let said = |parts, partitions| map(parts, partitions).unwrap_err().to_string();
    let two = |first, second| vec![partition("a", "n1", first), partition("b", "n2", second)];

    assert_eq!(map(None, two(None, None)).unwrap().partitions().len(), 2);
    assert!(map(Some(8), two(Some([4, 7]), Some([0, 3]))).is_ok());
    assert_eq!(
        said(Some(8), two(Some([5, 7]), Some([0, 3]))),
        "no partition has part 4"
    );
    assert_eq!(
        said(Some(8), two(Some([0, 3]), Some([4, 5]))),
        "no partition has parts 6 to 7"
    );
    assert_eq!(
        said(Some(8), two(Some([1, 3]), Some([4, 7]))),
        "no partition has part 0"
    );
    assert_eq!(
        said(Some(8), two(Some([0, 4]), Some([3, 7]))),
        "parts 3 to 4 are in both \"a\" and \"b\""
    );
    assert_eq!(
        said(Some(8), two(Some([0, 7]), Some([0, 7]))),
        "parts 0 to 7 are in both \"a\" and \"b\""
    );
    for wrong in [[4, 8], [6, 5]] {
        assert_eq!(
            said(Some(8), two(Some([0, 3]), Some(wrong))),
            "the parts of partition \"b\" are empty or beyond the last part"
        );
    }
    assert!(said(None, two(Some([0, 3]), None)).contains("partition \"a\""));
    assert_eq!(
        said(Some(8), two(Some([0, 3]), None)),
        "partition \"b\" has no parts, but other partitions have"
    );
    assert_eq!(
        said(None, vec![partition("a", "n3", None)]),
        "partition \"a\": unknown node \"n3\""
    );
    assert_eq!(
        said(None, vec![partition("a", "n1", None); 2]),
        "there are two partitions \"a\""
    );
    assert!(
        said(None, vec![]).contains("has 0")
            && said(None, vec![partition("a b", "n1", None)]).contains("\"a b\"")
    );
    let twice = PartitionMap::new(["n1", "n1"], None, two(None, None)).unwrap_err();
    assert_eq!(twice.to_string(), "there are two nodes \"n1\"");
}
