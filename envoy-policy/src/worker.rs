//! One worker's reports to the exchanger, and the shares that it gets back.

use crate::{
    engine::Engine,
    random::Random,
    told::{Shares, Told},
};

/// A worker's dispatcher as agents know it: its name, and the state of its reports.
#[derive(Debug)]
pub struct Worker {
    name: String,
    instance: String,
    /// Number of the last shares taken.
    taken: u64,
    /// Number of reports made.
    beat: u64,
    /// End of the current period, seconds.
    period_end: f64,
    random: Random,
}

impl Worker {
    /// `name` must be unique among the dispatchers that run; `seed` tells this one from an earlier one of that name.
    pub fn new(name: String, seed: u64) -> Self {
        Worker {
            name,
            instance: format!("{seed:x}"),
            taken: 0,
            beat: 0,
            period_end: 0.0,
            random: Random::new(seed),
        }
    }

    /// The number of the last shares taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the shares with this number, if there are any for this worker. Returns true if the worker gives up so much
    /// of its share that it should report before the period is over.
    pub fn take(
        &mut self,
        engine: &mut Engine,
        number: u64,
        shares: Option<Shares>,
        now: f64,
    ) -> bool {
        self.taken = number;
        shares.is_some_and(|shares| engine.take_shares(now, shares))
    }

    /// True if the period is over at `now`, seconds, so that a report is due.
    pub fn is_due(&self, now: f64) -> bool {
        now >= self.period_end
    }

    /// Makes a report of the worker's demand, of what it has in flight and of what it observed, and starts a new period
    /// if one is due.
    pub fn tell(&mut self, engine: &mut Engine, now: f64) -> Told {
        if self.is_due(now) {
            let period = engine.settings().period;
            self.period_end = now + period * (0.9 + 0.2 * self.random.fraction());
            engine.dispatcher().end_period();
        }
        self.beat += 1;
        let (in_flight, requests) = engine.in_flight();
        let report = engine.dispatcher().report();
        Told {
            beat: self.beat,
            at: now,
            taken: self.taken,
            name: self.name.clone(),
            instance: self.instance.clone(),
            in_flight,
            requests,
            nodes: report.into_iter().map(Into::into).collect(),
        }
    }
}
