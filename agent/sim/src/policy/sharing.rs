//! A model of the sharing of a bound by the Redis function library: shares by demand, which grow only by what others
//! have given up (`lua/redis/plimsoll/4-shares.lua`).

/// Part of a bound that is shared evenly, so that dispatchers without demand can begin.
const EVEN: f64 = 0.05;

/// Shares by node and dispatcher.
pub struct Sharing {
    demand: Vec<Vec<f64>>,
    held: Vec<Vec<f64>>,
}

impl Sharing {
    pub fn new(nodes: usize, dispatchers: usize) -> Self {
        Sharing {
            demand: vec![vec![0.0; dispatchers]; nodes],
            held: vec![vec![0.0; dispatchers]; nodes],
        }
    }

    /// Share of a node's bound for a dispatcher that reports its demand and what it holds.
    pub fn grant(
        &mut self,
        node: usize,
        dispatcher: usize,
        demand: f64,
        held: f64,
        bound: f64,
    ) -> f64 {
        let (demands, holds) = (&mut self.demand[node], &mut self.held[node]);
        demands[dispatcher] = demand;
        holds[dispatcher] = held;
        let count = holds.len() as f64;
        if count == 1.0 {
            return bound;
        }
        let all: f64 = demands.iter().sum();
        let by_demand = if all > 0.0 { demand / all } else { 1.0 / count };
        let wanted = bound * (EVEN / count + (1.0 - EVEN) * by_demand);
        let others: f64 = holds.iter().sum::<f64>() - held;
        let granted = wanted.min((bound - others).max(0.0));
        holds[dispatcher] = held.max(granted);
        granted
    }
}
