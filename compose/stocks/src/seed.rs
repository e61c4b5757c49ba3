//! Deterministic data: the same rows for the same dimensions, whatever database takes them.

use rand::rngs::SmallRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};

use crate::catalog::Dimensions;

const SECTORS: u32 = 20;

/// Makes the rows of one stock after another, then of one account after another.
pub struct Seed {
    dimensions: Dimensions,
    rng: SmallRng,
}

pub struct Stock {
    pub sector: u32,
    pub shares: i64,
    /// The opening quote.
    pub price_cents: i64,
    /// Newest first.
    pub days: Vec<Day>,
}

pub struct Day {
    /// Place in `quote_history`.
    pub id: i64,
    pub open_cents: i64,
    pub close_cents: i64,
    pub volume: i64,
}

pub struct Account {
    pub cash_cents: i64,
    /// Stock and shares.
    pub holdings: Vec<(i64, i64)>,
}

impl Seed {
    pub fn new(dimensions: Dimensions) -> Self {
        let rng = SmallRng::seed_from_u64(dimensions.seed);
        Self { dimensions, rng }
    }

    /// The next stock, which is `id`.
    pub fn stock(&mut self, id: u32) -> Stock {
        let rng = &mut self.rng;
        let shares = rng.random_range(1_000_000..1_000_000_000i64);
        let price_cents: i64 = rng.random_range(500..50_000);
        let history = self.dimensions.history;
        let mut close = price_cents;
        let days = (0..history)
            .map(|back| {
                let open = (close + rng.random_range(-close / 50..=close / 50)).max(100);
                let day = Day {
                    id: (u64::from(id) * u64::from(history) + u64::from(back)) as i64,
                    open_cents: open,
                    close_cents: close,
                    volume: rng.random_range(1_000..1_000_000),
                };
                close = open;
                day
            })
            .collect();
        Stock {
            sector: id % SECTORS,
            shares,
            price_cents,
            days,
        }
    }

    /// The next account.
    pub fn account(&mut self) -> Account {
        let rng = &mut self.rng;
        let symbols = self.dimensions.symbols as usize;
        let cash_cents = rng.random_range(1_000_000..1_000_000_000i64);
        let held = rng.random_range(4..=12).min(symbols);
        let holdings = sample(rng, symbols, held)
            .into_iter()
            .map(|stock| (stock as i64, rng.random_range(10..10_000)))
            .collect();
        Account {
            cash_cents,
            holdings,
        }
    }
}

/// `S0000` for stock 0.
pub fn symbol(id: u32) -> String {
    format!("S{id:04}")
}

/// Name of the stock's company.
pub fn company(id: u32) -> String {
    format!("Company {id}")
}
