//! Loads the rows of a file into the databases of their parts, all concurrently.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_net::backoff;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    copy::{Message, New, Work, encode},
    databases::{Fault, Place, places, quoted},
    file::Map,
    rows::{Rows, word},
};

/// Size of a chunk of rows, in bytes.
const CHUNK_BYTES: usize = 32 << 10;
/// Maximum chunks queued for a database.
const CHUNKS: usize = 4;
/// Maximum passes over the file while databases are unavailable.
const ATTEMPTS: u32 = 6;
const MIN_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(8);

/// Arguments of `partition load`.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// The map.
    #[arg(value_name = "MAP")]
    map: PathBuf,
    /// CSV that the map was made of; all its columns are loaded.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// TOML with a [[partition]] for each part, as in the agents' configuration.
    #[arg(long, value_name = "FILE")]
    databases: PathBuf,
    /// The table that is made in each; {part} stands for the part's name, here and in SQL.
    #[arg(long, value_name = "NAME")]
    table: String,
    /// SQL that makes the table; default: the key as text, coordinates as double precision, the rest as text.
    #[arg(long, value_name = "FILE")]
    define: Option<PathBuf>,
    /// SQL to run once the table has its rows: indexes, rights.
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,
    /// Take the place of tables of that name.
    #[arg(long)]
    replace: bool,
    /// Load these parts only.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    parts: Vec<String>,
}

/// Loads the parts of a map, each completely or not at all.
pub fn load(args: &LoadArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let map = super::sound(&args.map)?;
    let text = |file: &Option<PathBuf>| match file {
        Some(file) => fs::read_to_string(file)
            .map(Some)
            .with_context(|| format!("cannot read {}", file.display())),
        None => Ok(None),
    };
    let columns = Rows::open(&args.input, &map.key, &map.columns)?.names()?;
    let define = match text(&args.define)? {
        Some(define) => define,
        None => definition(&map, &args.table, &columns),
    };
    let work = Work {
        table: args.table.clone(),
        columns,
        new: Some(New {
            define,
            after: text(&args.after)?.unwrap_or_default(),
            replace: args.replace,
        }),
    };
    let places = places(&map, &args.databases, &args.table, &args.parts)?;
    let mut loading = Loading::new(&map, &args.input, work);
    super::runtime()?.block_on(loading.run(places, out))
}

fn definition(map: &Map, table: &str, columns: &[String]) -> String {
    let columns: Vec<String> = columns
        .iter()
        .map(|name| {
            let kind = match name {
                key if *key == map.key => "text PRIMARY KEY",
                one if map.columns.contains(one) => "double precision NOT NULL",
                _ => "text",
            };
            format!("{} {kind}", quoted(name))
        })
        .collect();
    format!("CREATE TABLE {} ({})", quoted(table), columns.join(", "))
}

/// Load in progress.
pub struct Loading<'a> {
    map: &'a Map,
    input: &'a Path,
    work: Arc<Work>,
    /// Completed parts, and their numbers of rows.
    pub done: Vec<(usize, u64)>,
}

type Channels = Vec<Option<mpsc::Sender<Message>>>;

impl<'a> Loading<'a> {
    /// Creates a load for a valid map.
    pub fn new(map: &'a Map, input: &'a Path, work: Work) -> Self {
        Loading {
            map,
            input,
            work: Arc::new(work),
            done: Vec::new(),
        }
    }

    /// Runs passes until all parts are loaded, or one cannot be.
    pub async fn run(
        &mut self,
        mut places: Vec<Place>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let (begin, all) = (Instant::now(), places.len());
        let mut waits = backoff(MIN_WAIT, MAX_WAIT);
        for attempt in 1..=ATTEMPTS {
            let hopeless;
            (places, hopeless) = self.pass(places, out).await?;
            if places.is_empty() {
                break;
            }
            if hopeless || attempt == ATTEMPTS {
                let names: Vec<&str> = places.iter().map(|it| self.name(it)).collect();
                bail!(
                    "{} of {all} parts are loaded; the others, once they can be: --parts {}",
                    self.done.len(),
                    names.join(",")
                );
            }
            tokio::time::sleep(waits.next().unwrap_or(MAX_WAIT)).await;
        }
        let rows: u64 = self.done.iter().map(|(_, rows)| rows).sum();
        let seconds = begin.elapsed().as_secs_f64();
        let rate = rows as f64 / seconds;
        writeln!(
            out,
            "{rows} rows into {all} parts in {seconds:.1} s: {rate:.0} rows/s"
        )?;
        Ok(())
    }

    /// Reads the file once. Returns the parts left, and whether any can never be loaded.
    async fn pass(
        &mut self,
        places: Vec<Place>,
        out: &mut impl Write,
    ) -> anyhow::Result<(Vec<Place>, bool)> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut channels: Channels = self.map.parts.iter().map(|_| None).collect();
        let (mut tasks, mut left, mut hopeless) = (JoinSet::new(), Vec::new(), false);
        for place in places {
            let (to, mut from) = mpsc::channel(CHUNKS);
            channels[place.part] = Some(to);
            let (work, stop, begin) = (Arc::clone(&self.work), Arc::clone(&stop), Instant::now());
            tasks.spawn(async move {
                let ended = work.run(&place, &mut from).await;
                if matches!(ended, Err(Fault::Refused(_))) {
                    stop.store(true, Ordering::Relaxed);
                }
                (place, ended, begin.elapsed())
            });
        }
        let read = tokio::task::block_in_place(|| self.read(&mut channels, &stop));
        drop(channels);
        while let Some(ended) = tasks.join_next().await {
            let (place, ended, took) = ended?;
            word("");
            let name = self.name(&place);
            match ended {
                Ok(rows) => {
                    let (database, seconds) = (&place.database.name, took.as_secs_f64());
                    writeln!(
                        out,
                        "{name:<8} {database:<16} {rows:>12} rows {seconds:>8.1} s"
                    )?;
                    self.done.push((place.part, rows));
                    continue;
                }
                Err(Fault::Stopped) => {}
                Err(Fault::Away(why)) => eprintln!("plimsoll: part {name}: {why}"),
                Err(Fault::Refused(why)) => {
                    eprintln!("plimsoll: part {name}: {why}");
                    hopeless = true;
                }
            }
            left.push(place);
        }
        read?;
        left.sort_by_key(|place| place.part);
        Ok((left, hopeless))
    }

    /// Sends every row to its part. If stopped, or if the file is invalid, no part gets an end, so that all are rolled
    /// back.
    fn read(&self, channels: &mut Channels, stop: &AtomicBool) -> anyhow::Result<()> {
        let (map, name) = (self.map, self.input.display());
        let mut rows = Rows::open(self.input, &map.key, &map.columns)?;
        let mut chunks = vec![Vec::new(); channels.len()];
        let mut counts = vec![0u64; channels.len()];
        while let Some(row) = rows.next()? {
            if stop.load(Ordering::Relaxed) || channels.iter().all(Option::is_none) {
                return Ok(());
            }
            let point = row.point.map_err(anyhow::Error::msg)?;
            let Some(part) = map.part_of(row.key, point) else {
                let (line, key) = (row.line, row.key);
                bail!("{name}: line {line}: key {key:?}: no part takes it");
            };
            counts[part] += 1;
            let Some(channel) = &channels[part] else {
                continue;
            };
            encode(row.fields.iter(), &mut chunks[part]);
            if chunks[part].len() >= CHUNK_BYTES {
                let full = std::mem::take(&mut chunks[part]);
                // The part's task reports the reason when it ends.
                if channel.blocking_send(Message::Rows(full.into())).is_err() {
                    channels[part] = None;
                }
            }
        }
        if self.work.new.is_some() {
            for (part, count) in map.parts.iter().zip(&counts) {
                if part.rows != *count {
                    let (part, rows) = (&part.name, part.rows);
                    bail!(
                        "{name}: {count} rows are of part {part:?}, the map has {rows}: it was made of another file"
                    );
                }
            }
        }
        word("the databases make their indexes");
        for ((channel, rest), count) in channels.iter().zip(chunks).zip(counts) {
            if let Some(channel) = channel {
                let sent = channel.blocking_send(Message::Rows(rest.into()));
                let _ = sent.and_then(|()| channel.blocking_send(Message::End(count)));
            }
        }
        Ok(())
    }

    fn name(&self, place: &Place) -> &'a str {
        &self.map.parts[place.part].name
    }
}
