//! Jobs from a real PostgreSQL.

use crate::support::databases::*;
use crate::support::{Service, wait_for};

fn by_port(server: &PostgreSql) -> String {
    format!(
        "kind = \"postgresql\"\naddress = \"127.0.0.1:{}\"\nuser = \"plimsoll\"\npassword_file = PASSWORD",
        server.port
    )
}

const OWN: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plimsoll'";

#[test]
fn clients_at_work_are_jobs() {
    let (service, server) = (Service::start(), PostgreSql::start());
    let mut agent = unstarted(&service, &by_port(&server));
    agent.start_again();
    // Its own question is at work, too.
    wait_jobs(&agent, Some(0.0));
    let clients = server.busy(3);
    wait_jobs(&agent, Some(3.0));
    assert_eq!(agent.metric("plimsoll_jobs{service=\"stocks\"}"), Some(3.0));

    // By the socket, and without a password, in another database.
    let by_socket = format!(
        "kind = \"postgresql\"\naddress = \"unix://{}\"\nuser = \"plimsoll\"\ndatabase = \"template1\"",
        server.socket().display()
    );
    set_jobs(&agent, &by_socket);
    assert_eq!(agent.reload(), "applied");
    wait_for("the other login", || {
        let query = format!("{OWN} AND datname = 'template1'");
        (server.sql(&query).trim() == "1").then_some(())
    });
    wait_jobs(&agent, Some(3.0));
    server.end_busy();
    wait_jobs(&agent, Some(0.0));
    drop(clients);
    assert_eq!(server.sql(OWN).trim(), "1", "one connection is kept");
}

#[test]
fn a_server_that_is_killed_comes_back_by_itself() {
    let (service, mut server) = (Service::start(), PostgreSql::start());
    let mut agent = unstarted(&service, &by_port(&server));
    agent.start_again();
    wait_jobs(&agent, Some(0.0));
    server.kill();
    wait_jobs(&agent, None);
    assert!(failures(&agent) >= 1.0);
    wait_logged(&agent, "cannot connect: Connection refused");
    assert_serving(&agent);
    server.start_again();
    wait_jobs(&agent, Some(0.0));
    wait_logged(&agent, "jobs are known again");
}

#[test]
fn a_rejected_login_names_the_keys_to_check() {
    let (service, server) = (Service::start(), PostgreSql::start());
    let mut agent = unstarted(&service, &by_port(&server));
    std::fs::write(password_file(&agent), "wrong").unwrap();
    agent.start_again();
    wait_logged(
        &agent,
        "user \"plimsoll\" is rejected, see jobs.user and jobs.password_file: password authentication failed",
    );
    assert_serving(&agent);
    assert!(!agent.log().contains("wrong"), "{}", agent.log());
    std::fs::write(password_file(&agent), PASSWORD).unwrap();
    assert_eq!(agent.reload(), "applied");
    wait_jobs(&agent, Some(0.0));

    set_jobs(&agent, &(by_port(&server) + "\ndatabase = \"none\""));
    assert_eq!(agent.reload(), "applied");
    wait_logged(
        &agent,
        "see jobs.database: database \"none\" does not exist",
    );
    // It would count its own sessions only.
    server.sql("REVOKE pg_monitor FROM plimsoll");
    set_jobs(&agent, &by_port(&server));
    assert_eq!(agent.reload(), "applied");
    wait_logged(
        &agent,
        "cannot see others' sessions: GRANT pg_monitor TO \"plimsoll\"",
    );
    wait_jobs(&agent, None);
    server.sql("GRANT pg_read_all_stats TO plimsoll");
    wait_jobs(&agent, Some(0.0));
    assert_serving(&agent);
}
