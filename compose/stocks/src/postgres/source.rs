//! Reads and transactions of one worker.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio_postgres::{Client, Error, Row as Found, Statement};

use super::session::{Failure, Prepared, Session, Settings};
use super::transact::Writes;
use crate::database::{InDoubt, Unavailable};
use crate::metrics::Metrics;
use crate::rows::{Key, Row};
use crate::transaction::{Order, Refusal, Transaction};

pub struct Source {
    session: Session<Statements>,
    metrics: Arc<Metrics>,
    /// Time beyond its statements that a transaction may wait for standbys.
    commit_limit: Duration,
}

pub struct Statements {
    stocks: Statement,
    quotes: Statement,
    days: Statement,
    accounts: Statement,
    holdings: Statement,
    held: Statement,
    /// A standby does not take them.
    writes: Option<Writes>,
}

impl Prepared for Statements {
    async fn prepare(client: &Client, writes: bool) -> Result<Self, Error> {
        let writes = if writes {
            Some(Writes::prepare(client).await?)
        } else {
            None
        };
        let (stocks, quotes, days, accounts, holdings, held) = tokio::try_join!(
            client
                .prepare("SELECT id, symbol, name, sector, shares FROM stocks WHERE id = ANY ($1)"),
            client.prepare(
                "SELECT stock_id, price_cents, change_cents, updates FROM quotes
                 WHERE stock_id = ANY ($1)"
            ),
            client.prepare(
                "SELECT id, open_cents, close_cents, volume FROM quote_history
                 WHERE id = ANY ($1)"
            ),
            client.prepare("SELECT id, cash_cents FROM accounts WHERE id = ANY ($1)"),
            client.prepare(
                "SELECT account_id, stock_id, shares
                 FROM unnest($1::bigint[], $2::bigint[]) AS wanted (account_id, stock_id)
                 JOIN holdings USING (account_id, stock_id)"
            ),
            client.prepare(
                "SELECT stock_id FROM holdings WHERE account_id = $1
                 ORDER BY stock_id LIMIT 1000"
            ),
        )?;
        Ok(Self {
            stocks,
            quotes,
            days,
            accounts,
            holdings,
            held,
            writes,
        })
    }
}

/// The keys of one request by table.
#[derive(Default)]
struct Wanted {
    stocks: Vec<i64>,
    quotes: Vec<i64>,
    days: Vec<i64>,
    accounts: Vec<i64>,
    /// Accounts and stocks of the holdings.
    holders: Vec<i64>,
    holdings: Vec<i64>,
}

impl Wanted {
    fn new(keys: &[Key]) -> Self {
        let mut wanted = Self::default();
        for &key in keys {
            match key {
                Key::Stock(id) => wanted.stocks.push(id.into()),
                Key::Quote(id) => wanted.quotes.push(id.into()),
                Key::Day(id) => wanted.days.push(id as i64),
                Key::Account(id) => wanted.accounts.push(id.into()),
                Key::Holding(account, stock) => {
                    wanted.holders.push(account.into());
                    wanted.holdings.push(stock.into());
                }
            }
        }
        wanted
    }
}

impl Source {
    pub fn new(
        settings: Arc<Settings>,
        metrics: Arc<Metrics>,
        commit_limit: Duration,
    ) -> Result<Self> {
        Ok(Self {
            session: Session::new(settings)?,
            metrics,
            commit_limit,
        })
    }

    pub fn fetch(&mut self, keys: &[Key]) -> Result<Vec<Option<Row>>> {
        let wanted = Wanted::new(keys);
        let rows = self.session.run(1, Duration::ZERO, async |open| {
            let (client, prepared) = (&open.client, &open.prepared);
            // Sent together: one round trip for all tables.
            let (stocks, quotes, days, accounts, holdings) = tokio::try_join!(
                by_id(client, &prepared.stocks, &wanted.stocks),
                by_id(client, &prepared.quotes, &wanted.quotes),
                by_id(client, &prepared.days, &wanted.days),
                by_id(client, &prepared.accounts, &wanted.accounts),
                async {
                    if wanted.holdings.is_empty() {
                        return Ok(Vec::new());
                    }
                    client
                        .query(&prepared.holdings, &[&wanted.holders, &wanted.holdings])
                        .await
                },
            )?;
            let mut rows = HashMap::with_capacity(keys.len());
            for row in &stocks {
                rows.insert(Key::Stock(id(row, 0)?), stock(row)?);
            }
            for row in &quotes {
                rows.insert(Key::Quote(id(row, 0)?), quote(row)?);
            }
            for row in &days {
                let key = Key::Day(row.try_get::<_, i64>(0)? as u64);
                rows.insert(key, day(row)?);
            }
            for row in &accounts {
                let account = id(row, 0)?;
                let cash_cents = row.try_get(1)?;
                let found = Row::Account {
                    account,
                    cash_cents,
                };
                rows.insert(Key::Account(account), found);
            }
            for row in &holdings {
                let (account, stock) = (id(row, 0)?, id(row, 1)?);
                let shares = row.try_get(2)?;
                rows.insert(Key::Holding(account, stock), Row::Holding { stock, shares });
            }
            Ok(rows)
        })?;
        Ok(keys.iter().map(|key| rows.get(key).cloned()).collect())
    }

    pub fn held_stocks(&mut self, account: u32) -> Result<Vec<u32>> {
        let stocks = self.session.run(1, Duration::ZERO, async |open| {
            let found = open
                .client
                .query(&open.prepared.held, &[&i64::from(account)])
                .await?;
            found.iter().map(|row| id(row, 0)).collect()
        })?;
        Ok(stocks)
    }

    pub fn transact(&mut self, order: &Order) -> Result<Result<Transaction, Refusal>> {
        let committing = Cell::new(false);
        let made = self
            .session
            .run(5, self.commit_limit, async |open| {
                match &open.prepared.writes {
                    Some(writes) => writes
                        .transact(&mut open.client, order, &committing)
                        .await
                        .map(Some),
                    None => Ok(None),
                }
            })
            .map_err(|failure| in_doubt(failure, committing.get()))?;
        let Some(made) = made else {
            bail!("not a master")
        };
        if let Ok(made) = &made {
            self.metrics.sequence.set(made.sequence as i64);
        }
        Ok(made)
    }
}

fn in_doubt(failure: Failure, committing: bool) -> anyhow::Error {
    let is_passing = failure.is_passing();
    let error = anyhow::Error::from(failure);
    match error.downcast_ref() {
        Some(Unavailable(why)) if committing && is_passing => InDoubt(why.clone()).into(),
        _ => error,
    }
}

async fn by_id(
    client: &Client,
    statement: &Statement,
    ids: &Vec<i64>,
) -> Result<Vec<Found>, Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    client.query(statement, &[ids]).await
}

fn id(row: &Found, column: usize) -> Result<u32, Error> {
    Ok(row.try_get::<_, i64>(column)? as u32)
}

fn stock(row: &Found) -> Result<Row, Error> {
    Ok(Row::Stock {
        symbol: row.try_get::<_, &str>(1)?.into(),
        name: row.try_get::<_, &str>(2)?.into(),
        sector: id(row, 3)?,
        shares: row.try_get(4)?,
    })
}

fn quote(row: &Found) -> Result<Row, Error> {
    Ok(Row::Quote {
        price_cents: row.try_get(1)?,
        change_cents: row.try_get(2)?,
        updates: row.try_get(3)?,
    })
}

fn day(row: &Found) -> Result<Row, Error> {
    Ok(Row::Day {
        open_cents: row.try_get(1)?,
        close_cents: row.try_get(2)?,
        volume: row.try_get(3)?,
    })
}
