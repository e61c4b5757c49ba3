//! Estimates of a request's cost: stated by the request, or learned per route from earlier responses.

use std::collections::HashMap;

use super::MAX_COST;

/// Weight of the newest response in its route's cost.
const SMOOTHING: f64 = 0.1;
/// Minimum weight of the newest response in the mean of all routes; the first 100 are averaged evenly.
const MEAN_SMOOTHING: f64 = 0.01;
/// Maximum cost that a request may state, as a multiple of the mean cost, if no maximum is configured.
const MAX_MEANS: f64 = 10.0;

/// Mean cost per route and of all routes, in items. Learned from responses only: a stated cost may come from
/// the client.
#[derive(Clone, Debug)]
pub struct Costs {
    default: f64,
    max_told: Option<f64>,
    max_routes: usize,
    routes: HashMap<String, f64>,
    mean: f64,
    answers: f64,
}

impl Costs {
    /// Creates the estimates. `default` is the cost of unknown routes, and the mean before the first response. When
    /// `max_routes` routes are known and another appears, all are discarded. A stated cost is limited to `max_told`,
    /// or to 10 times the mean if that is `None`.
    pub fn new(default: f64, max_routes: usize, max_told: Option<f64>) -> Self {
        Costs {
            default,
            max_told,
            max_routes,
            routes: HashMap::new(),
            mean: default,
            answers: 0.0,
        }
    }

    /// Cost that is counted for a request that states this cost, in items: at most the limit.
    pub fn told(&self, cost: f64) -> f64 {
        let most = self.max_told.unwrap_or(MAX_MEANS * self.mean);
        // NaN stays NaN.
        if cost > most { most } else { cost }
    }

    /// Expected cost of a route's next request, in items.
    pub fn expected(&self, route: &str) -> f64 {
        self.routes.get(route).copied().unwrap_or(self.default)
    }

    /// Learns from a response whose request touched this many items; negative and non-finite values are ignored.
    pub fn learn(&mut self, route: Option<&str>, items: f64) {
        if !(0.0..=f64::MAX).contains(&items) {
            return;
        }
        let items = items.min(MAX_COST);
        self.answers += 1.0;
        self.mean += MEAN_SMOOTHING.max(1.0 / self.answers) * (items - self.mean);
        let Some(route) = route else {
            return;
        };
        if let Some(held) = self.routes.get_mut(route) {
            *held += SMOOTHING * (items - *held);
            return;
        }
        if self.routes.len() >= self.max_routes {
            // Clients name routes, so a flood of new ones must not use up memory. Routes in use return at once.
            self.routes.clear();
        }
        self.routes.insert(route.to_owned(), items);
    }
}
