//! `plimsoll partition load`, and `check` and `extend` of what is in databases, on a real PostgreSQL.

use std::{
    fmt::Write,
    fs,
    process::{Child, Command, Stdio},
};

use crate::support::databases::PostgreSql;
use crate::support::wait_for;
use serde_json::Value;
use tempfile::TempDir;

const PARTS: usize = 3;
const LOAD: &str = "load map.json --input rows.csv --databases databases.toml --table items";
const CHECK: &str = "check map.json --databases databases.toml --table items";

/// A file of 3,000 rows in three clusters, its map, and a database for each part.
struct Place {
    server: PostgreSql,
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let server = PostgreSql::start();
        let directory = TempDir::new().unwrap();
        let (mut rows, mut list) = ("id,x,y,note\n".to_owned(), String::new());
        for row in 0..3000 {
            let (x, y) = (100 * (row % 7 % 3), row % 11);
            let note = ["", "plain", "\"two\nlines, \\N\""][row % 3];
            writeln!(rows, "k{row},{x}.1,{y},{note}").unwrap();
        }
        let socket = server.socket().display().to_string();
        for part in 1..=PARTS {
            server.sql(&format!("CREATE DATABASE d{part}"));
            write!(
                list,
                "[[partition]]\nname = \"p{part}\"\naddress = \"unix://{socket}\"\nuser = \"postgres\"\n\
                 database = \"d{part}\"\n"
            )
            .unwrap();
        }
        let place = Place { server, directory };
        place.write("rows.csv", &rows);
        place.write("databases.toml", &list);
        place.fine("make --input rows.csv --key id --columns x,y --parts 3 --by clusters --output map.json");
        place
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.current_dir(self.directory.path()).arg("partition");
        command.args(arguments.split(' '));
        command
    }

    fn run(&self, arguments: &str) -> (bool, String) {
        let out = self.command(arguments).output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8(said).unwrap())
    }

    #[track_caller]
    fn fine(&self, arguments: &str) -> String {
        let (fine, said) = self.run(arguments);
        assert!(fine, "{said}");
        said
    }

    #[track_caller]
    fn refused(&self, arguments: &str, what: &str) {
        let (fine, said) = self.run(arguments);
        assert!(!fine && said.contains(what), "{said}");
    }

    fn begin(&self, arguments: &str) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Runs a statement in a partition's database.
    fn sql(&self, part: usize, statement: &str) -> String {
        let said = self.server.sql_in(&format!("d{part}"), statement);
        said.trim().to_owned()
    }

    /// Tables and schemas that loads made, in all databases.
    fn left_over(&self) -> usize {
        let query = "SELECT count(*) FROM pg_class, pg_namespace AS n WHERE relnamespace = n.oid AND relname = 'items' \
                     OR nspname LIKE 'plimsoll%'";
        (1..=PARTS)
            .filter(|part| self.sql(*part, query) != "0")
            .count()
    }

    fn sessions(&self) -> String {
        let count =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plimsoll-load'";
        self.server.sql(count).trim().to_owned()
    }

    fn rows(&self) -> Vec<u64> {
        let map: Value = serde_json::from_str(&self.read("map.json")).unwrap();
        let parts = map["parts"].as_array().unwrap().iter();
        parts.map(|part| part["rows"].as_u64().unwrap()).collect()
    }
}

#[test]
fn every_part_is_in_its_database_and_check_sees_what_is_not() {
    let place = Place::new();
    let said = place.fine(LOAD);
    assert!(
        said.contains("3000 rows into 3 parts") && said.contains("rows/s"),
        "{said}"
    );
    for (at, rows) in place.rows().into_iter().enumerate() {
        assert_eq!(
            place.sql(at + 1, "SELECT count(*) FROM items"),
            rows.to_string()
        );
    }
    let notes = "SELECT count(*) FILTER (WHERE note IS NULL) > 0, count(*) FILTER (WHERE note = E'two\\nlines, \\\\N') > 0, \
                 count(DISTINCT note) FROM items";
    assert_eq!(place.sql(1, notes), "t|t|2");
    place.fine(CHECK);

    place.refused(LOAD, "part p1: there is a table \"items\" already");
    place.write("define.sql", "CREATE TABLE items (id text, x real, y float8, note text, sum float8 GENERATED ALWAYS AS (x + y) STORED)");
    place.write(
        "after.sql",
        "CREATE INDEX ON items (sum); CREATE TABLE IF NOT EXISTS loads (at timestamptz)",
    );
    // The old table is there for its readers until the end.
    place.fine(&format!("{LOAD} --replace --define define.sql"));
    assert_eq!(
        place.sql(2, "SELECT count(*) FROM items WHERE sum = x + y"),
        place.rows()[1].to_string()
    );

    // A row too few, one that is another part's, and one without a coordinate.
    place.sql(
        1,
        "DELETE FROM items WHERE id = (SELECT min(id) FROM items)",
    );
    place.sql(
        2,
        "UPDATE items SET x = CASE WHEN x > 150 THEN 0 ELSE x + 100 END WHERE id = (SELECT min(id) FROM items)",
    );
    place.sql(
        3,
        "UPDATE items SET y = 'NaN' WHERE id = (SELECT min(id) FROM items)",
    );
    let (fine, said) = place.run(CHECK);
    assert!(!fine);
    for what in [
        &format!(
            "part p1: the database has {} rows, the map {}",
            place.rows()[0] - 1,
            place.rows()[0]
        ),
        "part p2: 1 rows belong elsewhere",
        "column \"y\": NaN is not a number",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    place.sql(1, "DROP TABLE items");
    place.refused(CHECK, "part p1: relation \"items\" does not exist");
}

#[test]
fn new_rows_are_added_and_counted_or_neither() {
    let place = Place::new();
    place.fine(LOAD);
    let before = place.rows();
    place.write("new.csv", "y,id,x,note\n1,n1,0,\n1,n2,99,a\n1,n3,99,b\n");
    let extend = "extend map.json --input new.csv --databases databases.toml --table items";
    place.fine(extend);
    let after = place.rows();
    assert_eq!(after.iter().sum::<u64>(), before.iter().sum::<u64>() + 3);
    place.fine(CHECK);
    // The same keys again.
    place.refused(extend, "duplicate key value violates unique constraint");
    place.write("new.csv", "y,id,x,note\n1,n4,0,\nNaN,n5,99,a\n");
    place.refused(
        extend,
        "new.csv: line 3: column \"y\": \"NaN\" is not a number",
    );
    assert_eq!(place.rows(), after);
    place.fine(CHECK);
}

#[test]
fn what_is_wrong_leaves_nothing_behind() {
    let place = Place::new();
    let rows = place.read("rows.csv");
    place.write("fewer.csv", &rows.replace("\nk0,0.1,0,\n", "\n"));
    place.refused(
        &LOAD.replace("rows.csv", "fewer.csv"),
        "it was made of another file",
    );
    place.write("bad.csv", &format!("{rows}k3000,,1,\n"));
    place.refused(
        &LOAD.replace("rows.csv", "bad.csv"),
        "line 4002: column \"x\": the value is missing",
    );
    place.write(
        "define.sql",
        "CREATE TABLE items (id text, x float8, y float8, note int)",
    );
    place.refused(
        &format!("{LOAD} --define define.sql"),
        "invalid input syntax for type integer",
    );
    place.write("define.sql", "CREATE TABLE public.other (id text)");
    place.refused(
        &format!("{LOAD} --define define.sql"),
        "makes no table \"items\"",
    );
    place.write("after.sql", "SELECT 1 / 0");
    place.refused(&format!("{LOAD} --after after.sql"), "division by zero");
    place.refused(&format!("{LOAD} --parts p9"), "the map has no part \"p9\"");
    let list = place.read("databases.toml");
    place.write("databases.toml", &list.replace("d3", "d2"));
    place.refused(LOAD, "\"p2\" and \"p3\" have the same database");
    place.write(
        "define.sql",
        "CREATE TABLE {part} (id text, x float8, y float8, note text)",
    );
    let by_part = |command: &str| command.replace("items", "{part}");
    place.fine(&format!("{} --define define.sql", by_part(LOAD)));
    place.fine(&by_part(CHECK));
    assert_eq!(
        place.sql(2, "SELECT count(*) FROM p3"),
        place.rows()[2].to_string()
    );
    place.write("databases.toml", list.rsplit_once("[[").unwrap().0);
    place.refused(LOAD, "part \"p3\" has no database");
    place.write("databases.toml", &list.replace("user", "usr"));
    place.refused(LOAD, "databases.toml:4: partition[0].usr: unknown field");
    let service = "[[partition]]\nname = \"p1\"\nurl = \"http://127.0.0.1:9/\"\n";
    place.write("databases.toml", service);
    for command in [LOAD, CHECK] {
        place.refused(
            command,
            "databases.toml:3: partition[0].url: must be a database",
        );
    }
    assert_eq!(place.left_over(), 0);
}

#[test]
fn a_load_that_is_killed_leaves_no_half_part() {
    let place = Place::new();
    place.fine(LOAD);
    place.write("after.sql", "DELETE FROM items; SELECT pg_sleep(600)");
    let mut load = place.begin(&format!("{LOAD} --replace --after after.sql"));
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_for("all rows are there", || {
        (place.server.sql(asleep).trim() == "3").then_some(())
    });
    // Whoever reads is not kept waiting.
    place.fine(CHECK);
    load.kill().unwrap();
    load.wait().unwrap();
    place
        .server
        .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    wait_for("no session", || (place.sessions() == "0").then_some(()));
    place.fine(CHECK);
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'plimsoll%'";
    assert_eq!(place.sql(1, schemas), "0");
}

#[test]
fn a_database_that_is_away_is_tried_again() {
    let mut place = Place::new();
    place.server.kill();
    let mut load = place.begin(LOAD);
    place.server.start_again();
    assert!(load.wait().unwrap().success());
    place.fine(CHECK);

    // One that breaks off amid the rows is not loaded twice.
    place.write("after.sql", "SELECT pg_sleep(CASE WHEN current_database() = 'd2' AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'second') THEN 600 ELSE 0 END)");
    let mut load = place.begin(&format!("{LOAD} --replace --after after.sql"));
    let asleep =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = 'd2'";
    wait_for("one waits", || {
        (place.server.sql(asleep).trim() == "1").then_some(())
    });
    place.server.sql("CREATE ROLE second");
    place
        .server
        .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    assert!(load.wait().unwrap().success());
    place.fine(CHECK);
}
