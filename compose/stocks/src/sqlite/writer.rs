//! The one connection that writes. Every change goes to SQLite first and to the cache after the
//! commit, both under the writer's lock.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use crate::cache::RowCache;
use crate::catalog::Dimensions;
use crate::rows::{Key, Row};
use crate::sqlite::source::read_quote;
use crate::transaction::{Order, Refusal, Transaction};

/// Which run of transactions the database follows, and how far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub lineage: String,
    pub sequence: u64,
}

pub struct Writer {
    db: Connection,
    cache: Arc<RowCache>,
    pub path: PathBuf,
    pub dimensions: Dimensions,
    pub position: Position,
}

/// Shared between workers, price updates and replication.
pub struct SharedWriter(Mutex<Writer>);

impl SharedWriter {
    pub fn new(writer: Writer) -> Self {
        Self(Mutex::new(writer))
    }

    pub fn lock(&self) -> MutexGuard<'_, Writer> {
        // A panicked holder's SQLite transaction was rolled back when it was dropped.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    pub fn open(
        db: Connection,
        path: PathBuf,
        dimensions: Dimensions,
        cache: Arc<RowCache>,
    ) -> Result<Self> {
        let position = db.query_row(
            "SELECT lineage, sequence FROM replication_state",
            [],
            |row| {
                Ok(Position {
                    lineage: row.get(0)?,
                    sequence: row.get::<_, i64>(1)? as u64,
                })
            },
        )?;
        Ok(Self {
            db,
            cache,
            path,
            dimensions,
            position,
        })
    }

    /// Decides, on a master, what an order at the present quote changes.
    pub fn plan(&self, order: &Order) -> rusqlite::Result<Result<Transaction, Refusal>> {
        let (account, stock) = (order.account, order.stock);
        let Some(cash): Option<i64> = self
            .db
            .prepare_cached("SELECT cash_cents FROM accounts WHERE id = ?1")?
            .query_row([account], |row| row.get(0))
            .optional()?
        else {
            return Ok(Err(Refusal::UnknownAccount));
        };
        let held: i64 = self
            .db
            .prepare_cached("SELECT shares FROM holdings WHERE account_id = ?1 AND stock_id = ?2")?
            .query_row([account, stock], |row| row.get(0))
            .optional()?
            .unwrap_or(0);
        let Row::Quote { price_cents, .. } = read_quote(&self.db, stock)? else {
            return Err(rusqlite::Error::QueryReturnedNoRows);
        };
        Ok(order.at(self.position.sequence + 1, price_cents, cash, held))
    }

    /// Commits the next transaction of the lineage. Order and trade carry its sequence number.
    pub fn apply(&mut self, t: &Transaction) -> Result<()> {
        if t.sequence != self.position.sequence + 1 {
            bail!(
                "transaction {} does not follow {}",
                t.sequence,
                self.position.sequence
            );
        }
        let id = t.sequence as i64;
        let tx = self.db.transaction()?;
        tx.prepare_cached("UPDATE accounts SET cash_cents = ?2 WHERE id = ?1")?
            .execute(params![t.account, t.cash_after])?;
        if t.shares_after > 0 {
            tx.prepare_cached("INSERT OR REPLACE INTO holdings VALUES (?1, ?2, ?3)")?
                .execute(params![t.account, t.stock, t.shares_after])?;
        } else {
            tx.prepare_cached("DELETE FROM holdings WHERE account_id = ?1 AND stock_id = ?2")?
                .execute(params![t.account, t.stock])?;
        }
        tx.prepare_cached("INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![id, t.account, t.stock, t.side.name(), t.shares])?;
        tx.prepare_cached("INSERT INTO trades VALUES (?1, ?1, ?2, ?3)")?
            .execute(params![id, t.price_cents, t.shares])?;
        tx.prepare_cached("UPDATE replication_state SET sequence = ?1")?
            .execute([id])?;
        tx.commit()?;
        self.position.sequence = t.sequence;
        let holding = (t.shares_after > 0).then_some(Row::Holding {
            stock: t.stock,
            shares: t.shares_after,
        });
        self.cache.committed(
            [
                (
                    Key::Account(t.account),
                    Some(Row::Account {
                        account: t.account,
                        cash_cents: t.cash_after,
                    }),
                ),
                (Key::Holding(t.account, t.stock), holding),
            ]
            .into_iter(),
        );
        Ok(())
    }

    /// Moves the quotes of `stocks` by so many hundredths of a percent, in one transaction.
    pub fn update_prices(&mut self, moves: &[(u32, i64)]) -> Result<()> {
        let tx = self.db.transaction()?;
        let mut changed = Vec::with_capacity(moves.len());
        {
            let mut update = tx.prepare_cached(
                "UPDATE quotes SET
                    change_cents = max(100, min(10000000, price_cents + price_cents * ?2 / 10000))
                        - price_cents,
                    price_cents = max(100, min(10000000, price_cents + price_cents * ?2 / 10000)),
                    updates = updates + 1
                 WHERE stock_id = ?1 RETURNING price_cents, change_cents, updates",
            )?;
            for &(stock, change) in moves {
                let row = update.query_row(params![stock, change], |row| {
                    Ok(Row::Quote {
                        price_cents: row.get(0)?,
                        change_cents: row.get(1)?,
                        updates: row.get(2)?,
                    })
                })?;
                changed.push((Key::Quote(stock), Some(row)));
            }
        }
        tx.commit()?;
        self.cache.committed(changed.into_iter());
        Ok(())
    }

    /// Takes the master's lineage over, on a slave that has seen no transaction yet.
    pub fn adopt_lineage(&mut self, lineage: &str) -> Result<()> {
        self.db
            .execute("UPDATE replication_state SET lineage = ?1", [lineage])?;
        self.position.lineage = lineage.to_owned();
        Ok(())
    }

    /// Replaces everything transactions can change by the master's rows, in one transaction.
    pub fn restore(
        &mut self,
        position: Position,
        mut next: impl FnMut() -> Result<Option<(String, Vec<Vec<serde_json::Value>>)>>,
    ) -> Result<()> {
        let tx = self.db.transaction()?;
        for (table, _) in REPLICATED {
            tx.execute(&format!("DELETE FROM {table}"), [])?;
        }
        while let Some((table, rows)) = next()? {
            let (table, columns) = REPLICATED
                .iter()
                .find(|(known, _)| *known == table)
                .with_context(|| format!("snapshot names the unknown table {table:?}"))?;
            let marks = vec!["?"; *columns].join(", ");
            let mut insert = tx.prepare_cached(&format!("INSERT INTO {table} VALUES ({marks})"))?;
            for row in rows {
                let values = row.into_iter().map(|value| match value {
                    serde_json::Value::Number(n) => n.as_i64().unwrap_or_default().into(),
                    serde_json::Value::String(text) => rusqlite::types::Value::from(text),
                    _ => rusqlite::types::Value::Null,
                });
                insert.execute(rusqlite::params_from_iter(values))?;
            }
        }
        tx.execute(
            "UPDATE replication_state SET lineage = ?1, sequence = ?2",
            params![position.lineage, position.sequence as i64],
        )?;
        tx.commit()?;
        self.position = position;
        self.cache.clear();
        Ok(())
    }

    /// Folds the write-ahead log into the database.
    pub fn checkpoint(&self) -> rusqlite::Result<()> {
        self.db
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

/// The tables transactions change, with their column counts. Quotes are each node's own.
pub const REPLICATED: [(&str, usize); 4] = [
    ("accounts", 2),
    ("holdings", 3),
    ("orders", 5),
    ("trades", 4),
];
