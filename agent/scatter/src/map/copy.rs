//! Loads one part into its database, completely or not at all.

use std::{pin::pin, time::Duration};

use futures_util::SinkExt;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::bytes::Bytes;

use super::databases::{Fault, Place, Session, literal, quoted};

/// Time without progress after which a database counts as unavailable.
const STALL: Duration = Duration::from_secs(60);
/// Timeout for the lock of a table that others read, in seconds.
const LOCK_WAIT_S: u32 = 30;
/// Attempts to find out whether a commit succeeded.
const LOOKS: usize = 6;
/// Pause between two attempts.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// Message to the task that loads a part.
pub enum Message {
    /// Rows in PostgreSQL's text format.
    Rows(Bytes),
    /// End of the rows, with their number. If the channel ends without it, the load is rolled back.
    End(u64),
}

/// Work to do in every database.
pub struct Work {
    /// Name of the table; here and below `{part}` stands for the part's name.
    pub table: String,
    /// Columns of the rows.
    pub columns: Vec<String>,
    /// Definition of a new table; `None` to append to an existing one.
    pub new: Option<New>,
}

/// Definition of a new table.
pub struct New {
    /// SQL that creates the table.
    pub define: String,
    /// SQL to run once the table has its rows.
    pub after: String,
    /// Whether the table replaces an existing one of its name.
    pub replace: bool,
}

impl Work {
    /// Loads a part in one transaction. A new table is created in a schema of its own and moved into place at the
    /// end, so that readers of the old one do not wait for the rows.
    pub async fn run(
        &self,
        place: &Place,
        messages: &mut mpsc::Receiver<Message>,
    ) -> Result<u64, Fault> {
        let session = Session::open(&place.database).await?;
        let name = place.named(&self.table);
        let table = quoted(&name);
        // A role's statement timeout is not meant for loads.
        let begin = format!(
            "BEGIN; SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'; SET LOCAL statement_timeout = 0"
        );
        session.run(&begin).await?;
        let schema = match &self.new {
            Some(new) => Some(make(new, &name, place, &session).await?),
            None => None,
        };
        let rows = self.copy(&session, &table, messages).await?;
        if let (Some(new), Some(schema)) = (&self.new, &schema) {
            session.run(&place.named(&new.after)).await?;
            let home = session
                .value("SELECT pg_catalog.current_setting('plimsoll.home')")
                .await?
                .unwrap_or_default();
            session
                .run(&format!(
                    "DROP TABLE IF EXISTS {home}.{table}; ALTER TABLE {schema}.{table} SET SCHEMA {home}; \
                     DROP SCHEMA {schema}; ANALYZE {home}.{table}"
                ))
                .await?;
        }
        let number = session.value("SELECT pg_catalog.pg_current_xact_id()");
        let number = number.await?.unwrap_or_default();
        match session.run("COMMIT").await {
            Err(Fault::Away(why)) => committed(place, &number, &why).await?,
            other => other?,
        }
        Ok(rows)
    }

    async fn copy(
        &self,
        session: &Session,
        table: &str,
        messages: &mut mpsc::Receiver<Message>,
    ) -> Result<u64, Fault> {
        let columns: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        let copy = format!("COPY {table} ({}) FROM STDIN", columns.join(", "));
        let mut sink = pin!(session.client.copy_in::<_, Bytes>(&copy).await?);
        let told = loop {
            match messages.recv().await {
                Some(Message::Rows(rows)) => {
                    let sent = timeout(STALL, sink.send(rows)).await;
                    let seconds = STALL.as_secs();
                    sent.map_err(|_| Fault::Away(format!("it took no rows for {seconds} s")))??;
                }
                Some(Message::End(rows)) => break rows,
                None => return Err(Fault::Stopped),
            }
        };
        match sink.finish().await? {
            rows if rows == told => Ok(rows),
            rows => Err(Fault::Refused(format!(
                "it took {rows} rows of {told}: is there a trigger or a rule?"
            ))),
        }
    }
}

/// Creates the empty table; returns its schema.
async fn make(new: &New, name: &str, place: &Place, session: &Session) -> Result<String, Fault> {
    let home = session.value("SELECT pg_catalog.quote_ident(pg_catalog.current_schema())");
    let Some(home) = home.await? else {
        let why = "the user has no schema to make tables in: see search_path";
        return Err(Fault::Refused(why.to_owned()));
    };
    let table = quoted(name);
    if !new.replace {
        let there = format!(
            "SELECT pg_catalog.to_regclass({})",
            literal(&format!("{home}.{table}"))
        );
        if session.value(&there).await?.is_some() {
            let why = format!("there is a table {name:?} already; --replace replaces it");
            return Err(Fault::Refused(why));
        }
    }
    // Several parts may be loaded into one database at the same time.
    let schema = format!("plimsoll_load_{:016x}", fastrand::u64(..));
    session
        .run(&format!(
            "SET LOCAL plimsoll.home = {}; CREATE SCHEMA {schema}; \
             SELECT pg_catalog.set_config('search_path', '{schema}, ' || pg_catalog.current_setting('search_path'), true)",
            literal(&home)
        ))
        .await?;
    session.run(&place.named(&new.define)).await?;
    let made = format!(
        "SELECT pg_catalog.to_regclass('{schema}.' || {})",
        literal(&table)
    );
    if session.value(&made).await?.is_none() {
        let why = format!("--define makes no table {name:?}, or in a schema that it names");
        return Err(Fault::Refused(why));
    }
    Ok(schema)
}

/// Determines whether a transaction was committed, after the connection broke during the commit.
async fn committed(place: &Place, number: &str, why: &str) -> Result<(), Fault> {
    let ask = format!("SELECT pg_catalog.pg_xact_status('{number}')");
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK_PAUSE).await;
        let Ok(session) = Session::open(&place.database).await else {
            continue;
        };
        match session.value(&ask).await {
            Ok(Some(state)) if state == "committed" => return Ok(()),
            Ok(Some(state)) if state == "aborted" => return Err(Fault::Away(why.to_owned())),
            _ => {}
        }
    }
    Err(Fault::Refused(format!(
        "it broke off in its commit, and what became of that is not known ({why}); `partition check` tells"
    )))
}

/// Appends a row in PostgreSQL's text format; an empty value is null.
pub fn encode<'a>(fields: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    for (at, field) in fields.enumerate() {
        if at > 0 {
            out.push(b'\t');
        }
        if field.is_empty() {
            out.extend_from_slice(b"\\N");
        }
        for byte in field.bytes() {
            match byte {
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                other => out.push(other),
            }
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn separators_are_escaped() {
        let mut out = Vec::new();
        encode(["a\tb", "", "\\.", "two\r\nlines"].into_iter(), &mut out);
        assert_eq!(out, b"a\\tb\t\\N\t\\\\.\ttwo\\r\\nlines\n");
    }
}
