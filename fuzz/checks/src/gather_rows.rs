use std::cmp::Ordering;

use plimsoll_core::Seconds;
use plimsoll_scatter::{
    answer::{Gathering, How, Keys, Offer, OrderKey, Plan, Step, Value},
    client::{Lines, Picker},
};
use serde_json::Value as Json;

const PARTITIONS: usize = 3;
const COLUMNS: [&str; 3] = ["a", "more", "b"];
/// Those that rows are in the order of.
const PICKS: [usize; 2] = [0, 2];

type Rows = Vec<Keys>;

/// The bits of the first byte say how rows are in order, the second byte in how large pieces they come. Then rows, one a
/// line: the digit of their partition, and the row.
pub fn gather_rows(data: &[u8]) {
    let Some((&[flags, size], text)) = data.split_first_chunk::<2>() else {
        return;
    };
    check_lines(text, usize::from(size % 64) + 1);
    let key = |column: &str, descending: u8, nulls_first: u8| OrderKey {
        column: column.to_owned(),
        descending: flags & descending != 0,
        nulls_first: flags & nulls_first != 0,
    };
    let order = vec![key("a", 1, 2), key("b", 4, 8)];
    let mut partitions: [Rows; PARTITIONS] = Default::default();
    for line in text.split(|byte| *byte == b'\n') {
        if let Some((digit, row)) = line.split_first()
            && let Some(keys) = pick(row)
        {
            partitions[usize::from(*digit) % PARTITIONS].push(keys);
        }
    }
    if flags & 16 != 0 {
        for rows in &mut partitions {
            rows.sort_by(|one, other| compare(&order, one, other));
        }
    }
    check_merge(order, &partitions, usize::from(size % 5) + 1);
}

/// Lines are the same in whatever pieces they come.
fn check_lines(text: &[u8], size: usize) {
    let mut lines = Lines::default();
    let mut found = Vec::new();
    for chunk in text.chunks(size) {
        lines.push(chunk.to_vec().into());
        while let Some(line) = lines.next_line().expect("short lines") {
            found.push(line);
        }
    }
    let mut wanted: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    assert_eq!(
        lines.has_begun(),
        !wanted.pop().unwrap_or_default().is_empty()
    );
    assert_eq!(found, wanted);
}

/// The values that rows are in the order of, compared with what a whole parser reads.
fn pick(row: &[u8]) -> Option<Keys> {
    let picker = Picker::new(COLUMNS.len(), &PICKS);
    let picked = picker.pick(row).ok();
    let read = std::str::from_utf8(row)
        .ok()
        .and_then(|row| picker.read(row).ok());
    assert_eq!(picked, read);
    let whole: Option<Vec<Json>> = serde_json::from_slice(row).ok();
    if let Some(whole) = whole.filter(|row| row.len() == COLUMNS.len()) {
        let values: Option<Vec<Value>> = PICKS.iter().map(|at| value(&whole[*at])).collect();
        assert_eq!(picked.as_deref(), values.as_deref());
    }
    picked
}

fn value(json: &Json) -> Option<Value> {
    match json {
        Json::Null => Some(Value::Null),
        Json::Bool(value) => Some(Value::Bool(*value)),
        Json::Number(number) if number.is_u64() || number.is_i64() => {
            number.as_i64().map(Value::Int)
        }
        Json::Number(number) => number.as_f64().map(Value::Float),
        Json::String(text) => Some(Value::Text(text.as_str().into())),
        Json::Array(_) | Json::Object(_) => None,
    }
}

fn compare(order: &[OrderKey], one: &[Value], other: &[Value]) -> Ordering {
    let each = order.iter().zip(one.iter().zip(other));
    let each = each.map(|(key, (one, other))| key.compare(one, other));
    each.fold(Ordering::Equal, Ordering::then)
}

/// What is merged is what a stable sort of all rows makes, or a failure where rows of a partition are not in order or
/// values of a column are not of one kind.
fn check_merge(order: Vec<OrderKey>, partitions: &[Rows], at_once: usize) {
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (at, rows) in partitions.iter().enumerate() {
        all.extend((0..rows.len()).map(|place| (at, place)));
    }
    let of = |(at, place): (usize, usize)| &partitions[at][place];
    let is_alike = (0..order.len()).all(|column| {
        let mut kinds = all.iter().filter_map(|id| of(*id)[column].kind());
        let first = kinds.next();
        kinds.all(|kind| Some(kind) == first)
    });
    let is_sound = is_alike
        && partitions.iter().all(|rows| {
            let mut pairs = rows.windows(2);
            pairs.all(|pair| compare(&order, &pair[0], &pair[1]) != Ordering::Greater)
        });
    let (merged, is_done) = merge(order.clone(), partitions, at_once);
    assert_eq!(is_done, is_sound);
    if is_alike {
        let mut pairs = merged.windows(2);
        assert!(pairs.all(|pair| compare(&order, of(pair[0]), of(pair[1])) != Ordering::Greater));
    }
    if is_sound {
        all.sort_by(|one, other| compare(&order, of(*one), of(*other)));
        assert_eq!(merged, all);
    }
}

/// The rows in the order in which they leave, and whether all did. Who is waited for sends so many rows `at_once`.
fn merge(order: Vec<OrderKey>, partitions: &[Rows], at_once: usize) -> (Vec<(usize, usize)>, bool) {
    let plan = Plan {
        how: How::Merge(order),
        limit: None,
        partial: false,
        deadline: Seconds(10.0),
    };
    let names = (0..partitions.len()).map(|at| format!("p{at}"));
    let mut gathering = Gathering::new(names, plan).unwrap();
    let columns = COLUMNS.map(str::to_owned);
    for at in 0..partitions.len() {
        assert!(gathering.begin(at, 0, &columns));
    }
    assert_eq!(gathering.picks(), PICKS);
    let mut sent = vec![0; partitions.len()];
    let mut merged = Vec::new();
    loop {
        let at = match gathering.step() {
            Step::Row(_, id) => {
                merged.push(id);
                continue;
            }
            Step::Wait(at) => at.unwrap(),
            Step::Done => return (merged, true),
            Step::Failed(_) => return (merged, false),
            Step::Reduced(_) => panic!("nothing is reduced"),
        };
        for _ in 0..at_once {
            let Some(keys) = partitions[at].get(sent[at]) else {
                gathering.end(at, 0, sent[at] as u64);
                break;
            };
            match gathering.offer(at, 0, keys.clone(), (at, sent[at])) {
                Offer::Taken => sent[at] += 1,
                Offer::Full(..) | Offer::Ignored => break,
            }
        }
    }
}
