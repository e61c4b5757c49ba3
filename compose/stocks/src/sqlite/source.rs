//! Reads and transactions of one worker.

use std::path::Path;

use anyhow::{Result, bail};
use rusqlite::{Connection, OptionalExtension};

use super::data;
use super::replication::Ledger;
use crate::rows::{Key, Row};
use crate::transaction::{Order, Refusal, Transaction};

/// A connection to read with and, where transactions are taken, what it takes to write.
pub struct Source {
    db: Connection,
    ledger: Option<Ledger>,
}

impl Source {
    pub fn open(path: &Path, ledger: Option<Ledger>) -> Result<Self> {
        let db = data::open_reader(path)?;
        db.set_prepared_statement_cache_capacity(16);
        Ok(Self { db, ledger })
    }

    pub fn fetch(&self, keys: &[Key]) -> rusqlite::Result<Vec<Option<Row>>> {
        // One read transaction: one snapshot, and one lock taken instead of one a row.
        let snapshot = self.db.unchecked_transaction()?;
        let rows: rusqlite::Result<_> = keys.iter().map(|&key| read_row(&snapshot, key)).collect();
        snapshot.finish()?;
        rows
    }

    pub fn held_stocks(&self, account: u32) -> rusqlite::Result<Vec<u32>> {
        let mut select = self
            .db
            .prepare_cached("SELECT stock_id FROM holdings WHERE account_id = ?1 LIMIT 1000")?;
        select.query_map([account], |row| row.get(0))?.collect()
    }

    pub fn transact(&self, order: &Order) -> Result<Result<Transaction, Refusal>> {
        match &self.ledger {
            Some(Ledger::Own(master)) => master.transact(order),
            Some(Ledger::Masters(link)) => link.transact(order),
            None => bail!("this node takes no transactions"),
        }
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
