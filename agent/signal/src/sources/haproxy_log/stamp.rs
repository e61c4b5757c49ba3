//! Detects late and duplicate log lines.

use std::collections::HashSet;

use super::line::Stamp;

/// Maximum lateness of a line: later ones do not reflect the node's present state.
pub const MAX_LATE_MILLIS: i64 = 10_000;
/// Tolerance within which lines count as equally late: that is due to the proxy's clock.
const SAME_MILLIS: i64 = 1_000;
/// Time for which they must be equally late before their lag becomes the usual one.
const SETTLED_MILLIS: i64 = 10_000;
/// Maximum number of lines remembered, in each of two sets. More than a node has in 10 s at 5,000 requests/s.
const MAX_REMEMBERED: usize = 1 << 16;

/// Classification of a line by its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// In time, and not seen before.
    New,
    /// Late, by this many milliseconds beyond the usual lag.
    Late(i64),
    /// Seen before.
    Repeated,
}

/// Usual lag of the proxies' clocks, and recent lines.
///
/// Arrival times must be from a monotonic clock. All proxies share one usual lag: if the clock of one is more than
/// [`MAX_LATE_MILLIS`] behind the others', all of its lines are late.
#[derive(Debug, Default)]
pub struct Stamps {
    usual_lag: i64,
    odd: Option<Odd>,
    lines: [HashSet<u64>; 2],
    turned: i64,
}

/// A run of lines whose lag is not the usual one.
#[derive(Debug)]
struct Odd {
    since: i64,
    least: i64,
    most: i64,
}

impl Stamps {
    /// Whether a line that arrived at `now_millis` is late: `New` or `Late`.
    pub fn lateness(&mut self, stamp: Stamp, now_millis: i64) -> Arrival {
        let lag = now_millis - stamp.written_millis;
        let late = lag - self.usual_lag;
        if late.abs() <= MAX_LATE_MILLIS {
            self.odd = None;
            return Arrival::New;
        }
        let new = Odd {
            since: now_millis,
            least: lag,
            most: lag,
        };
        let odd = self.odd.get_or_insert(new);
        odd.least = odd.least.min(lag);
        odd.most = odd.most.max(lag);
        if odd.most - odd.least > SAME_MILLIS {
            // The lag of a backlog being worked off keeps growing or shrinking.
            *odd = Odd {
                since: now_millis,
                least: lag,
                most: lag,
            };
        } else if now_millis - odd.since >= SETTLED_MILLIS {
            self.usual_lag = odd.least;
            self.odd = None;
            return Arrival::New;
        }
        if late > 0 {
            Arrival::Late(late)
        } else {
            // A line cannot arrive before it is written: the usual lag is wrong.
            Arrival::New
        }
    }

    /// Whether a line is a duplicate: `New` or `Repeated`. Remembers it.
    pub fn repetition(&mut self, stamp: Stamp, now_millis: i64) -> Arrival {
        // Duplicates older than that are late.
        if now_millis - self.turned >= MAX_LATE_MILLIS || self.lines[0].len() >= MAX_REMEMBERED {
            self.turned = now_millis;
            self.lines.swap(0, 1);
            self.lines[0].clear();
        }
        // Rarely the same for two requests in one millisecond, even at two proxies.
        let proxy = stamp.left.map_or(0, |left| left.proxy);
        let line = ((stamp.written_millis as u64) << 23) ^ stamp.request ^ proxy;
        if self.lines[1].contains(&line) || !self.lines[0].insert(line) {
            Arrival::Repeated
        } else {
            Arrival::New
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn stamp(written_millis: i64, request: u64) -> Stamp {
        Stamp {
            written_millis,
            request,
            left: None,
        }
    }

    fn late(stamps: &mut Stamps, written: i64, now: i64) -> bool {
        stamps.lateness(stamp(written, 0), now) != Arrival::New
    }

    #[test]
    fn a_backlog_of_a_relay_is_late_and_what_follows_is_not() {
        let mut stamps = Stamps::default();
        let now = 1_000_000_000;
        // Ten minutes of lines within half a minute, oldest first, then live ones.
        for line in 0..30_000 {
            let written = now - 10 * MINUTE + line * 20;
            let arrives = now + line;
            assert_eq!(
                late(&mut stamps, written, arrives),
                arrives - written > MAX_LATE_MILLIS,
                "{line}"
            );
        }
        assert!(!late(&mut stamps, now + MINUTE, now + MINUTE));
        assert!(late(&mut stamps, now - MINUTE, now + MINUTE));
    }

    #[test]
    fn a_proxy_whose_clock_is_wrong_is_heard_after_a_while() {
        for off in [-60 * MINUTE, 60 * MINUTE] {
            let mut stamps = Stamps::default();
            let now = 1_000_000_000;
            let heard = (0..200).filter(|second| {
                let at = now + second * 1000;
                !late(&mut stamps, at + off - second % 7 * 100, at)
            });
            let heard = heard.count();
            assert!(heard >= 189, "{off}: {heard}");
            // Late lines are detected from then on.
            let at = now + 300_000;
            assert!(late(&mut stamps, at + off - MINUTE, at));
        }
    }

    #[test]
    fn a_proxys_clock_that_jumps_there_and_back_costs_ten_seconds_of_lines_at_most() {
        for jump in [-60 * MINUTE, 60 * MINUTE] {
            let mut stamps = Stamps::default();
            let now = 1_000_000_000;
            let unheard = (0..180).filter(|second| {
                let at = now + second * 1000;
                let off = if (60..120).contains(second) { jump } else { 0 };
                late(&mut stamps, at + off, at)
            });
            // After the clock goes back, all lines are late until the new lag has become the usual one.
            let behind = if jump > 0 { 120 } else { 60 };
            let expected: Vec<i64> = (behind..behind + 10).collect();
            assert_eq!(unheard.collect::<Vec<_>>(), expected, "{jump}");
        }
    }

    #[test]
    fn one_line_from_the_future_does_not_hide_later_ones() {
        let mut stamps = Stamps::default();
        let now = 1_000_000_000;
        for line in 0..100 {
            assert!(!late(&mut stamps, now + line, now + line));
            assert!(!late(&mut stamps, now + 600 * MINUTE, now + line));
        }
    }

    #[test]
    fn a_repeated_line_counts_once() {
        let mut stamps = Stamps::default();
        let now = 1_000_000_000;
        for request in 0..100_000 {
            let line = stamp(now + request / 5, request as u64);
            let at = line.written_millis + 3;
            assert_eq!(stamps.repetition(line, at), Arrival::New, "{request}");
            assert_eq!(stamps.repetition(line, at), Arrival::Repeated, "{request}");
        }
        let first = stamp(now + 10_000, 50_000);
        assert_eq!(stamps.repetition(first, now + 20_000), Arrival::Repeated);
        // The same request number, from another proxy or after a restart.
        let other = stamp(now + 20_001, 50_000);
        assert_eq!(stamps.repetition(other, now + 20_002), Arrival::New);
        let held: usize = stamps.lines.iter().map(HashSet::len).sum();
        assert!(held <= 2 * MAX_REMEMBERED);
    }
}
