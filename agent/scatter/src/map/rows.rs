//! Sequential reading of CSV files.

use std::{
    fs::File,
    io::{IsTerminal, Write},
    path::Path,
};

use anyhow::{Context, bail};
use csv::{Reader, ReaderBuilder, StringRecord, Trim};
use plimsoll_science::cluster::LARGEST;

/// Rows between two progress messages.
const WORD_EVERY: u64 = 1 << 16;

/// Reader of a file.
pub struct Rows {
    name: String,
    reader: Reader<File>,
    record: StringRecord,
    key: (usize, String),
    columns: Vec<(usize, String)>,
    point: Vec<f64>,
    count: u64,
}

/// A row.
pub struct Row<'a> {
    /// Number of its first line.
    pub line: u64,
    /// Its key.
    pub key: &'a str,
    /// Its coordinates, or the reason for which one is invalid.
    pub point: Result<&'a [f64], String>,
    /// All of its fields.
    pub fields: &'a StringRecord,
}

impl Rows {
    /// Opens a file; a missing column is an error.
    pub fn open(path: &Path, key: &str, columns: &[String]) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(file);
        let header = reader.headers().with_context(|| name.clone())?.clone();
        let place = |wanted: &str| {
            let mut places = (0..header.len()).filter(|at| &header[*at] == wanted);
            match (places.next(), places.next()) {
                (Some(at), None) => Ok((at, wanted.to_owned())),
                (Some(_), Some(_)) => bail!("{name}: line 1: there are two columns {wanted:?}"),
                (None, _) => {
                    let known: Vec<&str> = header.iter().collect();
                    bail!(
                        "{name}: line 1: no column {wanted:?}; it has {}",
                        known.join(", ")
                    )
                }
            }
        };
        Ok(Self {
            key: place(key)?,
            columns: columns
                .iter()
                .map(|one| place(one))
                .collect::<anyhow::Result<_>>()?,
            name,
            reader,
            record: StringRecord::new(),
            point: Vec::new(),
            count: 0,
        })
    }

    /// Names of all columns.
    pub fn names(&mut self) -> anyhow::Result<Vec<String>> {
        let header = self.reader.headers().with_context(|| self.name.clone())?;
        Ok(header.iter().map(str::to_owned).collect())
    }

    /// The next row; `None` at the end.
    pub fn next(&mut self) -> anyhow::Result<Option<Row<'_>>> {
        let more = self.reader.read_record(&mut self.record);
        if !more.with_context(|| self.name.clone())? {
            return Ok(None);
        }
        self.count += 1;
        if self.count.is_multiple_of(WORD_EVERY) {
            word(&format!("{}: {} rows", self.name, self.count));
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        let key = &self.record[self.key.0];
        if key.is_empty() {
            bail!(
                "{}: line {line}: column {:?}: the key is missing",
                self.name,
                self.key.1
            );
        }
        self.point.clear();
        let mut wrong = None;
        for (at, column) in &self.columns {
            match number(&self.record[*at]) {
                Ok(value) => self.point.push(value),
                Err(why) => {
                    wrong = Some(format!(
                        "{}: line {line}: column {column:?}: {why}",
                        self.name
                    ));
                    break;
                }
            }
        }
        Ok(Some(Row {
            line,
            key,
            point: wrong.map_or(Ok(&self.point), Err),
            fields: &self.record,
        }))
    }

    /// Visits the remaining rows; the first row without valid coordinates is an error.
    pub fn each(
        &mut self,
        mut f: impl FnMut(&str, &[f64]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while let Some(row) = self.next()? {
            f(row.key, row.point.map_err(anyhow::Error::msg)?)?;
        }
        word("");
        Ok(())
    }
}

fn number(text: &str) -> Result<f64, String> {
    if text.is_empty() {
        return Err("the value is missing".to_owned());
    }
    match text.parse::<f64>() {
        Ok(value) if value.abs() <= LARGEST => Ok(value),
        _ => {
            let shown: String = text.chars().take(40).collect();
            Err(format!(
                "{shown:?} is not a number from -{LARGEST:e} to {LARGEST:e}"
            ))
        }
    }
}

/// Shows progress in one line on a terminal.
pub fn word(text: &str) {
    let mut to = std::io::stderr().lock();
    if to.is_terminal() {
        // Progress that cannot be shown is no error.
        let _ = write!(to, "\r\x1b[K{text}").and_then(|()| to.flush());
    }
}
