//! Databases of the parts, and sessions in them.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::bail;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::file::Map;
use crate::partition::{Driver, PartitionDatabase, Trouble, databases, login};

/// Application name of the sessions.
const APPLICATION: &str = "plimsoll-load";
const LOGIN_WAIT: Duration = Duration::from_secs(10);

/// Location of a part.
pub struct Place {
    /// Index of the part in the map.
    pub part: usize,
    /// Name of the part in the map.
    pub name: String,
    /// Its database.
    pub database: PartitionDatabase,
}

/// Placeholder for the part's name.
const PART: &str = "{part}";

impl Place {
    /// The text with the part's name in place of its placeholders.
    pub fn named(&self, text: &str) -> String {
        text.replace(PART, &self.name)
    }
}

/// Locations of the parts in `only`, or of all if that is empty. Two parts with the same table in one database are an
/// error.
pub fn places(map: &Map, file: &Path, table: &str, only: &[String]) -> anyhow::Result<Vec<Place>> {
    let name = file.display();
    let known = databases(file)?;
    let number = |wanted: &str| map.parts.iter().position(|part| part.name == wanted);
    let mut taken = BTreeMap::new();
    for (part, one) in &known {
        if number(part).is_none() {
            bail!("{name}: the map has no part {part:?}");
        }
        let whose = (format!("{:?}", one.address), &one.name, &one.user);
        let other = taken.insert(whose, part);
        if let (Some(other), false) = (other, table.contains(PART)) {
            bail!(
                "{name}: {other:?} and {part:?} have the same database and user: --table must have {PART} in it"
            );
        }
    }
    if let Some(wrong) = only.iter().find(|one| number(one).is_none()) {
        bail!("--parts: the map has no part {wrong:?}");
    }
    let mut places = Vec::new();
    for (part, one) in map.parts.iter().enumerate() {
        if !only.is_empty() && !only.contains(&one.name) {
            continue;
        }
        match known.iter().find(|(name, _)| *name == one.name) {
            Some((name, database)) => places.push(Place {
                part,
                name: name.clone(),
                database: database.clone(),
            }),
            None => bail!("{name}: part {:?} has no database", one.name),
        }
    }
    Ok(places)
}

/// Reason for which a part was not loaded.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The database is unavailable, or the connection broke: a retry may succeed.
    Away(String),
    /// A retry would fail again.
    Refused(String),
    /// The load was cancelled.
    Stopped,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let Some(said) = error.as_db_error() else {
            return Fault::Away(format!("{:#}", anyhow::Error::from(error)));
        };
        let mut text = format!("{} ({})", said.message(), said.code().code());
        for more in [said.detail(), said.where_()].into_iter().flatten() {
            text = format!("{text}; {more}");
        }
        // Connections, conflicts, resources, locks and operators, the system.
        let passes = ["08", "40", "53", "55", "57", "58", "XX"];
        match passes.iter().any(|it| said.code().code().starts_with(it)) {
            true => Fault::Away(text),
            false => Fault::Refused(text),
        }
    }
}

/// Connection to a database; closing it rolls back an open transaction.
pub struct Session {
    /// Client of the connection.
    pub client: Client,
    _driver: Driver,
}

impl Session {
    /// Connects and logs in.
    pub async fn open(database: &PartitionDatabase) -> Result<Self, Fault> {
        match timeout(LOGIN_WAIT, login(database, APPLICATION, "")).await {
            Ok(Ok((client, driver))) => Ok(Session {
                client,
                _driver: driver,
            }),
            Ok(Err(Trouble::Refused(why))) => Err(Fault::Refused(why)),
            Ok(Err(other)) => Err(Fault::Away(other.to_string())),
            Err(_) => {
                let seconds = LOGIN_WAIT.as_secs();
                Err(Fault::Away(format!("no login within {seconds} s")))
            }
        }
    }

    /// Runs statements without results.
    pub async fn run(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Value of a query with one row and column; `None` if it is null.
    pub async fn value(&self, sql: &str) -> Result<Option<String>, Fault> {
        let said = self.client.simple_query(sql).await?;
        let row = said.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(row.and_then(|row| row.get(0).map(str::to_owned)))
    }
}

/// Quotes an SQL identifier.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// SQL string literal, under either setting of `standard_conforming_strings`.
pub fn literal(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "''");
    format!("E'{text}'")
}
