//! One line of HAProxy's log.

use plimsoll_core::{Cost, Seconds};

/// The `log-format` that the `haproxy-log` source reads. The last field is the cost of the request
/// in items; `-`, where the variable is not set, means one that is not known.
pub const LOG_FORMAT: &str = "plimsoll %b/%s %Tw %Tc %Tr %Td %ST %ts %[var(txn.plimsoll_items)]";

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
    /// Refused by HAProxy before it reached the node: no sample.
    Refused,
    /// Of another node.
    OtherNode,
    /// Not in the format.
    Malformed,
}

/// Every value of the `result` label: those of [`Line::as_str`], and what is too long to be read.
pub const LINE_RESULTS: [&str; 6] = [
    "finished",
    "failed",
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

fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Line> {
    let mut total = 0;
    for _ in 0..4 {
        let millis: i64 = words.next()?.parse().ok()?;
        if !(-1..=LONGEST).contains(&millis) {
            return None;
        }
        // -1 stands for a phase that was not reached.
        total += millis.max(0);
    }
    let status: i32 = words.next()?.parse().ok()?;
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
        delay: Seconds(total as f64 / 1000.0),
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
            ("plimsoll q/n 0 0 2 9 200 CD -", Line::Failed),
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
