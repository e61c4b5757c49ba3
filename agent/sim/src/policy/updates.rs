//! Update periods of a node's temporal data, by the code of `plimsoll_core::freshness`.

use plimsoll_core::{
    Cost, Decision, Observation, Seconds,
    freshness::{FreshnessSettings, Pressure, UpdatePeriods},
};

use crate::scenario::{Scenario, UpdateLoad, Updates};

/// Update periods of one node.
pub struct Updating {
    settings: Updates,
    names: Vec<String>,
    /// Share of each item in all reads, by Zipf's law.
    shares: Vec<f64>,
    periods: UpdatePeriods,
    load: UpdateLoad,
}

impl Updating {
    /// `None` if the scenario has no updates.
    pub fn new(scenario: &Scenario) -> Option<Self> {
        let settings = scenario.updates?;
        let weights = (1..=settings.items).map(|rank| f64::from(rank).powf(-settings.skew));
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        // Cost of an update relative to an item of a request, by time.
        let item_seconds = scenario.nodes.first()?.item_seconds;
        let mut periods = UpdatePeriods::new(FreshnessSettings {
            longest: Seconds(settings.longest),
            update_cost: Cost(settings.update_seconds / item_seconds),
        });
        let names: Vec<String> = (0..settings.items).map(|n| format!("I{n:05}")).collect();
        for name in &names {
            periods.declare(name, Seconds(settings.period)).ok()?;
        }
        Some(Updating {
            settings,
            names,
            shares: weights.into_iter().map(|weight| weight / sum).collect(),
            periods,
            load: settings.load(),
        })
    }

    /// Adapts the periods after a controller's step.
    pub fn observed(&mut self, seen: &Observation, decision: &Decision) {
        // Reads are not drawn for each request; their mean is used.
        let reads = seen.delays.count() as f64 * self.settings.reads;
        for (name, share) in self.names.iter().zip(&self.shares) {
            self.periods.accessed(name, reads * share);
        }
        let work = seen.finished_cost.map_or(0.0, Cost::get) / seen.period.get();
        let pressure = Pressure::of(decision);
        if self.periods.step(seen.period, pressure, Cost(work)) {
            self.load = self.loaded();
        }
    }

    pub fn load(&self) -> UpdateLoad {
        self.load
    }

    fn loaded(&self) -> UpdateLoad {
        let own = self.settings.period;
        let period = |name: &String| self.periods.period(name).map_or(own, Seconds::get);
        let periods: Vec<f64> = self.names.iter().map(period).collect();
        UpdateLoad {
            per_second: self.periods.updates_per_second().0,
            age: periods
                .iter()
                .zip(&self.shares)
                .map(|(period, share)| share * period / 2.0)
                .sum(),
            longest: periods.iter().copied().fold(0.0, f64::max),
        }
    }
}
