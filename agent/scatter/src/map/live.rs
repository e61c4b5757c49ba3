//! Comparison of databases with a partition map.

use std::{
    io::Write,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_science::cluster::LARGEST;
use tokio::{task::JoinSet, time::timeout};
use tokio_postgres::{Error, Row};
use tokio_stream::StreamExt;

use super::{
    NAMED,
    databases::{Fault, Place, Session, quoted},
    file::Map,
    rows::word,
};

/// Time without a row after which a database counts as unavailable.
const STALL: Duration = Duration::from_secs(60);

/// Result of reading a database.
#[derive(Default)]
struct Found {
    rows: u64,
    /// Number of rows that belong to other parts or to none; `said` describes the first ones.
    strangers: u64,
    said: Vec<String>,
}

/// Reads all keys and coordinates, and reports differences from the map.
pub async fn compare(
    map: &Map,
    places: Vec<Place>,
    table: &str,
    out: &mut impl Write,
) -> anyhow::Result<Vec<String>> {
    let (begin, all) = (Instant::now(), places.len());
    let map = Arc::new(map.clone());
    let mut tasks = JoinSet::new();
    for place in places {
        let (map, query) = (Arc::clone(&map), query(&map, &place.named(table)));
        tasks.spawn(async move {
            let found = read(&map, &place, &query).await;
            (place.part, found)
        });
    }
    let (mut faults, mut rows, mut done) = (Vec::new(), 0, 0);
    while let Some(ended) = tasks.join_next().await {
        let (at, found) = ended?;
        let part = &map.parts[at];
        match found {
            Ok(found) => {
                rows += found.rows;
                if found.rows != part.rows {
                    let (name, wanted) = (&part.name, part.rows);
                    let fault = format!(
                        "part {name}: the database has {} rows, the map {wanted}",
                        found.rows
                    );
                    faults.push((at, fault));
                }
                faults.extend(found.said.into_iter().map(|said| (at, said)));
                if found.strangers > 0 {
                    let count = found.strangers;
                    faults.push((
                        at,
                        format!("part {}: {count} rows belong elsewhere", part.name),
                    ));
                }
            }
            Err(Fault::Away(why) | Fault::Refused(why)) => {
                faults.push((at, format!("part {}: {why}", part.name)));
            }
            Err(Fault::Stopped) => {}
        }
        done += 1;
        word(&format!("{done} of {all} databases are read"));
    }
    word("");
    let seconds = begin.elapsed().as_secs_f64();
    writeln!(out, "{rows} rows read in {all} databases in {seconds:.1} s")?;
    faults.sort_by_key(|(at, _)| *at);
    Ok(faults.into_iter().map(|(_, fault)| fault).collect())
}

fn query(map: &Map, table: &str) -> String {
    let mut columns = vec![format!("{}::text", quoted(&map.key))];
    let coordinates = map.columns.iter();
    columns.extend(coordinates.map(|column| format!("{}::double precision", quoted(column))));
    format!("SELECT {} FROM {}", columns.join(", "), quoted(table))
}

async fn read(map: &Map, place: &Place, query: &str) -> Result<Found, Fault> {
    let session = Session::open(&place.database).await?;
    session
        .run("BEGIN READ ONLY; SET LOCAL statement_timeout = 0")
        .await?;
    let rows = session.client.query_raw::<_, &str, _>(query, []).await?;
    let mut rows = pin!(rows);
    let (mut found, mut point) = (Found::default(), Vec::new());
    loop {
        let Ok(row) = timeout(STALL, rows.next()).await else {
            let seconds = STALL.as_secs();
            return Err(Fault::Away(format!("it gave no row for {seconds} s")));
        };
        let Some(row) = row else { return Ok(found) };
        let row = row?;
        found.rows += 1;
        let why = match belongs(map, &row, &mut point)? {
            Ok((_, Some(part))) if part == place.part => continue,
            Ok((key, Some(part))) => format!("key {key:?} belongs to {:?}", map.parts[part].name),
            Ok((key, None)) => format!("key {key:?} belongs nowhere"),
            Err(why) => why,
        };
        found.strangers += 1;
        if found.said.len() < NAMED {
            let name = &map.parts[place.part].name;
            found.said.push(format!("part {name}: {why}"));
        }
    }
}

/// Key and part of a row, or the reason for which the row is invalid.
type Belongs<'a> = Result<(&'a str, Option<usize>), String>;

fn belongs<'a>(map: &Map, row: &'a Row, point: &mut Vec<f64>) -> Result<Belongs<'a>, Error> {
    let Some(key) = row.try_get::<_, Option<&str>>(0)? else {
        return Ok(Err("a row has no key".to_owned()));
    };
    point.clear();
    for (at, column) in map.columns.iter().enumerate() {
        match row.try_get::<_, Option<f64>>(at + 1)? {
            Some(value) if value.abs() <= LARGEST => point.push(value),
            Some(value) => {
                let why = format!("{value} is not a number from -{LARGEST:e} to {LARGEST:e}");
                return Ok(Err(format!("key {key:?}: column {column:?}: {why}")));
            }
            None => {
                let why = "the value is missing";
                return Ok(Err(format!("key {key:?}: column {column:?}: {why}")));
            }
        }
    }
    Ok(Ok((key, map.part_of(key, point))))
}
