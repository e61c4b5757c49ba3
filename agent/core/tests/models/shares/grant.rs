//! The sharing of one node's bound by Redis' function library, `lua/redis/plimsoll/4-shares.lua`: the same arithmetic
//! in the same order. Only the library has it; `vectors/shares.json` pins this copy to it.

use super::{Config, Mend};

pub const DISPATCHERS: usize = 2;

const FLOOR_DEMAND: f64 = 0.05;
const MAX_TIMES_OTHERS: f64 = 4.0;

/// State of a dispatcher at the node, as kept in Redis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Cost that the others must leave to it.
    pub held: f64,
    pub wish: f64,
}

/// State of the node, as kept in Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub bound: f64,
    /// Mean cost of a request; 0 for shares that are no whole requests.
    pub mean_cost: f64,
    pub kept: [Option<Kept>; DISPATCHERS],
}

/// A share in whole requests. `dither` is within 0..1.
fn in_requests(wanted: f64, free: f64, mean_cost: f64, dither: f64) -> f64 {
    let most = wanted.min(free);
    if mean_cost <= 1e-9 * most || most < mean_cost {
        return most;
    }
    let whole_ones = (wanted / mean_cost + dither).floor();
    let whole_ones = whole_ones.min((free / mean_cost + 1e-9).floor());
    (whole_ones * mean_cost).min(free)
}

impl Node {
    /// Answers a dispatcher that tells its demand, and the most that it may have in flight until it hears the answer.
    pub fn grant(
        &mut self,
        number: usize,
        demand: f64,
        told: f64,
        dither: f64,
        config: &Config,
    ) -> f64 {
        let own = self.kept[number];
        let held = own.map_or(0.0, |own| own.held);
        let others = self.kept.iter().enumerate();
        let others = others.filter(|(other, _)| *other != number);
        let (mut taken, mut sum, mut count) = (0.0, 0.0, 1.0);
        for other in others.filter_map(|(_, other)| *other) {
            (taken, sum, count) = (taken + other.held, sum + other.wish, count + 1.0);
        }
        let demand = demand.min(self.bound.max(MAX_TIMES_OTHERS * sum));
        let sum = sum + demand;
        let floor = FLOOR_DEMAND * sum.max(self.bound).max(1e-9) / count;
        let mut wanted = self.bound * (demand + floor) / (sum + floor * count);
        let mut free = (self.bound - taken).max(0.0);
        if own.is_none() {
            wanted = wanted.min(free / 2.0);
        }
        if config.lacks(Mend::OnlyWhatIsFree) {
            free = self.bound;
        }
        let granted = match count > 1.0 {
            true => in_requests(wanted, free, self.mean_cost, dither),
            false => wanted.min(free),
        };
        let mut kept = told.min(held).max(granted);
        if config.lacks(Mend::HeldUntilHeard) {
            kept = granted;
        }
        self.kept[number] = Some(Kept {
            held: kept,
            wish: demand,
        });
        granted
    }
}
