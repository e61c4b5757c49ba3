//! What a request will cost: what it tells, or learned per route from what earlier ones did.

use std::collections::HashMap;

use super::MAX_COST;

/// Weight of the newest answer in its route's cost.
const SMOOTHING: f64 = 0.1;
/// And in the mean of all, once there are so many that it is no more than each other's.
const MEAN_SMOOTHING: f64 = 0.01;
/// The most a request may tell, in mean costs.
const MAX_MEANS: f64 = 10.0;

/// Mean cost by route, and of all. Only answers are learned from: what a request tells, a client may have
/// written.
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
    /// `default` is for routes never seen; over `max_routes` of them, all are forgotten. A request tells no
    /// more than `max_told`, or than 10 times the mean, which is `default` before the first answer.
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

    /// What a request counts that tells this cost.
    pub fn told(&self, cost: f64) -> f64 {
        let most = self.max_told.unwrap_or(MAX_MEANS * self.mean);
        // What is no number stays none.
        if cost > most { most } else { cost }
    }

    /// The cost of a route's next request.
    pub fn expected(&self, route: &str) -> f64 {
        self.routes.get(route).copied().unwrap_or(self.default)
    }

    /// Takes in what an answer's request touched.
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
            // Clients name routes: a flood of new ones must not grow memory. The used ones are back at once.
            self.routes.clear();
        }
        self.routes.insert(route.to_owned(), items);
    }
}
