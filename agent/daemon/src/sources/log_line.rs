//! One line of HAProxy's log.

use plimsoll_core::{Cost, Seconds};

/// The `log-format` that the `haproxy-log` source reads. `%TR/%Ta` shows how old a request was whose client
/// left; lines without it are read too. The last field is the cost of the request in items; `-`, where the
/// variable is not set, means one that is not known.
pub const LOG_FORMAT: &str =
    "plimsoll %b/%s %Tw %Tc %Tr %Td %TR/%Ta %ST %ts %[var(txn.plimsoll_items)]";

/// Longest line and datagram.
pub const MAX_LINE: usize = 8192;
/// Longer than this no request takes; it is a mistake in the line.
const LONGEST: i64 = 86_400_000;
/// Costs above this are a mistake in the line.
const MOST_ITEMS: f64 = 1e9;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line {
    /// A request that finished well.
    Finished {
        /// Queue, connect, response and data time.
        delay: Seconds,
        /// Its cost, where it is known.
        cost: Option<Cost>,
    },
    /// A request that the node failed or that was given up.
    Failed,
    /// A request whose client left before it was through.
    Left {
        /// How long the node had kept it waiting, as far as the line tells: 0 where it does not.
        age: Seconds,
    },
    /// Refused by HAProxy before it reached the node: no sample.
    Refused,
    /// Of another node.
    OtherNode,
    /// Not in the format.
    Malformed,
}

/// Every value of the `result` label: those of [`Line::as_str`], and what is too long to be read.
pub const LINE_RESULTS: [&str; 7] = [
    "finished",
    "failed",
    "left",
    "refused",
    "other_node",
    "malformed",
    "oversized",
];

impl Line {
    /// The `result` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Line::Finished { .. } => "finished",
            Line::Failed => "failed",
            Line::Left { .. } => "left",
            Line::Refused => "refused",
            Line::OtherNode => "other_node",
            Line::Malformed => "malformed",
        }
    }
}

/// Reads a line, with or without a syslog header before it.
pub fn parse(line: &[u8], node: &str) -> Line {
    let Ok(line) = std::str::from_utf8(line) else {
        return Line::Malformed;
    };
    let mut words = line.split_ascii_whitespace().peekable();
    let server = loop {
        match words.next() {
            // The host in the header may have this name too.
            Some("plimsoll") if words.peek().is_some_and(|word| word.contains('/')) => {
                break words.next();
            }
            Some(_) => {}
            None => break None,
        }
    };
    let Some(server) = server else {
        return Line::Malformed;
    };
    if server != node {
        return Line::OtherNode;
    }
    read(words).unwrap_or(Line::Malformed)
}

/// One of HAProxy's timers in milliseconds; -1 stands for a phase that was not reached.
fn timer(word: &str) -> Option<Option<i64>> {
    let millis: i64 = word.parse().ok()?;
    (-1..=LONGEST)
        .contains(&millis)
        .then(|| (millis >= 0).then_some(millis))
}

fn seconds(millis: i64) -> Seconds {
    Seconds(millis as f64 / 1000.0)
}

fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Line> {
    let mut timers = [None; 4];
    for held in &mut timers {
        *held = timer(words.next()?)?;
    }
    let [queue, connect, answer, data] = timers;
    let to_answer = [queue, connect, answer].into_iter().flatten().sum::<i64>();
    let mut status = words.next()?;
    let mut age = to_answer;
    if let Some((read, whole)) = status.split_once('/') {
        let (read, whole) = (timer(read)?, timer(whole)?);
        // Once the answer has begun, it is the client who takes it slowly.
        if let (None, Some(read), Some(whole)) = (answer, read, whole) {
            age = (whole - read).max(0);
        }
        status = words.next()?;
    }
    let status: i32 = status.parse().ok()?;
    let state = words.next()?.as_bytes();
    let items = words.next()?;
    let &[cause, phase] = state else {
        return None;
    };
    match (cause, phase) {
        (b's' | b'S', b'Q') | (b'P', b'Q' | b'R' | b'C') | (b'L' | b'R' | b'I' | b'K', _) => {
            return Some(Line::Refused);
        }
        (b'-', _) => {}
        // A server's error stays one, whoever left then.
        (b'C' | b'c', _) if answer.is_none() || status < 500 => {
            return Some(Line::Left { age: seconds(age) });
        }
        (b'C' | b'c' | b'S' | b's' | b'P' | b'D' | b'U', _) => return Some(Line::Failed),
        _ => return None,
    }
    if !(100..500).contains(&status) {
        return Some(Line::Failed);
    }
    let cost = match items {
        "-" => None,
        text => {
            let cost: f64 = text.parse().ok()?;
            if !(cost > 0.0 && cost <= MOST_ITEMS) {
                return None;
            }
            Some(Cost(cost))
        }
    };
    Some(Line::Finished {
        delay: seconds(to_answer + data.unwrap_or(0)),
        cost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let finished = |seconds, cost: Option<f64>| Line::Finished {
            delay: Seconds(seconds),
            cost: cost.map(Cost),
        };
        let left = |seconds| Line::Left {
            age: Seconds(seconds),
        };
        let cases = [
            (
                "plimsoll q/n 100 1 200 3 200 -- 80",
                finished(0.304, Some(80.0)),
            ),
            (
                "<134>Nov 21 06:14:09 haproxy[7]: plimsoll q/n 0 0 12 0 200 ---- -",
                Line::Malformed,
            ),
            (
                "<134>Nov 21 06:14:09 haproxy[7]: plimsoll q/n 0 0 12 0 404 -- -",
                finished(0.012, None),
            ),
            (
                "<134>Nov 21 06:14:09 plimsoll haproxy[7]: plimsoll q/n 0 0 12 0 200 -- -",
                finished(0.012, None),
            ),
            ("plimsoll q/n 0 -1 5 0 200 -- -", finished(0.005, None)),
            ("plimsoll q/n 0 0 -1 -1 504 sH -", Line::Failed),
            ("plimsoll q/n 0 0 2 1 500 -- -", Line::Failed),
            // Who left before the answer began had waited since the whole request was there.
            ("plimsoll q/n 0 0 -1 -1 30/5030 400 CH -", left(5.0)),
            ("plimsoll q/n 7 -1 -1 -1 0/7 503 CQ -", left(0.007)),
            ("plimsoll q/n 0 0 -1 -1 5/3 -1 cH -", left(0.0)),
            // Who left in the middle of it may have taken it slowly.
            ("plimsoll q/n 0 1 2 9000 0/9003 200 CD -", left(0.003)),
            ("plimsoll q/n 0 0 2 9000 0/9002 200 cD -", left(0.002)),
            ("plimsoll q/n 0 0 2 1 0/3 500 CD -", Line::Failed),
            // The format before had no word on it.
            ("plimsoll q/n 0 0 2 9 200 CD -", left(0.002)),
            ("plimsoll q/n 0 0 -1 -1 400 CH -", left(0.0)),
            (
                "plimsoll q/n 100 1 200 3 9/313 200 -- 80",
                finished(0.304, Some(80.0)),
            ),
            ("plimsoll q/n 0 0 1 0 9/ 200 -- -", Line::Malformed),
            ("plimsoll q/n 0 0 1 0 -2/3 200 -- -", Line::Malformed),
            ("plimsoll q/n 0 -1 -1 -1 503 SC -", Line::Failed),
            ("plimsoll q/n 500 -1 -1 -1 503 sQ -", Line::Refused),
            ("plimsoll q/<NOSRV> 0 -1 -1 -1 503 SC -", Line::OtherNode),
            ("plimsoll q/n2 0 0 1 0 200 -- -", Line::OtherNode),
            ("plimsoll q/n 0 0 -2 0 200 -- -", Line::Malformed),
            ("plimsoll q/n 0 0 99999999999 0 200 -- -", Line::Malformed),
            ("plimsoll q/n 0 0 1 0 200 -- -5", Line::Malformed),
            ("plimsoll q/n 0 0 1 0 200 -- NaN", Line::Malformed),
            ("plimsoll q/n 0 0", Line::Malformed),
            ("something else", Line::Malformed),
            ("", Line::Malformed),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line.as_bytes(), "q/n"), expected, "{line}");
        }
        assert_eq!(parse(b"plimsoll q/n \xff", "q/n"), Line::Malformed);
    }
}
