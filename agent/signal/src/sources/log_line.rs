//! One line of HAProxy's log.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use plimsoll_core::{Cost, Seconds};

/// The `log-format` that the `haproxy-log` source reads. `%TR/%Ta` shows how old a request was whose client
/// left, and the word after it when the line was written, which request of the process it was, how many more the
/// process has at the server, and which process that is; lines without either are read too. The last field is the cost of the request in items; `-`, where the variable is not set,
/// means one that is not known, [`EXCLUDED`] a request that is not of the service's promise.
pub const LOG_FORMAT: &str = "plimsoll %b/%s %Tw %Tc %Tr %Td %TR/%Ta @%[date(0,ms)]/%rt/%sc/%H/%pid %ST %ts %[var(txn.plimsoll_items)]";

/// In place of the cost: leave the line out.
const EXCLUDED: &[u8] = b"excluded";
/// Longest line and datagram.
pub const MAX_LINE: usize = 8192;
/// Longer than this no request takes; it is a mistake in the line.
const MAX_MILLIS: i64 = 86_400_000;
/// Costs above this are a mistake in the line.
const MAX_ITEMS: f64 = 1e9;
/// More a server does not have; it is a mistake in the line.
const MAX_LEFT_JOBS: u32 = 1_000_000;
/// The year 5138; what is later is a mistake in the line.
const MAX_WRITTEN_MILLIS: i64 = 100_000_000_000_000;

/// Whose lines are looked for.
#[derive(Clone, Debug)]
pub struct Node {
    /// `backend/server`.
    name: Box<[u8]>,
    /// `backend/`.
    backend: usize,
}

impl Node {
    /// Of a name as `source.node` has it.
    pub fn new(name: &str) -> Self {
        let backend = name.find('/').map_or(name.len(), |slash| slash + 1);
        Node {
            name: name.as_bytes().into(),
            backend,
        }
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// How the request ended.
    pub end: End,
    /// What became of its wish for a place.
    pub asked: Asked,
    /// When it was written and which one it is, where it tells.
    pub stamp: Option<Stamp>,
    /// HAProxy wrote it before the data were through: `option logasap`.
    pub early: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// It finished well.
    Finished {
        /// Queue, connect, response and data time.
        delay: Seconds,
        /// Of that, the time after HAProxy's queue.
        in_node: Seconds,
        /// Its cost, where it is known.
        cost: Option<Cost>,
    },
    /// The node failed it or it was given up.
    Failed {
        /// Time after HAProxy's queue, as far as the line tells.
        in_node: Seconds,
    },
    /// Its client left before it was through.
    Left {
        /// How long it had been kept waiting, as far as the line tells: 0 where it does not.
        age: Seconds,
        /// Of that, the time after HAProxy's queue.
        in_node: Seconds,
    },
    /// Refused by HAProxy before it reached the node: no sample.
    Refused,
    /// Left out by the operator's rule.
    Excluded,
    /// Of another node.
    OtherNode,
    /// Not in the format.
    Malformed,
}

/// Whether a request of the node's backend wanted a place at any of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is of another backend, or HAProxy answered it for another reason.
    No,
    /// It had one, or its client left.
    Had,
    /// There was none in time.
    Refused,
}

/// Which line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When it was written, by the proxy's clock.
    pub written_millis: i64,
    /// Which of the proxy's requests.
    pub request: u64,
    /// What its process still had at the server, where it tells.
    pub left: Option<LeftAtServer>,
}

/// A proxy's requests at the server after one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftAtServer {
    /// Tells host and process from others.
    pub proxy: u64,
    /// How many.
    pub jobs: u32,
}

/// Every value of the `result` label: those of [`End::as_str`], and what never gets so far.
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
    /// The `result` label.
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

/// Reads a line, with or without a syslog header before it.
pub fn parse(line: &[u8], node: &Node) -> Line {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .peekable();
    let server = loop {
        match words.next() {
            // The host in the header may have this name too.
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

/// One of HAProxy's timers in milliseconds; -1 stands for a phase that was not reached.
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
        // A server's error stays one, whoever left then.
        (b'C' | b'c', _) if answer.is_none() || status < 500 => {
            // Once the answer has begun, it is the client who takes it slowly.
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
