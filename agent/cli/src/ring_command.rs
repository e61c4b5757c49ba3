//! `plimsoll ring`: inspects rings, their keys, slots and owners.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufWriter, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use plimsoll_core::ring::{DEFAULT_SLOTS, MAX_SLOTS, NOBODY, key_hash, slot_of_hash};
use plimsoll_net::{HttpUrl, get_as};
use plimsoll_wire::{Ring, RingView};

use crate::caller_args::CallerArgs;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than a table with the maximum number of slots, each a run of its own.
const MAX_BODY: usize = 32 << 20;

/// Arguments of `plimsoll ring`.
#[derive(Args, Debug)]
pub struct RingArgs {
    /// Command to run.
    #[command(subcommand)]
    command: RingCommand,
}

/// Commands of `plimsoll ring`.
#[derive(Debug, Subcommand)]
enum RingCommand {
    /// Show the nodes of a ring with their slots and shares.
    Show(Where),
    /// Show which slots moved between two rings.
    Diff {
        /// File with an answer of `/v1/ring`, or the URL of an agent.
        a: String,
        /// File or URL of the other ring.
        b: String,
        #[command(flatten)]
        caller: CallerArgs,
    },
    /// Print the slot of each key: KEY, a tab, SLOT.
    Slot {
        /// Number of slots of the ring.
        #[arg(long, default_value_t = DEFAULT_SLOTS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
        slots: u32,
        #[command(flatten)]
        keys: Keys,
    },
    /// Print the owner of each key in a live cluster: KEY, a tab, NODE.
    Owner {
        #[command(flatten)]
        at: Where,
        #[command(flatten)]
        keys: Keys,
    },
}

/// The keys to look up.
#[derive(Args, Debug)]
struct Keys {
    /// Keys.
    #[arg(required_unless_present = "stdin", value_name = "KEY")]
    keys: Vec<String>,
    /// Read the keys from standard input, one per line; any bytes are valid.
    #[arg(long, conflicts_with = "keys")]
    stdin: bool,
}

impl Keys {
    /// Writes each key, a tab and its result.
    fn tell<T: std::fmt::Display>(
        &self,
        out: &mut impl Write,
        mut say: impl FnMut(&[u8]) -> anyhow::Result<T>,
    ) -> anyhow::Result<()> {
        // Standard output is otherwise flushed after each line.
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let mut line = |key: &[u8]| -> anyhow::Result<()> {
            let said = say(key)?;
            out.write_all(key)?;
            Ok(writeln!(out, "\t{said}")?)
        };
        if self.stdin {
            let mut lines = std::io::stdin().lock();
            let mut key = Vec::new();
            while lines.read_until(b'\n', &mut key)? > 0 {
                line(key.strip_suffix(b"\n").unwrap_or(&key))?;
                key.clear();
            }
        } else {
            for key in &self.keys {
                line(key.as_bytes())?;
            }
        }
        Ok(out.flush()?)
    }
}

/// The ring to query.
#[derive(Args, Debug)]
struct Where {
    /// HTTP address of an agent.
    #[arg(
        long,
        env = "PLIMSOLL_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:9464"
    )]
    url: String,
    /// Service whose ring to query, if the agent follows several.
    #[arg(long, env = "PLIMSOLL_SERVICE", value_name = "NAME")]
    service: Option<String>,
    #[command(flatten)]
    caller: CallerArgs,
}

/// Runs the command.
pub fn run(args: RingArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match args.command {
        RingCommand::Show(at) => show(&live(&at)?, out)?,
        RingCommand::Diff { a, b, caller } => {
            diff(&read(&caller, &a)?, &read(&caller, &b)?, out)?;
        }
        RingCommand::Slot { slots, keys } => {
            keys.tell(out, |key| Ok(slot_of_hash(key_hash(key), slots)))?;
        }
        RingCommand::Owner { at, keys } => {
            let ring = live(&at)?;
            keys.tell(out, |key| match ring.table.owner(key) {
                Some(owner) => Ok(name(&ring, owner)),
                None => bail!(
                    "no node accepts work: ring version {} has no owners",
                    ring.table.version()
                ),
            })?;
        }
    }
    Ok(())
}

fn parse(text: &[u8]) -> anyhow::Result<Ring> {
    let ring = RingView::parse(text).and_then(|view| view.ring(None));
    ring.map_err(|problem| anyhow!("not an answer of /v1/ring with the complete table: {problem}"))
}

fn name(ring: &Ring, owner: u8) -> &str {
    let name = ring.names.get(usize::from(owner));
    name.map_or("-", String::as_str)
}

fn live(at: &Where) -> anyhow::Result<Ring> {
    let query = at
        .service
        .as_ref()
        .map_or(String::new(), |service| format!("?service={service}"));
    let url = format!("{}/v1/ring{query}", at.url.trim_end_matches('/'));
    fetch(&at.caller, &url)
}

fn fetch(caller: &CallerArgs, url: &str) -> anyhow::Result<Ring> {
    let parsed: HttpUrl = url
        .parse()
        .map_err(|problem: String| anyhow!("--url: {problem}"))?;
    let caller = caller.caller([&parsed])?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (status, body) = runtime.block_on(get_as(&caller, &parsed, TIMEOUT, MAX_BODY))?;
    if status != 200 {
        bail!(
            "{url}: status {status}: {}",
            String::from_utf8_lossy(&body).trim()
        );
    }
    parse(&body).with_context(|| url.to_owned())
}

fn read(caller: &CallerArgs, place: &str) -> anyhow::Result<Ring> {
    if let Ok(url) = place.parse::<HttpUrl>() {
        return match &*url.path {
            "/" => fetch(caller, &format!("{}/v1/ring", place.trim_end_matches('/'))),
            _ => fetch(caller, place),
        };
    }
    let text = std::fs::read(Path::new(place)).with_context(|| place.to_owned())?;
    parse(&text).with_context(|| place.to_owned())
}

fn show(ring: &Ring, out: &mut impl Write) -> anyhow::Result<()> {
    let slots = ring.table.slots();
    writeln!(out, "version {}, {slots} slots", ring.table.version())?;
    for (name, size) in ring.names.iter().zip(ring.table.sizes()) {
        if !name.is_empty() {
            writeln!(
                out,
                "{name}\t{size}\t{:.2} %",
                100.0 * f64::from(size) / f64::from(slots)
            )?;
        }
    }
    Ok(())
}

fn diff(a: &Ring, b: &Ring, out: &mut impl Write) -> anyhow::Result<()> {
    if a.table.slots() != b.table.slots() {
        bail!(
            "cannot compare: one ring has {} slots, the other {}",
            a.table.slots(),
            b.table.slots()
        );
    }
    // Compared by name, since the same index may be another node in the other ring.
    let mut moved: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for (old, new) in a.table.owners().iter().zip(b.table.owners()) {
        let pair = (name(a, *old), name(b, *new));
        if pair.0 != pair.1 || (*old == NOBODY) != (*new == NOBODY) {
            *moved.entry(pair).or_default() += 1;
        }
    }
    let all: u32 = moved.values().sum();
    let share = 100.0 * f64::from(all) / f64::from(a.table.slots());
    writeln!(
        out,
        "version {} to {}: {all} slots moved, {share:.2} %",
        a.table.version(),
        b.table.version()
    )?;
    for ((from, to), slots) in moved {
        writeln!(out, "{from}\t{to}\t{slots}")?;
    }
    Ok(())
}
