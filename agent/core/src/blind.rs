//! Detection of a blind source: one that measures only part of each request's delay.
//!
//! By Little's law, the mean delay is the number of jobs in a node divided by its throughput. An
//! application's own histogram starts its clock when the application accepts a request: time in the
//! listen backlog counts towards the jobs, but not towards the delays. If the two differ clearly for
//! several periods, the source is blind.

use serde::Serialize;

use crate::Seconds;

/// Share of the pooled sums that is kept after each period, so that one period of few requests decides nothing.
const POOLED: f64 = 0.9;
/// Ratio of the delay by jobs to the delay by the source above which the source becomes blind.
const BLIND: f64 = 1.3;
/// Ratio below which it is no longer blind.
const SEEING: f64 = 1.15;
/// Ratio of the gauge to Little's figure above which the gauge is used: it samples single moments and varies widely.
const CLEAR_GAUGE: f64 = 1.5;
/// Unseen delay, as a share of the SLA, above which the source becomes blind.
const MATTERS: f64 = 0.1;
/// Unseen delay, as a share of the SLA, below which it is no longer blind.
const MATTERS_NOT: f64 = 0.05;
/// Consecutive periods with the opposite result before the verdict changes.
const HELD_PERIODS: u32 = 4;
/// Maximum times that an application's gauge counts one request: while it waits, and while it runs.
const MAX_COUNTED: f64 = 2.0;
/// Jobs of a gauge that may be the agent's own scrape.
const OWN_SCRAPE: f64 = 1.0;

/// Measurements of one node in one period, from all sources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Length of the period.
    pub period: Seconds,
    /// Sum of the delays that the source measured.
    pub delays: Seconds,
    /// Requests that ended, including failed ones.
    pub ended: f64,
    /// Mean number of connections that waited to be accepted; 0 if unknown.
    pub listen_backlog: f64,
    /// Jobs according to the application's own gauge.
    pub gauge: Option<f64>,
    /// Age of the oldest unfinished request according to the application.
    pub oldest_age: Option<Seconds>,
}

/// Result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sight {
    /// Delay by Little's law divided by the source's delay, over the pooled periods; 1 if the source sees all of it.
    pub ratio: f64,
    /// Mean delay that a blind source does not see; `None` if the source is not blind. The lower of the pooled
    /// value and the last period's, so that it falls to 0 as soon as the queue is gone.
    pub unseen: Option<Seconds>,
}

/// Compares the source's delays with the node's jobs, period by period.
#[derive(Clone, Debug, Default)]
pub struct BlindWatch {
    seconds: f64,
    delays: f64,
    ended: f64,
    backlog_seconds: f64,
    gauge: Pooled,
    oldest: Pooled,
    /// Times that the gauge counts each request, 1 to `MAX_COUNTED`: its lowest ratio to Little's figure so far.
    counted: Option<f64>,
    is_blind: bool,
    other_periods: u32,
}

/// Mean over the pooled periods that had a value.
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
        // A lower weight is left over from periods long past.
        (self.weight > 0.1).then(|| self.sum / self.weight)
    }
}

impl BlindWatch {
    /// Adds a period. `None` if no requests ended, or a measurement is negative or not finite.
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
        // The pool remembers one bad period for long, so the last period must also look blind.
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

    /// Jobs that the application has accepted: by Little's law from its own delays, or by its gauge if that is
    /// clearly higher. A gauge that counts each request twice also does so while nothing waits, and is divided by
    /// two. A gauge is ignored if the oldest request is younger than so many jobs imply.
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
