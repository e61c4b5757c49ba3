//! Schema and seed data. A database is built beside its final name and renamed when whole, so that
//! a killed start leaves nothing half-filled behind.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rusqlite::{Connection, OptionalExtension, params};

use crate::catalog::{Catalog, Dimensions};
use crate::seed::{Seed, company, symbol};

const SCHEMA: &str = "
CREATE TABLE stocks (id INTEGER PRIMARY KEY, symbol TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    sector INTEGER NOT NULL, shares INTEGER NOT NULL);
CREATE TABLE quotes (stock_id INTEGER PRIMARY KEY, price_cents INTEGER NOT NULL,
    change_cents INTEGER NOT NULL, updates INTEGER NOT NULL);
CREATE TABLE quote_history (id INTEGER PRIMARY KEY, open_cents INTEGER NOT NULL,
    close_cents INTEGER NOT NULL, volume INTEGER NOT NULL);
CREATE TABLE accounts (id INTEGER PRIMARY KEY, cash_cents INTEGER NOT NULL);
CREATE TABLE holdings (account_id INTEGER NOT NULL, stock_id INTEGER NOT NULL,
    shares INTEGER NOT NULL, PRIMARY KEY (account_id, stock_id)) WITHOUT ROWID;
CREATE TABLE orders (id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL,
    stock_id INTEGER NOT NULL, side TEXT NOT NULL, shares INTEGER NOT NULL);
CREATE TABLE trades (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL,
    price_cents INTEGER NOT NULL, shares INTEGER NOT NULL);
CREATE TABLE replication_state (id INTEGER PRIMARY KEY CHECK (id = 1), dimensions TEXT NOT NULL,
    lineage TEXT NOT NULL, sequence INTEGER NOT NULL);
";

/// Opens the database of a node for writing, building it if there is none of these dimensions.
pub fn open_or_build(directory: &Path, dimensions: Dimensions) -> Result<(Connection, PathBuf)> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("--data-dir {}: cannot make it", directory.display()))?;
    let path = directory.join("stocks.db");
    if !holds(&path, dimensions) {
        build(&path, dimensions).with_context(|| format!("{}: cannot fill it", path.display()))?;
    }
    let db = Connection::open(&path).with_context(|| format!("{}: cannot open", path.display()))?;
    // Synchronous OFF: a killed process loses nothing, a power cut may; lab data can be rebuilt.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA busy_timeout = 5000;",
    )?;
    Ok((db, path))
}

/// A connection for one worker's reads.
pub fn open_reader(path: &Path) -> Result<Connection> {
    let db = Connection::open(path).with_context(|| format!("{}: cannot open", path.display()))?;
    db.execute_batch(
        "PRAGMA query_only = ON; PRAGMA busy_timeout = 5000; PRAGMA mmap_size = 268435456;",
    )?;
    Ok(db)
}

fn holds(path: &Path, dimensions: Dimensions) -> bool {
    if !path.exists() {
        return false;
    }
    let stored = Connection::open(path).and_then(|db| {
        db.query_row("SELECT dimensions FROM replication_state", [], |row| {
            row.get::<_, String>(0)
        })
        .optional()
    });
    let Ok(Some(stored)) = stored else {
        return false;
    };
    serde_json::from_str::<Dimensions>(&stored).is_ok_and(|found| found == dimensions)
}

fn build(path: &Path, dimensions: Dimensions) -> Result<()> {
    let fresh = path.with_extension("building");
    for suffix in ["db", "db-wal", "db-shm", "building", "building-journal"] {
        let stale = path.with_extension(suffix);
        match std::fs::remove_file(&stale) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context(format!("{}: cannot remove", stale.display()));
            }
            _ => {}
        }
    }
    let mut db = Connection::open(&fresh)?;
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    let tx = db.transaction()?;
    tx.execute_batch(SCHEMA)?;
    fill(&tx, dimensions)?;
    tx.execute(
        "INSERT INTO replication_state VALUES (1, ?1, ?2, 0)",
        params![serde_json::to_string(&dimensions)?, new_lineage()],
    )?;
    tx.commit()?;
    drop(db);
    std::fs::rename(&fresh, path)?;
    Ok(())
}

/// Names this run of transactions: two masters that start from the same seed differ in it.
fn new_lineage() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{:x}-{:x}", since.as_nanos(), std::process::id())
}

fn fill(db: &Connection, dimensions: Dimensions) -> Result<()> {
    let mut seed = Seed::new(dimensions);
    let mut stock = db.prepare("INSERT INTO stocks VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut quote = db.prepare("INSERT INTO quotes VALUES (?1, ?2, 0, 0)")?;
    let mut day = db.prepare("INSERT INTO quote_history VALUES (?1, ?2, ?3, ?4)")?;
    for id in 0..dimensions.symbols {
        let made = seed.stock(id);
        stock.execute(params![
            id,
            symbol(id),
            company(id),
            made.sector,
            made.shares
        ])?;
        quote.execute(params![id, made.price_cents])?;
        for d in made.days {
            day.execute(params![d.id, d.open_cents, d.close_cents, d.volume])?;
        }
    }
    let mut account = db.prepare("INSERT INTO accounts VALUES (?1, ?2)")?;
    let mut holding = db.prepare("INSERT INTO holdings VALUES (?1, ?2, ?3)")?;
    for id in 0..dimensions.accounts {
        let made = seed.account();
        account.execute(params![id, made.cash_cents])?;
        for (stock, shares) in made.holdings {
            holding.execute(params![id, stock, shares])?;
        }
    }
    Ok(())
}

pub fn catalog(db: &Connection, dimensions: Dimensions) -> Result<Catalog> {
    let mut select = db.prepare("SELECT symbol, sector FROM stocks ORDER BY id")?;
    let stocks: rusqlite::Result<Vec<(String, usize)>> = select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect();
    Ok(Catalog::new(dimensions, stocks?))
}
