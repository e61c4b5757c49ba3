//! Reads and age of each quote.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::seed::symbol;

/// Quotes of a node that moves them itself. Reading takes no lock.
pub struct Quotes {
    start: Instant,
    quotes: Vec<Quote>,
}

#[derive(Default)]
struct Quote {
    accesses: AtomicU64,
    /// Microseconds from the start to its last update.
    updated: AtomicU64,
}

impl Quotes {
    pub fn new(symbols: u32) -> Self {
        Self {
            start: Instant::now(),
            quotes: (0..symbols).map(|_| Quote::default()).collect(),
        }
    }

    /// Counts a reading, and tells how old the quote is; never updated, as old as the process.
    pub fn read(&self, stock: u32, now: Instant) -> Option<Duration> {
        let quote = self.quotes.get(stock as usize)?;
        quote.accesses.fetch_add(1, Ordering::Relaxed);
        Some(self.age(quote, now))
    }

    /// Takes an update in; returns how long after the last one it came, if there was one.
    pub fn updated(&self, stock: u32, now: Instant) -> Option<Duration> {
        let quote = self.quotes.get(stock as usize)?;
        let age = self.age(quote, now);
        let at = now.saturating_duration_since(self.start).as_micros();
        // 0 is never.
        let before = quote.updated.swap((at as u64).max(1), Ordering::Relaxed);
        (before > 0).then_some(age)
    }

    fn age(&self, quote: &Quote, now: Instant) -> Duration {
        let updated = Duration::from_micros(quote.updated.load(Ordering::Relaxed));
        now.saturating_duration_since(self.start)
            .saturating_sub(updated)
    }

    /// The list that an agent asks for; `periods` are the quotes' own.
    pub fn list(&self, periods: &[Duration], updates: u64) -> serde_json::Result<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct List {
            updates: u64,
            items: Vec<Item>,
        }
        #[derive(serde::Serialize)]
        struct Item {
            name: String,
            period_seconds: f64,
            accesses: u64,
        }
        let items = (0..).zip(&self.quotes).zip(periods);
        let items = items.map(|((stock, quote), period)| Item {
            name: symbol(stock),
            period_seconds: period.as_secs_f64(),
            accesses: quote.accesses.load(Ordering::Relaxed),
        });
        let items = items.collect();
        serde_json::to_vec(&List { updates, items })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_quote_ages_from_its_last_update() {
        let quotes = Quotes::new(2);
        let later = |seconds| quotes.start + Duration::from_secs(seconds);
        assert_eq!(quotes.read(1, later(3)), Some(Duration::from_secs(3)));
        assert_eq!(quotes.updated(1, later(4)), None);
        assert_eq!(quotes.read(1, later(9)), Some(Duration::from_secs(5)));
        assert_eq!(quotes.read(2, later(9)), None);
        assert_eq!(quotes.updated(1, later(9)), Some(Duration::from_secs(5)));
        let list = quotes.list(&[Duration::from_millis(500); 2], 1).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(list["items"][1]["accesses"], 2);
        assert_eq!(list["items"][0]["name"], "S0000");
        assert_eq!(list["items"][0]["period_seconds"], 0.5);
        assert_eq!(list["updates"], 1);
    }
}
