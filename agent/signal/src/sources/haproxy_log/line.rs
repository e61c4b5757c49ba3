//! Parses one line of HAProxy's log.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use plimsoll_core::{Cost, Seconds};

/// The `log-format` that the `haproxy-log` source reads.
///
/// `%TR/%Ta` gives the age of a request whose client left. The word after it, which begins with `@`, has the time
/// of writing in ms, the number of the request within the process, the number of requests that the process still
/// has at the server, and the process. Both are optional. The last field is the cost of the request in items: `-`
/// if the variable is not set and the cost is unknown, `excluded` if the SLA does not cover the request.
pub const LOG_FORMAT: &str = "plimsoll %b/%s %Tw %Tc %Tr %Td %TR/%Ta @%[date(0,ms)]/%rt/%sc/%H/%pid %ST %ts %[var(txn.plimsoll_items)]";

/// In place of the cost: ignore the line.
const EXCLUDED: &[u8] = b"excluded";
/// Maximum length of a line or datagram, in bytes.
pub const MAX_LINE: usize = 8192;
/// Maximum timer, one day; a line with a larger one is malformed.
const MAX_MILLIS: i64 = 86_400_000;
/// Maximum cost in items; a line with a larger one is malformed.
const MAX_ITEMS: f64 = 1e9;
/// Maximum number of requests at the server; a line with a larger one is malformed.
const MAX_LEFT_JOBS: u32 = 1_000_000;
/// Maximum time of writing, in the year 5138; a line with a later one is malformed.
const MAX_WRITTEN_MILLIS: i64 = 100_000_000_000_000;

/// The server whose lines count.
#[derive(Clone, Debug)]
pub struct Node {
    /// `backend/server`.
    name: Box<[u8]>,
    /// Length of the prefix `backend/` of `name`.
    backend: usize,
}

impl Node {
    /// The server of a `source.node`, `backend/server`.
    pub fn new(name: &str) -> Self {
        let backend = name.find('/').map_or(name.len(), |slash| slash + 1);
        Node {
            name: name.as_bytes().into(),
            backend,
        }
    }
}

/// Content of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Outcome of the request.
    pub end: End,
    /// Whether the request asked for a place, and got one.
    pub asked: Asked,
    /// Time of writing and identity of the line, if present.
    pub stamp: Option<Stamp>,
    /// True if HAProxy wrote the line before the response was complete: `option logasap`.
    pub early: bool,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// It succeeded.
    Finished {
        /// Sum of queue, connect, response and data time.
        delay: Seconds,
        /// `delay` without the time in HAProxy's queue.
        in_node: Seconds,
        /// Cost in items, above 0; `None` if unknown.
        cost: Option<Cost>,
    },
    /// The server failed it, or it timed out.
    Failed {
        /// Time after HAProxy's queue, as far as the line has it.
        in_node: Seconds,
    },
    /// Its client left before the response was complete.
    Left {
        /// Time that the client had waited; 0 if the line does not have it.
        age: Seconds,
        /// `age` without the time in HAProxy's queue.
        in_node: Seconds,
    },
    /// Refused by HAProxy before it reached the node; not a sample.
    Refused,
    /// Excluded by the operator's rule.
    Excluded,
    /// Request of another node.
    OtherNode,
    /// Not in [`LOG_FORMAT`].
    Malformed,
}

/// Whether a request of the node's backend asked for a place at any of its nodes, and got one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It did not ask: it is of another backend, or HAProxy answered it itself.
    No,
    /// It got a place, or its client left.
    Had,
    /// No place became available in time, or the queue was full.
    Refused,
}

/// Identity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Unix time of writing in milliseconds, by the proxy's clock.
    pub written_millis: i64,
    /// Number of the request within its process.
    pub request: u64,
    /// Requests that its process still had at the server, if present.
    pub left: Option<LeftAtServer>,
}

/// Number of requests of one proxy process at the server after one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftAtServer {
    /// Hash of host name and process id.
    pub proxy: u64,
    /// Number of requests.
    pub jobs: u32,
}

/// All values of the `result` label: those of `End::as_str`, and of lines that are not parsed or not counted.
pub const LINE_RESULTS: [&str; 10] = [
    "finished",
    "failed",
    "left",
    "refused",
    "excluded",
    "other_node",
    "malformed",
    "oversized",
    "late",
    "repeated",
];

impl End {
    /// Value of the `result` label, one of [`LINE_RESULTS`].
    pub fn as_str(self) -> &'static str {
        match self {
            End::Finished { .. } => "finished",
            End::Failed { .. } => "failed",
            End::Left { .. } => "left",
            End::Refused => "refused",
            End::Excluded => "excluded",
            End::OtherNode => "other_node",
            End::Malformed => "malformed",
        }
    }
}

impl Line {
    fn without_times(end: End) -> Self {
        Line {
            end,
            asked: Asked::No,
            stamp: None,
            early: false,
        }
    }
}

/// Parses a line, with or without a syslog header. Never fails: see [`End::Malformed`].
pub fn parse(line: &[u8], node: &Node) -> Line {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .peekable();
    let server = loop {
        match words.next() {
            // The host in the syslog header may have this name too.
            Some(b"plimsoll") if words.peek().is_some_and(|word| word.contains(&b'/')) => {
                break words.next();
            }
            Some(_) => {}
            None => break None,
        }
    };
    let Some(server) = server else {
        return Line::without_times(End::Malformed);
    };
    let is_own = server == &*node.name;
    if !is_own && !server.starts_with(&node.name[..node.backend]) {
        return Line::without_times(End::OtherNode);
    }
    match read(words) {
        Some(line) if is_own => line,
        Some(line) => Line {
            end: End::OtherNode,
            ..line
        },
        None if is_own => Line::without_times(End::Malformed),
        None => Line::without_times(End::OtherNode),
    }
}

fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// One of HAProxy's timers in milliseconds: `Some(None)` for -1, a phase that was not reached; `None` if malformed.
fn timer(word: &[u8]) -> Option<Option<i64>> {
    let millis: i64 = number(word)?;
    (-1..=MAX_MILLIS)
        .contains(&millis)
        .then(|| (millis >= 0).then_some(millis))
}

fn halves(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = word.iter().position(|byte| *byte == b'/')?;
    Some((&word[..slash], &word[slash + 1..]))
}

fn stamp(word: &[u8]) -> Option<Stamp> {
    let (written, rest) = halves(word)?;
    let (request, left) = match halves(rest) {
        Some((request, rest)) => {
            let (jobs, proxy) = halves(rest)?;
            let jobs = number(jobs)?;
            let is_sound = jobs <= MAX_LEFT_JOBS && halves(proxy).is_some();
            let proxy = BuildHasherDefault::<DefaultHasher>::default().hash_one(proxy);
            (
                request,
                is_sound.then_some(Some(LeftAtServer { proxy, jobs }))?,
            )
        }
        None => (rest, None),
    };
    let written_millis = number(written)?;
    (0..=MAX_WRITTEN_MILLIS)
        .contains(&written_millis)
        .then_some(Stamp {
            written_millis,
            request: number(request)?,
            left,
        })
}

fn seconds(millis: i64) -> Seconds {
    Seconds(millis.max(0) as f64 / 1000.0)
}

fn read<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Line> {
    let mut timers = [None; 4];
    for held in &mut timers {
        *held = timer(words.next()?)?;
    }
    let [queue, connect, answer, data] = timers;
    let to_answer = [queue, connect, answer].into_iter().flatten().sum::<i64>();
    let (queue, data) = (queue.unwrap_or(0), data.unwrap_or(0));
    let mut word = words.next()?;
    let mut whole = None;
    let mut early = false;
    if let Some((request, active)) = halves(word).filter(|_| word[0] != b'@') {
        early = active.first() == Some(&b'+');
        let (request, active) = (timer(request)?, timer(active)?);
        whole = request.zip(active).map(|(request, all)| all - request);
        word = words.next()?;
    }
    let stamp = match word.strip_prefix(b"@") {
        Some(text) => {
            word = words.next()?;
            Some(stamp(text)?)
        }
        None => None,
    };
    let status: i32 = number(word)?;
    let &[cause, phase] = words.next()? else {
        return None;
    };
    let items = words.next()?;
    let line = |end, asked| {
        Some(Line {
            end,
            asked,
            stamp,
            early,
        })
    };
    if items == EXCLUDED {
        return line(End::Excluded, Asked::No);
    }
    let failed = End::Failed {
        in_node: seconds(whole.unwrap_or(to_answer + data) - queue),
    };
    match (cause, phase) {
        (b's' | b'S' | b'P', b'Q') => return line(End::Refused, Asked::Refused),
        (b'P', b'R' | b'C') | (b'L' | b'R' | b'I' | b'K', _) => {
            return line(End::Refused, Asked::No);
        }
        (b'-', _) => {}
        // A server error counts as one even if the client left afterwards.
        (b'C' | b'c', _) if answer.is_none() || status < 500 => {
            // Once the response has begun, further delay is due to a slow client.
            let age = whole.filter(|_| answer.is_none()).unwrap_or(to_answer);
            let left = End::Left {
                age: seconds(age),
                in_node: seconds(age - queue),
            };
            return line(left, Asked::Had);
        }
        (b'C' | b'c' | b'S' | b's' | b'P' | b'D' | b'U', _) => return line(failed, Asked::Had),
        _ => return None,
    }
    if !(100..500).contains(&status) {
        return line(failed, Asked::Had);
    }
    let cost = match items {
        b"-" => None,
        text => {
            let cost: f64 = number(text)?;
            if !(cost > 0.0 && cost <= MAX_ITEMS) {
                return None;
            }
            Some(Cost(cost))
        }
    };
    let finished = End::Finished {
        delay: seconds(to_answer + data),
        in_node: seconds(to_answer + data - queue),
        cost,
    };
    line(finished, Asked::Had)
}

#[cfg(test)]
mod tests;
