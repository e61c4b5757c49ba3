//! Demand per object set, in bounded memory.

use std::collections::BTreeMap;

use super::{MAX_NAMED, NameError, ObjectSet, RESTS, SetLoad, check_name, rest_of};

/// Minimum weight of the newest period; the first five are averaged evenly.
const SMOOTHING: f64 = 0.2;
/// Maximum share of the names that is kept after a period, the hottest, so that there is room for new ones.
const KEPT: f64 = 0.75;

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    smoothed: f64,
    /// Variance of `smoothed`.
    noise: f64,
    now: f64,
    /// Sum of the squared costs, which is the variance of their sum for Poisson arrivals.
    squares: f64,
    periods: u32,
}

impl Load {
    fn add(&mut self, cost: f64) {
        self.now += cost;
        self.squares += cost * cost;
    }

    fn end_period(&mut self) {
        self.periods = self.periods.saturating_add(1);
        let weight = SMOOTHING.max(1.0 / f64::from(self.periods));
        self.smoothed += weight * (self.now - self.smoothed);
        let kept = (1.0 - weight) * (1.0 - weight);
        self.noise = kept * self.noise + weight * weight * self.squares;
        (self.now, self.squares) = (0.0, 0.0);
    }
}

/// Demand of requests per object set.
///
/// Middle-R counts the running and waiting transactions of an object set, times their mean duration. Here it is the
/// cost of the requests that arrived in a period, including refused and waiting ones: proportional to the paper's
/// measure in normal operation, and the true demand under overload.
#[derive(Clone, Debug)]
pub struct SetLoads {
    names: BTreeMap<Box<str>, Load>,
    rests: Vec<Load>,
    most: usize,
    forgotten: u64,
}

impl Default for SetLoads {
    fn default() -> Self {
        SetLoads::new(MAX_NAMED)
    }
}

impl SetLoads {
    /// Creates an empty count. At most `most` names are counted individually; others count towards their rests.
    pub fn new(most: usize) -> Self {
        SetLoads {
            names: BTreeMap::new(),
            rests: vec![Load::default(); usize::from(RESTS)],
            most,
            forgotten: 0,
        }
    }

    /// Counts a request of this cost for an object set. An invalid name is an error and is not counted.
    pub fn came(&mut self, name: &str, cost: f64) -> Result<(), NameError> {
        check_name(name)?;
        let cost = super::assign::usable(cost);
        if let Some(load) = self.names.get_mut(name) {
            load.add(cost);
        } else if self.names.len() < self.most {
            let mut load = Load::default();
            load.add(cost);
            self.names.insert(name.into(), load);
        } else {
            self.rests[usize::from(rest_of(name))].add(cost);
        }
        Ok(())
    }

    /// Counts requests of this total cost, each of about the mean cost. A name without room counts towards its rest.
    pub fn told(&mut self, set: &ObjectSet, cost: f64, mean_cost: f64) {
        let cost = super::assign::usable(cost);
        let squares = cost * super::assign::usable(mean_cost);
        let load = match set {
            ObjectSet::Rest(rest) => self.rests.get_mut(usize::from(*rest)),
            ObjectSet::Named(name) => {
                if self.names.len() < self.most && !self.names.contains_key(name) {
                    self.names.insert(name.clone(), Load::default());
                }
                let rest = &mut self.rests[usize::from(rest_of(name))];
                Some(self.names.get_mut(name).unwrap_or(rest))
            }
        };
        if let Some(load) = load {
            load.now += cost;
            load.squares += squares;
        }
    }

    /// Ends a period: smooths the loads, and drops names without demand, and the coldest ones if room gets short.
    pub fn end_period(&mut self) {
        self.rests.iter_mut().for_each(Load::end_period);
        self.names.values_mut().for_each(Load::end_period);
        let total: f64 = self.names.values().map(|load| load.smoothed).sum();
        let before = self.names.len();
        self.names.retain(|_, load| load.smoothed > 1e-9 * total);
        let most = (KEPT * self.most as f64) as usize;
        if self.names.len() > most {
            let mut loads: Vec<f64> = self.names.values().map(|load| load.smoothed).collect();
            let (_, least, _) = loads.select_nth_unstable_by(most, |a, b| b.total_cmp(a));
            let least = *least;
            // Names as hot as the first one beyond the limit are dropped too.
            self.names.retain(|_, load| load.smoothed > least);
        }
        self.forgotten += (before - self.names.len()) as u64;
    }

    /// Cumulative number of names dropped from individual counting.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Smoothed loads, in cost per period, of all sets that have any.
    pub fn loads(&self) -> Vec<SetLoad> {
        let rests = self.rests.iter().zip(0..).map(|(load, rest)| SetLoad {
            set: ObjectSet::Rest(rest),
            load: load.smoothed,
            noise: load.noise,
        });
        let names = self.names.iter().map(|(name, load)| SetLoad {
            set: ObjectSet::Named(name.clone()),
            load: load.smoothed,
            noise: load.noise,
        });
        rests.chain(names).filter(|set| set.load > 0.0).collect()
    }
}
