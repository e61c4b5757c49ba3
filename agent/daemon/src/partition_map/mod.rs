//! `plimsoll partition`: which rows of a table go to which part, by their keys, by what is near, or by both.

mod make;
mod map;
mod rows;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::{Args, Subcommand};
use plimsoll_science::cluster::{Clustering, balance};

use make::{MakeArgs, make};
use map::Map;
use rows::{Rows, word};

/// Rows that belong nowhere that are named; all are counted.
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
    /// Check a map, and against rows: gaps, overlaps, unknown nodes, rows that belong nowhere.
    Check(CheckArgs),
    /// Count new rows to the parts they belong to; parts and clusters stay where they are.
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
}

#[derive(Args, Clone, Debug)]
struct ExtendArgs {
    /// The map.
    #[arg(value_name = "MAP")]
    map: PathBuf,
    /// CSV of the new rows, with the columns of the map.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Where the new map goes; default: in the place of the old one.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: PartitionArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match args.command {
        PartitionCommand::Make(args) => {
            let (map, found) = make(&args)?;
            map.write(&args.output)?;
            report(&map, found.as_ref(), out)?;
        }
        PartitionCommand::Check(args) => check(&args, out)?,
        PartitionCommand::Extend(args) => {
            let map = extended(&args)?;
            map.write(args.output.as_deref().unwrap_or(&args.map))?;
            report(&map, None, out)?;
        }
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
    for fault in &faults {
        writeln!(out, "{fault}")?;
    }
    match faults.len() {
        0 => Ok(()),
        _ => bail!("{} is not in order", args.map.display()),
    }
}

/// Sets the parts' rows to what a file has, and says which rows belong nowhere.
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

fn extended(args: &ExtendArgs) -> anyhow::Result<Map> {
    let mut map = Map::read(&args.map)?;
    if let Some(fault) = map.faults(&[]).first() {
        bail!("{}: {fault}", args.map.display());
    }
    let mut counts = vec![0; map.parts.len()];
    Rows::open(&args.input, &map.key, &map.columns)?.each(|key, point| {
        match map.part_of(key, point) {
            Some(part) => counts[part] += 1,
            None => bail!("{}: key {key:?}: no part takes it", args.input.display()),
        }
        Ok(())
    })?;
    for (part, count) in map.parts.iter_mut().zip(counts) {
        part.rows += count;
    }
    Ok(map)
}

/// Sizes, balance and quality.
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
