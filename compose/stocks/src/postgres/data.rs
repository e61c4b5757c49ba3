//! Schema and seed data. All is made in one transaction: a standby sees it whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};
use tracing::{info, warn};

use super::session::{Failure, Open, Session, Settings};
use crate::catalog::{Catalog, Dimensions};
use crate::seed::{Seed, company, symbol};

/// Timeout for filling the database, which depends on `--symbols` and `--history`.
const FILL_LIMIT: Duration = Duration::from_secs(3600);
/// Stocks or accounts that are sent in one statement.
const CHUNK: u32 = 500;

// Half of a page of quotes is left for the next version of its rows, which then needs no index entry.
const SCHEMA: &str = "
SET LOCAL statement_timeout = 0;
CREATE TABLE stocks (id bigint PRIMARY KEY, symbol text NOT NULL UNIQUE, name text NOT NULL,
    sector bigint NOT NULL, shares bigint NOT NULL);
CREATE TABLE quotes (stock_id bigint PRIMARY KEY, price_cents bigint NOT NULL,
    change_cents bigint NOT NULL, updates bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE quote_history (id bigint PRIMARY KEY, open_cents bigint NOT NULL,
    close_cents bigint NOT NULL, volume bigint NOT NULL);
CREATE TABLE accounts (id bigint PRIMARY KEY, cash_cents bigint NOT NULL);
CREATE TABLE holdings (account_id bigint NOT NULL, stock_id bigint NOT NULL,
    shares bigint NOT NULL, PRIMARY KEY (account_id, stock_id));
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account_id bigint NOT NULL,
    stock_id bigint NOT NULL, side text NOT NULL, shares bigint NOT NULL);
CREATE TABLE trades (id bigint PRIMARY KEY, order_id bigint NOT NULL,
    price_cents bigint NOT NULL, shares bigint NOT NULL);
CREATE TABLE replication_state (id bigint PRIMARY KEY CHECK (id = 1), dimensions text NOT NULL,
    beat bigint NOT NULL, standbys text[] NOT NULL);
";

/// Waits for the database, fills it on a master where it is empty, and reads which stocks it has.
/// Returns an error only where waiting is in vain.
pub fn load(settings: &Arc<Settings>, dimensions: Dimensions) -> Result<Catalog> {
    let mut session = Session::new(Arc::clone(settings))?;
    let mut said = String::new();
    loop {
        let text = match look(&mut session) {
            Ok(Some((found, stocks))) => {
                let found = serde_json::from_str::<Dimensions>(&found);
                ensure!(
                    found.as_ref().is_ok_and(|found| *found == dimensions),
                    "--database: it holds data of other dimensions ({found:?}), and these are asked \
                     for: {dimensions:?}; take another database, or drop what it holds"
                );
                return Ok(Catalog::new(dimensions, stocks));
            }
            Ok(None) if settings.writes => {
                info!("filling the database");
                session
                    .run(0, FILL_LIMIT, async |open| fill(open, dimensions).await)
                    .map_or_else(text, |()| String::new())
            }
            Ok(None) => "the standby has no data yet".to_owned(),
            // The session has said it.
            Err(Failure::Gone(_)) => String::new(),
            Err(failure) => text(failure),
        };
        if !text.is_empty() && text != said {
            warn!("waiting for the database: {text}");
            said = text;
        }
        std::thread::sleep(session.pause());
    }
}

fn text(failure: Failure) -> String {
    format!("{:#}", anyhow::Error::from(failure))
}

type Stocks = Vec<(String, usize)>;

/// The dimensions and the stocks; `None` where nothing was filled.
fn look(session: &mut Session<()>) -> Result<Option<(String, Stocks)>, Failure> {
    session.run(3, Duration::ZERO, async |open| {
        let there = "SELECT to_regclass('replication_state') IS NOT NULL";
        if !open.client.query_one(there, &[]).await?.try_get(0)? {
            return Ok(None);
        }
        let state = open
            .client
            .query_one("SELECT dimensions FROM replication_state", &[])
            .await?;
        let stocks: Result<Stocks, Error> = open
            .client
            .query("SELECT symbol, sector FROM stocks ORDER BY id", &[])
            .await?
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as usize)))
            .collect();
        Ok(Some((state.try_get(0)?, stocks?)))
    })
}

/// Rows by column, as `unnest` takes them.
struct Columns<const N: usize>([Vec<i64>; N]);

impl<const N: usize> Columns<N> {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }

    fn push(&mut self, row: [i64; N]) {
        for (column, value) in self.0.iter_mut().zip(row) {
            column.push(value);
        }
    }

    async fn insert(&self, tx: &Transaction<'_>, statement: &str) -> Result<(), Error> {
        let columns: Vec<&(dyn ToSql + Sync)> = self
            .0
            .iter()
            .map(|column| column as &(dyn ToSql + Sync))
            .collect();
        tx.execute(statement, &columns).await?;
        Ok(())
    }
}

async fn fill(open: &mut Open<()>, dimensions: Dimensions) -> Result<(), Error> {
    let tx = open.client.transaction().await?;
    tx.batch_execute(SCHEMA).await?;
    let mut seed = Seed::new(dimensions);
    for first in (0..dimensions.symbols).step_by(CHUNK as usize) {
        fill_stocks(
            &tx,
            &mut seed,
            first..(first + CHUNK).min(dimensions.symbols),
        )
        .await?;
    }
    for first in (0..dimensions.accounts).step_by(CHUNK as usize) {
        fill_accounts(
            &tx,
            &mut seed,
            first..(first + CHUNK).min(dimensions.accounts),
        )
        .await?;
    }
    let described = serde_json::to_string(&dimensions).unwrap_or_default();
    let state = "INSERT INTO replication_state VALUES (1, $1, 0, '{}')";
    tx.execute(state, &[&described]).await?;
    tx.batch_execute("ANALYZE stocks, quotes, quote_history, accounts, holdings")
        .await?;
    tx.commit().await
}

async fn fill_stocks(
    tx: &Transaction<'_>,
    seed: &mut Seed,
    ids: std::ops::Range<u32>,
) -> Result<(), Error> {
    let (mut symbols, mut names) = (Vec::new(), Vec::new());
    let (mut stocks, mut quotes, mut days) = (Columns::new(), Columns::new(), Columns::new());
    for id in ids {
        let made = seed.stock(id);
        symbols.push(symbol(id));
        names.push(company(id));
        stocks.push([id.into(), made.sector.into(), made.shares]);
        quotes.push([id.into(), made.price_cents]);
        for d in made.days {
            days.push([d.id, d.open_cents, d.close_cents, d.volume]);
        }
    }
    let [ids, sectors, shares] = &stocks.0;
    tx.execute(
        "INSERT INTO stocks SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[],
            $4::bigint[], $5::bigint[])",
        &[ids, &symbols, &names, sectors, shares],
    )
    .await?;
    quotes
        .insert(
            tx,
            "INSERT INTO quotes SELECT *, 0, 0 FROM unnest($1::bigint[], $2::bigint[])",
        )
        .await?;
    days.insert(
        tx,
        "INSERT INTO quote_history
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])",
    )
    .await
}

async fn fill_accounts(
    tx: &Transaction<'_>,
    seed: &mut Seed,
    ids: std::ops::Range<u32>,
) -> Result<(), Error> {
    let (mut accounts, mut holdings) = (Columns::new(), Columns::new());
    for id in ids {
        let made = seed.account();
        accounts.push([id.into(), made.cash_cents]);
        for (stock, shares) in made.holdings {
            holdings.push([id.into(), stock, shares]);
        }
    }
    accounts
        .insert(
            tx,
            "INSERT INTO accounts SELECT * FROM unnest($1::bigint[], $2::bigint[])",
        )
        .await?;
    holdings
        .insert(
            tx,
            "INSERT INTO holdings SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])",
        )
        .await
}
