//! Command line. `capacity` takes every flag of `serve`, so that one list of flags serves both.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// The most items one request may ask for.
pub const MAX_ITEMS: usize = 1000;

#[derive(Parser)]
#[command(name = "stocks", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run one data node.
    Serve(ServeArgs),
    /// Run a node that inserts entries into the PostgreSQL beside it, primary or standby.
    Ledger(LedgerArgs),
    /// Print the items/s a node with these flags can finish.
    Capacity(CapacityArgs),
}

#[derive(Args)]
pub struct LedgerArgs {
    /// Name of the node, sent as `x-node`.
    #[arg(long, default_value = "node1")]
    pub name: String,
    /// Address of the HTTP server.
    #[arg(long, default_value = "127.0.0.1:8101")]
    pub listen: SocketAddr,
    /// "host=… user=… dbname=…" or an address.
    #[arg(long, value_name = "CONNECTION")]
    pub database: tokio_postgres::Config,
    /// Most connections to it, 1..=256.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
    /// Longest time of one request, 100ms..=1min.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub time_limit: Duration,
}

/// A master takes transactions; a slave answers queries and follows a master.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Master,
    Slave,
}

#[derive(Args)]
pub struct ServeArgs {
    /// Name of the node, sent as `x-node`.
    #[arg(long, default_value = "node1")]
    pub name: String,
    #[arg(long, value_enum, default_value = "master")]
    pub role: Role,
    /// Address of the HTTP server.
    #[arg(long, default_value = "127.0.0.1:8101")]
    pub listen: SocketAddr,
    /// PostgreSQL in place of SQLite: "host=… user=… dbname=…" or an address. The primary on the
    /// master, a standby of its own on a slave; PostgreSQL replicates, and the flags that say they
    /// are SQLite's mean nothing.
    #[arg(long, value_name = "CONNECTION")]
    pub database: Option<String>,
    /// File with the password for --database.
    #[arg(long, value_name = "FILE", requires = "database")]
    pub database_password_file: Option<PathBuf>,
    /// Longest time of one statement on PostgreSQL, 100ms..=1min.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub statement_timeout: Duration,
    /// Directory of the database; made if it is not there (SQLite).
    #[arg(long, default_value = "stocks-data")]
    pub data_dir: PathBuf,
    /// Seed of data, price periods and price walk. The same on every node.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Most rows in the row cache; 0 turns it off.
    #[arg(long, default_value_t = 60_000)]
    pub cache_rows: usize,
    /// Stocks in the database, 1..=100000.
    #[arg(long, default_value_t = 3000)]
    pub symbols: u32,
    /// History rows per stock, 0..=10000.
    #[arg(long, default_value_t = 100)]
    pub history: u32,
    /// Accounts in the database, 1..=1000000.
    #[arg(long, default_value_t = 3000)]
    pub accounts: u32,
    /// Most requests waiting for a worker; over that a request is refused with 503.
    #[arg(long, default_value_t = 10_000)]
    pub queue_limit: usize,
    /// Shortest period between two price updates of one stock.
    #[arg(long, default_value = "500ms", value_parser = duration)]
    pub price_update_min: Duration,
    /// Longest period between two price updates of one stock.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub price_update_max: Duration,
    /// An agent's `/v1/updates`, which says how often each price is to be updated. Without it each
    /// has its own period.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub feed_periods: Option<String>,
    /// Where a master listens for slaves (SQLite). Without it a master runs alone.
    #[arg(long)]
    pub replication_listen: Option<SocketAddr>,
    /// The master's `--replication-listen`; required on a slave (SQLite).
    #[arg(long)]
    pub master: Option<SocketAddr>,
    /// On a slave: take transactions too, do their work here, and have the master commit them
    /// (SQLite).
    #[arg(long)]
    pub primary: bool,
    /// Directory shared by all nodes of a machine, in which each claims the object set of a write
    /// (header X-Object-Set) while the write is at it; two nodes at once, and
    /// writes that come too late by their fencing token, are counted and refused.
    #[arg(long, value_name = "DIR")]
    pub witness_directory: Option<PathBuf>,
    /// File to append a JSON line to as a request begins, ends or is refused.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// A slave silent for this long is dropped; a slave that hears nothing for half of it is not ready.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub replication_timeout: Duration,
    /// Transactions a master keeps in memory for slaves that come back; older gaps take a snapshot
    /// (SQLite).
    #[arg(long, default_value_t = 10_000)]
    pub replication_log: usize,
    /// How long running requests may take to end after SIGTERM.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub shutdown_grace: Duration,
}

/// Arguments that determine the capacity of a node.
#[derive(Args, Clone)]
pub struct ServiceArgs {
    /// Worker threads, 1..=256.
    #[arg(long, default_value_t = 8)]
    pub workers: usize,
    /// Service time of one item.
    #[arg(long, default_value = "800us", value_parser = duration)]
    pub process_latency: Duration,
    /// Further service time of one item that the row cache does not hold.
    #[arg(long, default_value = "250us", value_parser = duration)]
    pub read_latency: Duration,
    /// Service time of one price update, on a worker and before all requests; 0: updates cost none.
    #[arg(long, default_value = "0s", value_parser = duration)]
    pub update_latency: Duration,
    /// Multiplies all latencies, 0.001..=1000.
    #[arg(long, default_value_t = 1.0)]
    pub slowdown: f64,
}

#[derive(Args)]
pub struct CapacityArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Share of items the row cache holds, 0..=1, instead of an estimate.
    #[arg(long, conflicts_with = "nodes_sharing")]
    pub hit_ratio: Option<f64>,
    /// Nodes among which the stocks are divided by affinity; 1 is uniform access.
    #[arg(long, default_value_t = 1)]
    pub nodes_sharing: u32,
    /// Items a request asks for, from which follow the rows in use.
    #[arg(long, default_value_t = 80)]
    pub items: u32,
}

fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

fn http_url(text: &str) -> Result<String, String> {
    let uri: axum::http::Uri = text.parse().map_err(|_| "is not an address".to_owned())?;
    if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
        return Err("must be http://host:port/path".to_owned());
    }
    Ok(text.to_owned())
}

impl ServeArgs {
    /// Workers that updates keep busy at the prices' own periods, in the mean.
    pub fn updating_workers(&self) -> f64 {
        let (least, most) = (
            self.price_update_min.as_secs_f64(),
            self.price_update_max.as_secs_f64(),
        );
        // The mean of 1 / period, for periods drawn evenly from the range.
        let rate = if most - least > 1e-6 * most {
            (most / least).ln() / (most - least)
        } else {
            1.0 / least
        };
        let cost = self.service.update_latency.as_secs_f64() * self.service.slowdown;
        f64::from(self.symbols) * rate * cost
    }

    /// Checks ranges and what one flag asks of another.
    pub fn validate(&self) -> Result<()> {
        let s = &self.service;
        ensure!(
            !self.primary || self.role == Role::Slave,
            "--primary: a master takes transactions anyway; it is for --role slave"
        );
        ensure!(
            !self.primary || self.database.is_none(),
            "--primary: not with --database, since a standby of PostgreSQL takes no writes"
        );
        ensure!(!self.name.is_empty(), "--name: must not be empty");
        ensure!(
            self.name.bytes().all(|b| b.is_ascii_graphic()),
            "--name {:?}: printable ASCII without blanks only, as it is sent in a header",
            self.name
        );
        in_range("--workers", s.workers as f64, 1.0, 256.0)?;
        in_range("--slowdown", s.slowdown, 0.001, 1000.0)?;
        in_range(
            "--process-latency (in seconds)",
            s.process_latency.as_secs_f64(),
            1e-6,
            10.0,
        )?;
        in_range(
            "--read-latency (in seconds)",
            s.read_latency.as_secs_f64(),
            0.0,
            10.0,
        )?;
        in_range(
            "--update-latency (in seconds)",
            s.update_latency.as_secs_f64(),
            0.0,
            1.0,
        )?;
        in_range("--symbols", f64::from(self.symbols), 1.0, 1e5)?;
        in_range("--history", f64::from(self.history), 0.0, 1e4)?;
        in_range("--accounts", f64::from(self.accounts), 1.0, 1e6)?;
        in_range("--cache-rows", self.cache_rows as f64, 0.0, 1e8)?;
        in_range("--queue-limit", self.queue_limit as f64, 1.0, 1e6)?;
        in_range("--replication-log", self.replication_log as f64, 1.0, 1e6)?;
        ensure!(
            self.price_update_min >= Duration::from_millis(10)
                && self.price_update_min <= self.price_update_max,
            "--price-update-min {:?}: must be at least 10ms and at most --price-update-max {:?}",
            self.price_update_min,
            self.price_update_max
        );
        let updating = self.updating_workers();
        ensure!(
            updating < s.workers as f64,
            "--update-latency {:?}: price updates would keep {updating:.1} workers busy, and there are {}",
            s.update_latency,
            s.workers
        );
        in_range(
            "--statement-timeout (in seconds)",
            self.statement_timeout.as_secs_f64(),
            0.1,
            60.0,
        )?;
        ensure!(
            self.replication_timeout >= Duration::from_millis(100),
            "--replication-timeout {:?}: must be at least 100ms",
            self.replication_timeout
        );
        Ok(())
    }

    /// The address of the master, on a slave with SQLite; an error where role and addresses disagree.
    pub fn master_address(&self) -> Result<Option<SocketAddr>> {
        match self.role {
            Role::Master => {
                ensure!(
                    self.master.is_none(),
                    "--master: only a slave has one (--role slave)"
                );
                Ok(None)
            }
            Role::Slave => {
                ensure!(
                    self.replication_listen.is_none(),
                    "--replication-listen: only a master has one (--role master)"
                );
                if self.database.is_some() {
                    return Ok(None);
                }
                self.master
                    .map(Some)
                    .context("--role slave: --master ADDR is missing")
            }
        }
    }
}

pub fn in_range(flag: &str, value: f64, low: f64, high: f64) -> Result<()> {
    ensure!(
        (low..=high).contains(&value),
        "{flag} {value}: must be within {low}..={high}"
    );
    Ok(())
}
