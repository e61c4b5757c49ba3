//! Admission of queries to a node's partitions, within its bound.

use plimsoll_core::{Cost, dispatch::Costs};

/// Minimum cost of a query, and that of an unknown one, in rows.
const FIRST_COST: f64 = 1.0;
/// Maximum queries whose cost is remembered.
const MAX_KNOWN: usize = 1000;

/// Running and waiting queries of one service, with costs learned from the rows of earlier ones.
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
    /// Admits a query and returns its cost, at most `limit` rows, to be returned with [`release`](Self::release).
    /// `None` if the bound has no room for it. A query larger than the whole bound is admitted alone, or it would
    /// never run.
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

    /// Returns the cost of an admitted query that has ended.
    pub fn release(&mut self, cost: Cost) {
        self.queries = self.queries.saturating_sub(1);
        // Sums of fractions drift, but an empty node has no backlog.
        self.backlog = match self.queries {
            0 => 0.0,
            _ => self.backlog - cost.get(),
        };
    }

    /// Learns the cost of a complete answer and returns it: its rows, at least 1.
    pub fn learn(&mut self, query: &str, rows: u64) -> Cost {
        let cost = (rows as f64).max(FIRST_COST);
        self.costs.learn(Some(query), cost);
        Cost(cost)
    }

    /// Cost of the admitted queries that have not ended, in rows.
    pub fn backlog(&self) -> Cost {
        Cost(self.backlog)
    }

    /// Admitted queries that have not ended.
    pub fn queries(&self) -> u64 {
        self.queries
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn queries_are_admitted_up_to_the_bound() {
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
    fn query_cost_is_learned_from_earlier_rows() {
        let mut admission = Admission::default();
        assert_eq!(admission.learn("large", 1000), Cost(1000.0));
        assert_eq!(admission.learn("none", 0), Cost(1.0));
        let bound = Cost(1001.0);
        assert_eq!(admission.take("large", None, bound), Some(Cost(1000.0)));
        assert_eq!(admission.take("none", None, bound), Some(Cost(1.0)));
        assert_eq!(admission.take("none", None, bound), None);
        admission.release(Cost(1.0));
        // A query cannot cost more rows than its limit.
        assert_eq!(admission.take("large", Some(1), bound), Some(Cost(1.0)));
    }

    #[test]
    fn query_larger_than_the_bound_is_admitted_alone() {
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
