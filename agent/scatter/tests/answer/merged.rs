//! Results of a gathering under any interleaving.

use std::{cmp::Ordering, collections::VecDeque};

use plimsoll_scatter::answer::*;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::*;

type Rows = Vec<Vec<Value>>;
/// Partition and place in it.
type Id = (usize, usize);

/// Gathers from partitions that send their rows in the chosen interleaving; returns the rows and the last step.
fn run(plan: Plan, names: &[&str], partitions: &[Rows], choices: &[u8]) -> (Vec<Id>, Step<Id>) {
    let nothing = plan.limit == Some(0);
    let mut gathering = gathering::<Id>(partitions.len(), plan);
    let mut left: Vec<VecDeque<_>> = partitions
        .iter()
        .map(|rows| rows.iter().cloned().enumerate().collect())
        .collect();
    for at in 0..partitions.len() {
        // None is wanted where no row is.
        assert_eq!(gathering.begin(at, 7, &columns(names)), !nothing);
    }
    let mut out = Vec::new();
    let mut choices = choices.iter().cycle();
    loop {
        let wanted = match gathering.step() {
            Step::Row(partition, id) => {
                assert_eq!(partition, id.0);
                out.push(id);
                continue;
            }
            Step::Wait(wanted) => wanted,
            end => return (out, end),
        };
        // Partitions send in the chosen order; the one waited for sends at last.
        let mut order: Vec<usize> = (0..partitions.len()).collect();
        order.rotate_left(usize::from(*choices.next().unwrap()) % partitions.len());
        let some = 1 + usize::from(*choices.next().unwrap()) % partitions.len();
        let open: Vec<usize> = order
            .into_iter()
            .filter(|at| gathering.report().partitions[*at].state.is_open())
            .collect();
        for at in open.into_iter().take(some).chain(wanted) {
            for _ in 0..=choices.next().unwrap() % 6 {
                let Some((place, keys)) = left[at].pop_front() else {
                    gathering.end(at, 7, partitions[at].len() as u64);
                    break;
                };
                let room = gathering.room(at);
                match gathering.offer(at, 7, keys.into(), (at, place)) {
                    Offer::Taken => assert!(room > 0),
                    Offer::Full(keys, id) => {
                        assert_eq!((room, id), (0, (at, place)));
                        left[at].push_front((place, keys.into_vec()));
                        break;
                    }
                    Offer::Ignored => break,
                }
            }
        }
    }
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        (-3..3_i64).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        (-3..3_i8).prop_map(|it| Value::Float(f64::from(it) / 2.0)),
        (-1e300..1e300_f64).prop_map(Value::Float),
    ]
}

fn word() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), "[a-c]{0,2}".prop_map(|it| text(&it))]
}

fn row() -> impl Strategy<Value = Vec<Value>> {
    (word(), number()).prop_map(|(word, number)| vec![word, number])
}

fn partitions() -> impl Strategy<Value = Vec<Rows>> {
    prop::collection::vec(prop::collection::vec(row(), 0..12), 1..6)
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..40)
}

fn compare(order: &[OrderKey], one: &[Value], other: &[Value]) -> Ordering {
    let each = order.iter().zip(one.iter().zip(other));
    each.map(|(key, (one, other))| key.compare(one, other))
        .fold(Ordering::Equal, Ordering::then)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merged_rows_are_complete_and_in_order(
        mut partitions in partitions(),
        choices in choices(),
        flags in any::<[bool; 4]>(),
        limit in prop::option::of(0..30_u64),
    ) {
        let order = vec![key("a", flags[0], flags[1]), key("b", flags[2], flags[3])];
        for rows in &mut partitions {
            rows.sort_by(|one, other| compare(&order, one, other));
        }
        let ids = partitions.iter().enumerate();
        let mut whole: Vec<Id> = ids.flat_map(|(at, rows)| (0..rows.len()).map(move |place| (at, place))).collect();
        // Stable: by partition, and within it as it was.
        whole.sort_by(|one, other| compare(&order, &partitions[one.0][one.1], &partitions[other.0][other.1]));
        whole.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        let plan = Plan { limit, ..plan(How::Merge(order)) };
        let (out, end) = run(plan, &["a", "b"], &partitions, &choices);
        prop_assert_eq!(end, Step::Done);
        prop_assert_eq!(out, whole);
    }

    #[test]
    fn concatenated_has_every_row_once_each_partition_in_its_order(
        partitions in partitions(),
        choices in choices(),
        limit in prop::option::of(0..30_u64),
    ) {
        let rows: Vec<Rows> = partitions.iter().map(|rows| vec![Vec::new(); rows.len()]).collect();
        let plan = Plan { limit, ..plan(How::Concatenate) };
        let (mut out, end) = run(plan, &["a"], &rows, &choices);
        prop_assert_eq!(end, Step::Done);
        let all: usize = rows.iter().map(Vec::len).sum();
        prop_assert_eq!(out.len(), limit.map_or(all, |limit| all.min(limit as usize)));
        for at in 0..rows.len() {
            let places = out.iter().filter(|id| id.0 == at).map(|id| id.1);
            prop_assert!(places.enumerate().all(|(wanted, place)| wanted == place));
        }
        out.sort();
        out.dedup();
        prop_assert!(out.len() <= all);
    }

    #[test]
    fn reduction_is_independent_of_arrival_order(
        ints in prop::collection::vec(prop::collection::vec(prop::option::of(-1_000_000..1_000_000_i64), 0..10), 1..6),
        choices in choices(),
    ) {
        use Function::{Count, Max, Min, Sum};
        let value = |it: &Option<i64>| it.map_or(Value::Null, Value::Int);
        let partitions: Vec<Rows> = ints.iter().map(|rows| rows.iter().map(|it| vec![value(it); 4]).collect()).collect();
        let how = [(Count, None), (Count, Some("n")), (Sum, Some("n")), (Min, Some("n")), (Max, Some("n"))];
        let how = how.map(|(function, column)| reduction(function, column)).to_vec();
        let (out, end) = run(plan(How::Reduce(how)), &["n"], &partitions, &choices);
        prop_assert!(out.is_empty());
        let there: Vec<i64> = ints.iter().flatten().flatten().copied().collect();
        let sum = (!there.is_empty()).then(|| there.iter().sum());
        let int = |it: Option<i64>| it.map_or(Value::Null, Value::Int);
        let rows = ints.iter().map(Vec::len).sum::<usize>();
        prop_assert_eq!(end, Step::Reduced(vec![
            Value::Int(rows as i64),
            Value::Int(there.len() as i64),
            int(sum),
            int(there.iter().min().copied()),
            int(there.iter().max().copied()),
        ]));
    }

    #[test]
    fn numbers_are_totally_ordered(mut values in prop::collection::vec(number(), 3)) {
        values.retain(|it| *it != Value::Null);
        for one in &values {
            for other in &values {
                prop_assert_eq!(one.compare(other), other.compare(one).reverse());
                for third in &values {
                    if one.compare(other).is_le() && other.compare(third).is_le() {
                        prop_assert!(one.compare(third).is_le());
                    }
                }
            }
        }
    }
}

#[test]
fn integers_and_floats_are_compared_exactly() {
    let near = 9_007_199_254_740_993; // Not a float: the next one below is.
    let float = Value::Float(9_007_199_254_740_992.0);
    assert_eq!(Value::Int(near).compare(&float), Ordering::Greater);
    assert_eq!(float.compare(&Value::Int(near)), Ordering::Less);
    assert_eq!(
        Value::Int(i64::MAX).compare(&Value::Float(9.3e18)),
        Ordering::Less
    );
    assert_eq!(
        Value::Int(i64::MIN).compare(&Value::Float(-1e300)),
        Ordering::Greater
    );
    assert_eq!(
        Value::Int(-1).compare(&Value::Float(-1.5)),
        Ordering::Greater
    );
    assert_eq!(Value::Int(0).compare(&Value::Float(-0.0)), Ordering::Equal);
}

#[test]
fn values_round_trip_json() {
    let read = |text| serde_json::from_str::<Value>(text);
    for (json, value) in [
        ("null", Value::Null),
        ("true", Value::Bool(true)),
        ("-9223372036854775808", Value::Int(i64::MIN)),
        ("1.0", Value::Float(1.0)),
        ("\"é\"", text("é")),
    ] {
        assert_eq!(read(json).unwrap(), value, "{json}");
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
    }
    assert!(
        read("9223372036854775808")
            .unwrap_err()
            .to_string()
            .contains("maximum 9223372036854775807")
    );
    assert!(read("[1]").is_err() && read("{}").is_err() && read("NaN").is_err());
}
