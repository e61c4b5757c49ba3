//! What one worker's dispatcher tells the exchanger, and takes from it.

use crate::{
    engine::Engine,
    random::Random,
    told::{Shares, Told},
};

/// A worker's dispatcher, as agents know it.
#[derive(Debug)]
pub struct Worker {
    name: String,
    instance: String,
    /// The number of the shares that it knows.
    taken: u64,
    beat: u64,
    /// When the period is over.
    period_end: f64,
    random: Random,
}

impl Worker {
    /// `name` is nobody else's; `seed` tells it from an earlier one of that name.
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

    /// The number of the shares that it knows.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// There are new shares, by this number, and perhaps some for this worker. Whether it gives up so much that others
    /// should hear of it soon.
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

    /// Whether its period is over, so that it is to tell.
    pub fn is_due(&self, now: f64) -> bool {
        now >= self.period_end
    }

    /// What it wanted, holds and saw.
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
            taken: self.taken,
            name: self.name.clone(),
            instance: self.instance.clone(),
            in_flight,
            requests,
            nodes: report.into_iter().map(Into::into).collect(),
        }
    }
}
