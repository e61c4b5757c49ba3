//! The databases that the parts are in, and one session in each.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::bail;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::file::Map;
use crate::partition::{Driver, PartitionDatabase, Trouble, databases, login};

/// Name of the sessions in the servers' lists.
const APPLICATION: &str = "plimsoll-load";
const LOGIN_WAIT: Duration = Duration::from_secs(10);

/// Where a part is.
pub struct Place {
    /// Its number in the map.
    pub part: usize,
    /// Its name there.
    pub name: String,
    /// Its database.
    pub database: PartitionDatabase,
}

/// Stands for the part's name.
const PART: &str = "{part}";

impl Place {
    /// A text with the part's name in it where that is wanted.
    pub fn named(&self, text: &str) -> String {
        text.replace(PART, &self.name)
    }
}

/// The databases of these parts, or of all where none is named; no two have the same table in the same one.
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

/// Why a part is not done.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Its database is not there, or broke off: it may be later.
    Away(String),
    /// It would be the same again.
    Refused(String),
    /// It is not wanted any more.
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

/// A connection; what is not committed goes with it.
pub struct Session {
    /// To ask by.
    pub client: Client,
    _driver: Driver,
}

impl Session {
    /// Logs in.
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

    /// Statements without an answer.
    pub async fn run(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The one value of a query; none where it is null.
    pub async fn value(&self, sql: &str) -> Result<Option<String>, Fault> {
        let said = self.client.simple_query(sql).await?;
        let row = said.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(row.and_then(|row| row.get(0).map(str::to_owned)))
    }
}

/// A name as SQL has it.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL has it, however backslashes are read.
pub fn literal(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "''");
    format!("E'{text}'")
}
