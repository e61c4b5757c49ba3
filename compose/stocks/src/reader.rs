//! Takes rows from the cache, or reads them by primary key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cache::RowCache;
use crate::freshness::Quotes;
use crate::rows::{Key, Row};
use crate::store::Source;
use crate::transaction::{Order, Refusal, Transaction};

/// Rows of one request, with numbers of cache hits and misses.
#[derive(Default)]
pub struct Items {
    pub rows: Vec<Row>,
    pub hits: usize,
    pub misses: usize,
    /// Age of each quote when it was read, on a node that moves them itself.
    pub quote_ages: Vec<Duration>,
}

/// One worker's connection.
pub struct Reader {
    source: Source,
    cache: Arc<RowCache>,
    quotes: Option<Arc<Quotes>>,
}

impl Reader {
    pub fn new(source: Source, cache: Arc<RowCache>, quotes: Option<Arc<Quotes>>) -> Self {
        Self {
            source,
            cache,
            quotes,
        }
    }

    /// Adds the rows of `keys` that exist to `items`, in that order.
    pub fn read(&mut self, keys: &[Key], items: &mut Items) -> Result<()> {
        if let Some(quotes) = &self.quotes {
            let now = Instant::now();
            let ages = keys.iter().filter_map(|key| match key {
                Key::Quote(stock) => quotes.read(*stock, now),
                _ => None,
            });
            items.quote_ages.extend(ages);
        }
        let (mut found, as_of) = self.cache.get(keys);
        let hits = found.iter().flatten().count();
        items.hits += hits;
        items.misses += keys.len() - hits;
        let trusts_all = self.source.tells_of_changes();
        let asked: Vec<usize> = (0..keys.len())
            .filter(|&i| found[i].is_none() || !(trusts_all || keys[i].is_immutable()))
            .collect();
        if !asked.is_empty() {
            let wanted: Vec<Key> = asked.iter().map(|&i| keys[i]).collect();
            let rows = self.source.fetch(&wanted)?;
            for (&i, row) in asked.iter().zip(rows) {
                found[i] = row;
            }
            let fresh = asked
                .iter()
                .filter_map(|&i| found[i].clone().map(|row| (keys[i], row)));
            self.cache.insert(fresh, as_of);
        }
        items.rows.extend(found.into_iter().flatten());
        Ok(())
    }

    /// The stocks an account holds, by the primary key's index.
    pub fn held_stocks(&mut self, account: u32) -> Result<Vec<u32>> {
        self.source.held_stocks(account)
    }

    /// Makes a purchase or sale at the present quote, on a master.
    pub fn transact(&mut self, order: &Order) -> Result<Result<Transaction, Refusal>> {
        self.source.transact(order)
    }
}
