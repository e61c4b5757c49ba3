//! Stock-trading demo data service of the Plimsoll lab: one process is one data node.

mod agent_periods;
mod cache;
mod capacity;
mod catalog;
mod cli;
mod database;
mod fence;
mod freshness;
mod http;
mod inflight;
mod journal;
mod ledger;
mod metrics;
mod pool;
mod postgres;
mod prices;
mod reader;
mod rows;
mod seed;
mod serve;
mod sqlite;
mod store;
mod transaction;
mod views;
mod witness;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Serve(args) => serve::run(args),
        cli::Command::Ledger(args) => ledger::run(args),
        cli::Command::Capacity(args) => capacity::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stocks: {error:#}");
            ExitCode::FAILURE
        }
    }
}
