//! Periodic price updates: each stock has a period of its own; those due together are one commit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::catalog::Dimensions;
use crate::metrics::Metrics;
use crate::store::PriceUpdate;

/// How long updates are gathered. Shorter periods than this are still kept on average.
const BATCH: Duration = Duration::from_millis(200);

/// Runs until the process ends; an error means that the database cannot be written.
pub fn run(
    mut update: PriceUpdate,
    metrics: &Metrics,
    dimensions: Dimensions,
    periods: (Duration, Duration),
) -> Result<()> {
    let Dimensions { seed, symbols, .. } = dimensions;
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x7072_6963_6573);
    let start = Instant::now();
    let mut due: BinaryHeap<Reverse<(Instant, u32, Duration)>> = (0..symbols)
        .map(|stock| {
            let period = rng.random_range(periods.0..=periods.1);
            Reverse((start + period.mul_f64(rng.random()), stock, period))
        })
        .collect();
    let batch = BATCH.min(periods.0);
    let mut moves = Vec::new();
    loop {
        std::thread::sleep(batch);
        let now = Instant::now();
        while let Some(&Reverse((at, stock, period))) = due.peek() {
            if at > now {
                break;
            }
            due.pop();
            // A node that fell behind skips updates rather than making them in a burst.
            due.push(Reverse(((at + period).max(now), stock, period)));
            moves.push((stock, rng.random_range(-100..=100)));
        }
        if !moves.is_empty() {
            metrics.price_updates.inc_by(update(&moves)? as u64);
            moves.clear();
        }
    }
}
