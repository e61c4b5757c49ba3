//! Whether a source of delays sees all of them.
//!
//! By Little's law the jobs in a node over its throughput are the mean delay. An application's own
//! histogram begins where the application does: what waits in the listen backlog before that is in
//! the jobs and not in the delays. Where the two disagree clearly, and go on to, the source is blind.

use serde::Serialize;

use crate::Seconds;

/// Share of what was seen that is left after one period: single periods of few requests decide nothing.
const POOLED: f64 = 0.9;
/// Delay by jobs over delay by the source from which the source is blind, and under which it no longer is.
const BLIND: f64 = 1.3;
const SEEING: f64 = 1.15;
/// The same for a gauge's word alone: it is of single moments, and so spread widely.
const CLEAR_GAUGE: f64 = 1.5;
/// As `BLIND` and `SEEING` for what is unseen, as a share of the SLA.
const MATTERS: f64 = 0.1;
const MATTERS_NOT: f64 = 0.05;
/// Periods in a row for which the other has to hold until the verdict changes.
const HELD_PERIODS: u32 = 4;
/// An application may count a request once where it waits and once where it runs, but not oftener.
const MAX_COUNTED: f64 = 2.0;
/// Of a gauge, the scrape itself may be one.
const OWN_SCRAPE: f64 = 1.0;

/// One period of a node, from all who looked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Its length.
    pub period: Seconds,
    /// Sum of the delays that the source saw.
    pub delays: Seconds,
    /// Requests that ended, failed ones with them.
    pub ended: f64,
    /// Connections that waited to be accepted, on average; 0 where nobody knows.
    pub listen_backlog: f64,
    /// Jobs by the application's own gauge.
    pub gauge: Option<f64>,
    /// Age of the oldest unfinished request by the application.
    pub oldest_age: Option<Seconds>,
}

/// What comes of comparing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sight {
    /// Delay by jobs over throughput, over delay by the source, of the pool: 1 where it sees all.
    pub ratio: f64,
    /// Mean delay that the source does not see, where it is blind: the pool's, or the last period's where that
    /// is less, so that it ends with the queue.
    pub unseen: Option<Seconds>,
}

/// Compares, period by period.
#[derive(Clone, Debug, Default)]
pub struct BlindWatch {
    seconds: f64,
    delays: f64,
    ended: f64,
    backlog_seconds: f64,
    gauge: Pooled,
    oldest: Pooled,
    /// How often the gauge counts a request: least that it showed against Little's figure.
    counted: Option<f64>,
    is_blind: bool,
    other_periods: u32,
}

/// A mean over the pooled periods that had a value.
#[derive(Clone, Copy, Debug, Default)]
struct Pooled {
    sum: f64,
    weight: f64,
}

impl Pooled {
    fn add(&mut self, value: Option<f64>) {
        self.sum *= POOLED;
        self.weight *= POOLED;
        if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
            self.sum += value;
            self.weight += 1.0;
        }
    }

    fn mean(self) -> Option<f64> {
        // Less is of periods long gone.
        (self.weight > 0.1).then(|| self.sum / self.weight)
    }
}

impl BlindWatch {
    /// Adds a period; `None` while nothing that ended can be compared with.
    pub fn step(&mut self, seen: &Waiting, sla: Seconds) -> Option<Sight> {
        let period = seen.period.get();
        let parts = [period, seen.delays.get(), seen.ended, seen.listen_backlog];
        if parts.iter().any(|part| !part.is_finite() || *part < 0.0) {
            return None;
        }
        self.seconds = self.seconds * POOLED + period;
        self.delays = self.delays * POOLED + seen.delays.get();
        self.ended = self.ended * POOLED + seen.ended;
        self.backlog_seconds = self.backlog_seconds * POOLED + seen.listen_backlog * period;
        self.gauge.add(seen.gauge);
        self.oldest.add(seen.oldest_age.map(Seconds::get));
        if self.ended < 1.0 || self.seconds <= 0.0 || self.delays <= 0.0 {
            return None;
        }
        let in_application = self.in_application();
        let all = in_application * self.seconds + self.backlog_seconds;
        let ratio = all / self.delays;
        let unseen = (all - self.delays) / self.ended;
        let (factor, share) = match self.is_blind {
            true => (SEEING, MATTERS_NOT),
            false => (BLIND, MATTERS),
        };
        // One bad period is one, however long the pool remembers it; and what is over is over.
        let is_believed = in_application * self.seconds > self.delays;
        let gauge = seen.gauge.filter(|_| is_believed).unwrap_or(0.0);
        let by_gauge = (gauge - OWN_SCRAPE) / self.counted.unwrap_or(1.0) * period;
        let now = by_gauge.max(seen.delays.get()) + seen.listen_backlog * period;
        let goes_on = now > SEEING * seen.delays.get();
        let looks_blind = ratio > factor && unseen > share * sla.get() && goes_on;
        self.other_periods = match looks_blind == self.is_blind {
            true => 0,
            false => self.other_periods + 1,
        };
        if self.other_periods >= HELD_PERIODS {
            self.is_blind = looks_blind;
            self.other_periods = 0;
        }
        let lately = match seen.ended > 0.0 {
            true => (now - seen.delays.get()) / seen.ended,
            false if goes_on => unseen,
            false => 0.0,
        };
        Some(Sight {
            ratio,
            unseen: self.is_blind.then(|| Seconds(lately.min(unseen))),
        })
    }

    /// Jobs that the application has taken in: by Little's law from its own delays, or what its gauge
    /// says beyond them where that can be. An application that counts a request twice shows so
    /// also while nothing waits; one whose oldest request is younger than its jobs would need is not
    /// believed.
    fn in_application(&mut self) -> f64 {
        let little = self.delays / self.seconds;
        let Some(gauge) = self.gauge.mean() else {
            return little;
        };
        let ratio = (gauge - OWN_SCRAPE).max(0.0) / little;
        let counted = self.counted.map_or(ratio, |least| least.min(ratio));
        let counted = counted.clamp(1.0, MAX_COUNTED);
        self.counted = Some(counted);
        let by_gauge = (gauge - OWN_SCRAPE) / counted;
        let foretold = by_gauge * self.seconds / self.ended;
        let too_young = |oldest: f64| oldest * BLIND < foretold;
        let is_clear = by_gauge > CLEAR_GAUGE * little;
        if is_clear && !self.oldest.mean().is_some_and(too_young) {
            return by_gauge;
        }
        little
    }
}
