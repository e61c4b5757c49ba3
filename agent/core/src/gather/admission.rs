//! Which queries a node's partitions take: those that its bound has room for.

use crate::{Cost, dispatch::Costs};

/// Of a query that was never asked.
const FIRST_COST: f64 = 1.0;
/// Queries whose cost is known.
const MAX_KNOWN: usize = 1000;

/// The queries that run or wait on behalf of one service, at costs learned from the rows of earlier ones.
#[derive(Clone, Debug)]
pub struct Admission {
    costs: Costs,
    backlog: f64,
    queries: u64,
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            costs: Costs::new(FIRST_COST, MAX_KNOWN, None),
            backlog: 0.0,
            queries: 0,
        }
    }
}

impl Admission {
    /// At which cost a query is taken, to be given back with [`release`](Self::release); `None` where that is
    /// more than the bound has room for. One that is larger than the whole bound is taken alone, or it would
    /// never be.
    pub fn take(&mut self, query: &str, limit: Option<u64>, bound: Cost) -> Option<Cost> {
        let most = limit.map_or(f64::INFINITY, |limit| limit as f64);
        let cost = self.costs.expected(query).min(most).max(FIRST_COST);
        if self.queries > 0 && self.backlog + cost > bound.get() {
            return None;
        }
        self.backlog += cost;
        self.queries += 1;
        Some(Cost(cost))
    }

    /// A query that was taken has ended.
    pub fn release(&mut self, cost: Cost) {
        self.queries = self.queries.saturating_sub(1);
        // Sums of fractions drift; an empty node has no backlog.
        self.backlog = match self.queries {
            0 => 0.0,
            _ => self.backlog - cost.get(),
        };
    }

    /// What a whole answer cost: its rows, and 1 where there are none.
    pub fn learn(&mut self, query: &str, rows: u64) -> Cost {
        let cost = (rows as f64).max(FIRST_COST);
        self.costs.learn(Some(query), cost);
        Cost(cost)
    }

    /// Cost that was taken and not given back.
    pub fn backlog(&self) -> Cost {
        Cost(self.backlog)
    }

    /// Queries that were taken and have not ended.
    pub fn queries(&self) -> u64 {
        self.queries
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn queries_are_taken_up_to_the_bound() {
        let mut admission = Admission::default();
        let take = |it: &mut Admission| it.take("q", None, Cost(2.0));
        let costs = [take(&mut admission), take(&mut admission)];
        assert_eq!(costs, [Some(Cost(1.0)), Some(Cost(1.0))]);
        assert_eq!(
            (take(&mut admission), admission.backlog()),
            (None, Cost(2.0))
        );
        admission.release(Cost(1.0));
        assert_eq!(take(&mut admission), Some(Cost(1.0)));
        assert_eq!(admission.queries(), 2);
    }

    #[test]
    fn a_query_costs_the_rows_of_those_before_it() {
        let mut admission = Admission::default();
        assert_eq!(admission.learn("large", 1000), Cost(1000.0));
        assert_eq!(admission.learn("none", 0), Cost(1.0));
        let bound = Cost(1001.0);
        assert_eq!(admission.take("large", None, bound), Some(Cost(1000.0)));
        assert_eq!(admission.take("none", None, bound), Some(Cost(1.0)));
        assert_eq!(admission.take("none", None, bound), None);
        admission.release(Cost(1.0));
        // Its limit is the most that it can cost.
        assert_eq!(admission.take("large", Some(1), bound), Some(Cost(1.0)));
    }

    #[test]
    fn one_that_is_larger_than_the_bound_is_taken_alone() {
        let mut admission = Admission::default();
        admission.learn("large", 1000);
        let taken = admission.take("large", None, Cost(10.0)).unwrap();
        assert_eq!(admission.take("small", None, Cost(10.0)), None);
        admission.release(taken);
        assert_eq!(admission.backlog(), Cost(0.0));
        assert!(admission.take("small", None, Cost(10.0)).is_some());
        assert_eq!(admission.take("large", None, Cost(10.0)), None);
    }
}
