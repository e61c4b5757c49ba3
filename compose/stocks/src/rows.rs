//! One item is one row. `Reader` takes rows from the cache or reads them by primary key.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;

use crate::cache::RowCache;
use crate::seed;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Stock(u32),
    Quote(u32),
    /// Place in `quote_history`.
    Day(u64),
    Account(u32),
    /// Account and stock.
    Holding(u32, u32),
}

impl Key {
    /// Rows that never change once seeded.
    pub fn is_immutable(self) -> bool {
        matches!(self, Self::Stock(_) | Self::Day(_))
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "table", rename_all = "snake_case")]
pub enum Row {
    Stock {
        symbol: Arc<str>,
        name: Arc<str>,
        sector: u32,
        shares: i64,
    },
    Quote {
        price_cents: i64,
        change_cents: i64,
        updates: i64,
    },
    Day {
        open_cents: i64,
        close_cents: i64,
        volume: i64,
    },
    Account {
        account: u32,
        cash_cents: i64,
    },
    Holding {
        stock: u32,
        shares: i64,
    },
}

/// Rows of one request, and how many came from where.
#[derive(Default)]
pub struct Items {
    pub rows: Vec<Row>,
    pub hits: usize,
    pub misses: usize,
}

/// One worker's connection.
pub struct Reader {
    db: Connection,
    cache: Arc<RowCache>,
}

impl Reader {
    pub fn open(path: &Path, cache: Arc<RowCache>) -> Result<Self> {
        let db = seed::open_reader(path)?;
        db.set_prepared_statement_cache_capacity(16);
        Ok(Self { db, cache })
    }

    /// Adds the rows of `keys` that exist to `items`, in that order.
    pub fn read(&self, keys: &[Key], items: &mut Items) -> rusqlite::Result<()> {
        let (mut found, as_of) = self.cache.get(keys);
        let missing: Vec<usize> = (0..keys.len()).filter(|&i| found[i].is_none()).collect();
        items.hits += keys.len() - missing.len();
        items.misses += missing.len();
        if !missing.is_empty() {
            // One read transaction: one snapshot, and one lock taken instead of one a row.
            let snapshot = self.db.unchecked_transaction()?;
            for &i in &missing {
                found[i] = read_row(&snapshot, keys[i])?;
            }
            snapshot.finish()?;
            self.cache.insert(
                missing
                    .iter()
                    .filter_map(|&i| found[i].clone().map(|row| (keys[i], row))),
                as_of,
            );
        }
        items.rows.extend(found.into_iter().flatten());
        Ok(())
    }

    /// The stocks an account holds, by the primary key's index.
    pub fn held_stocks(&self, account: u32) -> rusqlite::Result<Vec<u32>> {
        let mut select = self
            .db
            .prepare_cached("SELECT stock_id FROM holdings WHERE account_id = ?1 LIMIT 1000")?;
        select.query_map([account], |row| row.get(0))?.collect()
    }
}

fn read_row(db: &Connection, key: Key) -> rusqlite::Result<Option<Row>> {
    match key {
        Key::Stock(id) => db
            .prepare_cached("SELECT symbol, name, sector, shares FROM stocks WHERE id = ?1")?
            .query_row([id], |row| {
                Ok(Row::Stock {
                    symbol: row.get(0)?,
                    name: row.get(1)?,
                    sector: row.get(2)?,
                    shares: row.get(3)?,
                })
            }),
        Key::Quote(id) => read_quote(db, id),
        Key::Day(id) => db
            .prepare_cached(
                "SELECT open_cents, close_cents, volume FROM quote_history WHERE id = ?1",
            )?
            .query_row([id as i64], |row| {
                Ok(Row::Day {
                    open_cents: row.get(0)?,
                    close_cents: row.get(1)?,
                    volume: row.get(2)?,
                })
            }),
        Key::Account(id) => db
            .prepare_cached("SELECT cash_cents FROM accounts WHERE id = ?1")?
            .query_row([id], |row| {
                Ok(Row::Account {
                    account: id,
                    cash_cents: row.get(0)?,
                })
            }),
        Key::Holding(account, stock) => db
            .prepare_cached("SELECT shares FROM holdings WHERE account_id = ?1 AND stock_id = ?2")?
            .query_row([account, stock], |row| {
                Ok(Row::Holding {
                    stock,
                    shares: row.get(0)?,
                })
            }),
    }
    .optional()
}

pub fn read_quote(db: &Connection, stock: u32) -> rusqlite::Result<Row> {
    db.prepare_cached("SELECT price_cents, change_cents, updates FROM quotes WHERE stock_id = ?1")?
        .query_row([stock], |row| {
            Ok(Row::Quote {
                price_cents: row.get(0)?,
                change_cents: row.get(1)?,
                updates: row.get(2)?,
            })
        })
}
