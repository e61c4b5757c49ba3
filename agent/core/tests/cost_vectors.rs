//! `vectors/costs.json`: counted and learned costs of requests; Lua's must be the same.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test cost_vectors` writes it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::dispatch::Costs;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use vectors::compare;

#[test]
fn costs_match_vectors() {
    let mut random = SmallRng::seed_from_u64(12);
    let mut cases = Vec::new();
    for (default, most) in [
        (1.0, None),
        (80.0, None),
        (80.0, Some(5000.0)),
        (80.0, Some(1.0)),
    ] {
        let mut costs = Costs::new(default, 3, most);
        let mut steps: Vec<Value> = Vec::new();
        for _ in 0..60 {
            let route = random.random_range(0..5);
            let route = (route < 4).then(|| format!("/{route}"));
            match random.random_range(0..3) {
                0 => {
                    let cost = 10f64.powi(random.random_range(-1..10));
                    steps.push(json!(["told", cost, costs.told(cost)]));
                }
                1 => {
                    let items = f64::from(random.random_range(0..3000_u32));
                    costs.learn(route.as_deref(), items);
                    steps.push(json!(["learn", route, items]));
                }
                _ => {
                    let route = route.unwrap_or_default();
                    let cost = costs.expected(&route);
                    steps.push(json!(["expected", route, cost]));
                }
            }
        }
        cases.push(json!({"default": default, "most": most, "routes": 3, "steps": steps}));
    }
    let what = "what requests count, in items: [told, cost told, cost counted], [learn, route, items that the answer tells], [expected, route, cost]";
    compare("costs.json", what, cases);
}

#[test]
fn stated_costs_do_not_raise_their_limit() {
    let mut costs = Costs::new(80.0, 1000, None);
    for _ in 0..1000 {
        assert_eq!(costs.told(1e9), 800.0);
        assert!(costs.told(f64::NAN).is_nan());
    }
    // Answers do.
    for _ in 0..1000 {
        costs.learn(None, 200.0);
    }
    assert!((costs.told(1e9) - 2000.0).abs() < 1.0);
}
