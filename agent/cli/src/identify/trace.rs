//! Traces as CSV: parsed, validated, and split where periods are missing.

use std::{fs::File, io::Read, path::Path};

use anyhow::{Context, bail};
use csv::{ReaderBuilder, StringRecord, Trim};
use plimsoll_science::Segment;

/// Two days of one-second periods; a longer trace gives no better model.
const MAX_ROWS: usize = 200_000;
const MAX_BYTES: u64 = 64 << 20;
/// Smallest and largest accepted distance between two lines, in periods.
const CLOSEST: f64 = 0.5;
const FARTHEST: f64 = 1.5;

/// Column names.
#[derive(Clone, Debug)]
pub struct Columns {
    pub time: String,
    pub delay: String,
    pub load: String,
    /// Ignored if `None`.
    pub finished: Option<String>,
}

/// A parsed trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Segments without gaps.
    pub segments: Vec<Segment>,
    /// Median time between two lines, in seconds.
    pub period: f64,
    /// Number of lines.
    pub rows: usize,
    /// Number of gaps: places where lines are missing.
    pub gaps: usize,
    /// Number of times the clock goes back, as after an agent's restart.
    pub resets: usize,
    /// Number of lines without a delay or a load.
    pub empty: usize,
}

struct Row {
    line: u64,
    time: f64,
    delay: Option<f64>,
    load: Option<f64>,
}

/// Reads a file.
pub fn open(path: &Path, columns: &Columns) -> anyhow::Result<Trace> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    read(file, &name, columns)
}

/// Reads a trace; `name` appears in error messages.
pub fn read(from: impl Read, name: &str, columns: &Columns) -> anyhow::Result<Trace> {
    let rows = rows(from, name, columns)?;
    let mut apart: Vec<f64> = rows
        .windows(2)
        .map(|two| two[1].time - two[0].time)
        .collect();
    apart.retain(|apart| *apart > 0.0);
    if apart.is_empty() {
        bail!(
            "{name}: {} lines, but the time in column {:?} never advances",
            rows.len(),
            columns.time
        );
    }
    let middle = apart.len() / 2;
    let (_, period, _) = apart.select_nth_unstable_by(middle, f64::total_cmp);
    let period = *period;
    let mut made = Trace {
        segments: vec![Segment::default()],
        period,
        rows: rows.len(),
        gaps: 0,
        resets: 0,
        empty: 0,
    };
    let mut before: Option<f64> = None;
    for row in &rows {
        let apart = before.map_or(period, |before| row.time - before);
        before = Some(row.time);
        if (0.0..CLOSEST * period).contains(&apart) {
            bail!(
                "{name}: line {}: column {:?}: only {apart} s after the previous line, but a period is {period} s: \
                 one line per period is required",
                row.line,
                columns.time
            );
        }
        made.resets += usize::from(apart < 0.0);
        made.gaps += usize::from(apart > FARTHEST * period);
        let follows = (0.0..=FARTHEST * period).contains(&apart);
        let (Some(delay), Some(load)) = (row.delay, row.load) else {
            made.empty += 1;
            made.segments.push(Segment::default());
            continue;
        };
        if !follows {
            made.segments.push(Segment::default());
        }
        if let Some(segment) = made.segments.last_mut() {
            segment.push(load, delay);
        }
    }
    made.segments.retain(|segment| !segment.is_empty());
    if made.segments.is_empty() {
        bail!(
            "{name}: no line has numbers in both column {:?} and column {:?}",
            columns.delay,
            columns.load
        );
    }
    Ok(made)
}

fn rows(from: impl Read, name: &str, columns: &Columns) -> anyhow::Result<Vec<Row>> {
    let mut bytes = from.take(MAX_BYTES + 1);
    let mut reader = ReaderBuilder::new()
        .trim(Trim::All)
        .from_reader(bytes.by_ref());
    let header = reader.headers().with_context(|| name.to_owned())?.clone();
    let place = |wanted: &str| {
        header
            .iter()
            .position(|column| column == wanted)
            .with_context(|| {
                let known: Vec<&str> = header.iter().collect();
                format!(
                    "{name}: no column {wanted:?}; the columns are {}",
                    known.join(", ")
                )
            })
    };
    let (time, delay, load) = (
        place(&columns.time)?,
        place(&columns.delay)?,
        place(&columns.load)?,
    );
    let finished = columns.finished.as_deref().map(place).transpose()?;
    let mut rows = Vec::new();
    let mut record = StringRecord::new();
    while reader
        .read_record(&mut record)
        .with_context(|| name.to_owned())?
    {
        if rows.len() == MAX_ROWS {
            bail!("{name}: more than the limit of {MAX_ROWS} lines");
        }
        let line = record.position().map_or(0, csv::Position::line);
        let number =
            |at: usize| number(&record[at], line, &header[at]).with_context(|| name.to_owned());
        let Some(time) = number(time)? else {
            bail!(
                "{name}: line {line}: column {:?}: missing time",
                columns.time
            );
        };
        let idle = finished.map(number).transpose()?.flatten() == Some(0.0);
        let measured = |at: usize| match number(at)? {
            Some(value) if value < 0.0 => {
                bail!(
                    "{name}: line {line}: column {:?}: {value} must not be negative",
                    &header[at]
                )
            }
            value => Ok(value),
        };
        rows.push(Row {
            line,
            time,
            delay: measured(delay)?.filter(|_| !idle),
            load: measured(load)?,
        });
    }
    if reader.position().byte() > MAX_BYTES {
        bail!("{name}: more than the limit of {} MiB", MAX_BYTES >> 20);
    }
    Ok(rows)
}

/// Parses a cell; empty and NaN cells are `None`.
fn number(text: &str, line: u64, column: &str) -> anyhow::Result<Option<f64>> {
    if text.is_empty() || text.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Some(number)),
        _ => {
            let shown: String = text.chars().take(40).collect();
            bail!("line {line}: column {column:?}: {shown:?} is not a number")
        }
    }
}
