//! `plimsoll partition`: assigns the rows of a table to parts, by key, by proximity, or by both.

mod copy;
mod databases;
mod file;
mod live;
mod load;
mod make;
mod rows;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::{Args, Subcommand};
use plimsoll_science::cluster::{Clustering, balance};

use copy::Work;
use databases::places;
pub use file::Map;
use live::compare;
use load::{LoadArgs, Loading, load};
use make::{MakeArgs, make};
use rows::{Rows, word};
use tokio::runtime::{Builder, Runtime};

/// Maximum rows in gaps that are reported individually; all are counted.
const NAMED: usize = 10;

/// Arguments of `partition`.
#[derive(Args, Clone, Debug)]
pub struct PartitionArgs {
    #[command(subcommand)]
    command: PartitionCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum PartitionCommand {
    /// Make a partition map of a CSV file.
    Make(MakeArgs),
    /// Load the parts of a map into PostgreSQL databases, each whole or not at all.
    Load(LoadArgs),
    /// Check a map, and against rows or databases: gaps, overlaps, unknown nodes, rows that belong elsewhere.
    Check(CheckArgs),
    /// Count new rows to the parts they belong to, and load them; parts and clusters stay where they are.
    Extend(ExtendArgs),
}

#[derive(Args, Clone, Debug)]
struct CheckArgs {
    /// The map.
    #[arg(value_name = "MAP")]
    map: PathBuf,
    /// CSV with the columns of the map.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The nodes there are; default: those of the map.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    nodes: Vec<String>,
    /// TOML with a [[partition]] for each part: its database is to have the rows that the map says.
    #[arg(long, value_name = "FILE", requires = "table")]
    databases: Option<PathBuf>,
    /// The table in each database; {part} stands for the part's name.
    #[arg(long, value_name = "NAME", requires = "databases")]
    table: Option<String>,
}

#[derive(Args, Clone, Debug)]
struct ExtendArgs {
    /// The map.
    #[arg(value_name = "MAP")]
    map: PathBuf,
    /// CSV of the new rows, with the columns of the map.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// File to write the new map to; by default, it replaces the old one.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// TOML with a [[partition]] for each part, which the new rows are added to.
    #[arg(long, value_name = "FILE", requires = "table")]
    databases: Option<PathBuf>,
    /// The table in each database; {part} stands for the part's name.
    #[arg(long, value_name = "NAME", requires = "databases")]
    table: Option<String>,
    /// Add to these parts only.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "databases"
    )]
    parts: Vec<String>,
}

/// Runs the command.
pub fn run(args: PartitionArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match args.command {
        PartitionCommand::Make(args) => {
            let (map, found) = make(&args)?;
            map.write(&args.output)?;
            report(&map, found.as_ref(), out)?;
        }
        PartitionCommand::Load(args) => load(&args, out)?,
        PartitionCommand::Check(args) => check(&args, out)?,
        PartitionCommand::Extend(args) => extend(&args, out)?,
    }
    Ok(())
}

fn check(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let mut map = Map::read(&args.map)?;
    let mut faults = map.faults(&args.nodes);
    if let Some(input) = &args.input {
        let nowhere = count(&mut map, input, &mut faults)?;
        report(&map, None, out)?;
        if nowhere > 0 {
            faults.push(format!(
                "{nowhere} rows of {} belong nowhere",
                input.display()
            ));
        }
    }
    if let (Some(databases), Some(table), true) = (&args.databases, &args.table, faults.is_empty())
    {
        let places = places(&map, databases, table, &[])?;
        faults = runtime()?.block_on(compare(&map, places, table, out))?;
    }
    for fault in &faults {
        writeln!(out, "{fault}")?;
    }
    match faults.len() {
        0 => Ok(()),
        _ => bail!("{} is not in order", args.map.display()),
    }
}

/// Sets the parts' numbers of rows from a file, and reports rows in gaps.
fn count(map: &mut Map, input: &Path, faults: &mut Vec<String>) -> anyhow::Result<u64> {
    let mut rows = Rows::open(input, &map.key, &map.columns)?;
    let mut counts = vec![0; map.parts.len()];
    let mut nowhere = 0u64;
    while let Some(row) = rows.next()? {
        let (line, key) = (row.line, row.key);
        let part = row.point.and_then(|point| {
            let gap = || {
                format!(
                    "{}: line {line}: key {key:?}: no part takes it",
                    input.display()
                )
            };
            map.part_of(key, point).ok_or_else(gap)
        });
        match part {
            Ok(part) => counts[part] += 1,
            Err(why) => {
                nowhere += 1;
                if nowhere <= NAMED as u64 {
                    faults.push(why);
                }
            }
        }
    }
    word("");
    for (part, count) in map.parts.iter_mut().zip(counts) {
        part.rows = count;
    }
    Ok(nowhere)
}

fn extend(args: &ExtendArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let mut map = sound(&args.map)?;
    let (counts, ended) = match (&args.databases, &args.table) {
        (Some(databases), Some(table)) => {
            let columns = Rows::open(&args.input, &map.key, &map.columns)?.names()?;
            let work = Work {
                table: table.clone(),
                columns,
                new: None,
            };
            let places = places(&map, databases, table, &args.parts)?;
            let mut loading = Loading::new(&map, &args.input, work);
            let ended = runtime()?.block_on(loading.run(places, out));
            (loading.done, ended)
        }
        _ => (belonging(&map, &args.input)?, Ok(())),
    };
    // The map counts what the databases hold, even if some have none of the new rows yet.
    for (part, count) in counts {
        map.parts[part].rows += count;
    }
    map.write(args.output.as_deref().unwrap_or(&args.map))?;
    report(&map, None, out)?;
    ended
}

/// Number of rows of a file in each part.
fn belonging(map: &Map, input: &Path) -> anyhow::Result<Vec<(usize, u64)>> {
    let mut counts = vec![0; map.parts.len()];
    Rows::open(input, &map.key, &map.columns)?.each(|key, point| {
        match map.part_of(key, point) {
            Some(part) => counts[part] += 1,
            None => bail!("{}: key {key:?}: no part takes it", input.display()),
        }
        Ok(())
    })?;
    Ok(counts.into_iter().enumerate().collect())
}

/// Reads a map and checks that it is valid.
fn sound(path: &Path) -> anyhow::Result<Map> {
    let map = Map::read(path)?;
    match map.faults(&[]).first() {
        Some(fault) => bail!("{}: {fault}", path.display()),
        None => Ok(map),
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// Prints sizes, balance and quality.
fn report(map: &Map, found: Option<&Clustering>, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<8} {:<16} {:>7} {:>12}",
        "part", "node", "cluster", "rows"
    )?;
    for part in &map.parts {
        let cluster = part
            .cluster
            .map_or_else(|| "-".to_owned(), |at| at.to_string());
        let (name, node) = (&part.name, &part.node);
        writeln!(out, "{name:<8} {node:<16} {cluster:>7} {:>12}", part.rows)?;
    }
    let sizes: Vec<usize> = map.parts.iter().map(|part| part.rows as usize).collect();
    writeln!(
        out,
        "balance (largest part over the mean): {:.3}",
        balance(&sizes)
    )?;
    if let Some(found) = found {
        writeln!(
            out,
            "distortion (mean squared distance to the centre): {:.6}",
            found.distortion
        )?;
        if let Some(index) = found.davies_bouldin() {
            writeln!(out, "Davies-Bouldin index (0 is best): {index:.3}")?;
        }
    }
    Ok(())
}
