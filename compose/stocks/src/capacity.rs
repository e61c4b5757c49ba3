//! Capacity of a node: `workers / (process + (1 - hit ratio) * read) / slowdown` items/s, where
//! price updates leave it the workers.

use anyhow::Result;

use crate::cli::{CapacityArgs, ServiceArgs, in_range};

/// Items/s at a given hit ratio, of so many workers.
pub fn items_per_second(service: &ServiceArgs, workers: f64, hit_ratio: f64) -> f64 {
    let per_item = service.process_latency.as_secs_f64()
        + (1.0 - hit_ratio) * service.read_latency.as_secs_f64();
    workers / per_item / service.slowdown
}

/// Share of the rows in use that the cache holds once it is warm, with every stock as likely as
/// any other. A request reads a stock, its quote and the newest history rows, so the rows in use
/// of a stock are as many as a request asks for.
pub fn expected_hit_ratio(cache_rows: usize, symbols: u32, rows_per_stock: u32, nodes: u32) -> f64 {
    let in_use = f64::from(symbols) * f64::from(rows_per_stock) / f64::from(nodes);
    (cache_rows as f64 / in_use).min(1.0)
}

/// `stocks capacity`: prints one number.
pub fn run(args: &CapacityArgs) -> Result<()> {
    args.serve.validate()?;
    in_range("--nodes-sharing", f64::from(args.nodes_sharing), 1.0, 1e4)?;
    in_range("--items", f64::from(args.items), 1.0, 1000.0)?;
    let hit_ratio = match args.hit_ratio {
        Some(ratio) => {
            in_range("--hit-ratio", ratio, 0.0, 1.0)?;
            ratio
        }
        None => expected_hit_ratio(
            args.serve.cache_rows,
            args.serve.symbols,
            args.items.min(args.serve.history + 2),
            args.nodes_sharing,
        ),
    };
    let service = &args.serve.service;
    let workers = service.workers as f64 - args.serve.updating_workers();
    println!("{:.1}", items_per_second(service, workers, hit_ratio));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn follows_the_formula() {
        let service = ServiceArgs {
            workers: 8,
            process_latency: Duration::from_micros(800),
            read_latency: Duration::from_micros(250),
            update_latency: Duration::ZERO,
            slowdown: 1.0,
        };
        assert!((items_per_second(&service, 8.0, 1.0) - 10_000.0).abs() < 1e-6);
        let slow = ServiceArgs {
            slowdown: 5.0,
            ..service
        };
        assert!((items_per_second(&slow, 8.0, 0.2) - 1600.0).abs() < 1e-6);
    }

    #[test]
    fn affinity_raises_the_hit_ratio() {
        assert!((expected_hit_ratio(60_000, 3000, 80, 1) - 0.25).abs() < 1e-9);
        assert_eq!(expected_hit_ratio(60_000, 3000, 80, 5), 1.0);
    }
}
