//! What a request will cost, learned per route from what earlier ones did.

use std::collections::HashMap;

use super::MOST_COST;

/// Weight of the newest answer.
const SMOOTHING: f64 = 0.1;

/// Mean cost by route.
#[derive(Clone, Debug)]
pub struct Costs {
    default: f64,
    most: usize,
    routes: HashMap<String, f64>,
}

impl Costs {
    /// `default` is for routes never seen; over `most` of them, all are forgotten.
    pub fn new(default: f64, most: usize) -> Self {
        Costs {
            default,
            most,
            routes: HashMap::new(),
        }
    }

    /// The cost of a route's next request.
    pub fn expected(&self, route: &str) -> f64 {
        self.routes.get(route).copied().unwrap_or(self.default)
    }

    /// Takes in what an answer's request touched.
    pub fn learn(&mut self, route: &str, items: f64) {
        if !(0.0..=f64::MAX).contains(&items) {
            return;
        }
        let items = items.min(MOST_COST);
        if let Some(held) = self.routes.get_mut(route) {
            *held += SMOOTHING * (items - *held);
            return;
        }
        if self.routes.len() >= self.most {
            // Clients name routes: a flood of new ones must not grow memory. The used ones are back at once.
            self.routes.clear();
        }
        self.routes.insert(route.to_owned(), items);
    }
}
