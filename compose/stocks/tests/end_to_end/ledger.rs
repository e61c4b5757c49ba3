//! Responses of `stocks ledger` to writes on a primary, on a standby, and with its database unavailable.

use crate::support::postgres::{Databases, Server};
use crate::support::{Node, until};

const TABLES: &str = "CREATE TABLE entries (id text PRIMARY KEY); \
     CREATE TABLE beat (n bigint); INSERT INTO beat VALUES (0)";

fn ledger(server: &Server) -> Node {
    let connection = format!("host={} user=postgres", server.directory.display());
    let flags = ["--database", &connection, "--connections", "2"];
    Node::start_as("ledger", &flags).until_ready()
}

#[test]
fn response_states_whether_a_write_was_committed() {
    let mut databases = Databases::new();
    databases.primary.psql(TABLES).unwrap();
    let standby = databases.standby("a");
    let (writer, reader) = (ledger(&databases.primary), ledger(&standby));
    let entries =
        |server: &Server| server.psql("SELECT string_agg(id, ' ' ORDER BY id) FROM entries");

    assert_eq!(writer.post("/entry/w1", "").status, 200);
    assert_eq!(entries(&databases.primary).unwrap(), "w1");
    // The entry exists already, so this write failed.
    assert_eq!(writer.post("/entry/w1", "").status, 500);
    assert_eq!(
        writer
            .post(&format!("/entry/{}", "x".repeat(65)), "")
            .status,
        400
    );
    assert_eq!(writer.post("/beat/many", "").status, 400);
    assert_eq!(writer.post("/beat/7", "").status, 200);
    assert_eq!(writer.post("/beat/5", "").status, 200);
    assert_eq!(writer.get("/beat").body, 7);
    until("the standby shows it", || reader.get("/beat").body == 7);

    let refused = reader.post("/entry/w2", "");
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(entries(&databases.primary).unwrap(), "w1");
    assert_eq!(
        reader.metric("ledger_requests_failed_total{class=\"write\"}"),
        1.0
    );
    assert_eq!(
        writer.metric("ledger_request_duration_seconds_count{class=\"read\"}"),
        1.0
    );
    standby.psql("SELECT pg_promote()").unwrap();
    assert_eq!(reader.post("/entry/w2", "").status, 200);
    assert_eq!(entries(&standby).unwrap(), "w1 w2");

    databases.primary.kill();
    until("it notices", || !writer.is_ready());
    assert_eq!(writer.post("/entry/w3", "").status, 503);
    databases.primary.start();
    until("it is back", || writer.is_ready());
    assert_eq!(entries(&databases.primary).unwrap(), "w1");
    assert_eq!(writer.post("/entry/w3", "").status, 200);
}
