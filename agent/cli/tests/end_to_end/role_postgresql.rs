//! Role and lag of a real PostgreSQL and its standby.

use crate::support::databases::*;
use crate::support::{Agent, Service, wait_for};

fn table(server: &PostgreSql, more: &str) -> String {
    format!(
        "address = \"127.0.0.1:{}\"\nuser = \"plimsoll\"\npassword_file = PASSWORD\n\
         max_lag = \"2s\"\nwithout_primary = \"4s\"\n{more}",
        server.port
    )
}

/// Status of the agent's answers to a proxy's checks: for writes, for reads.
fn takes(agent: &Agent) -> (u16, u16) {
    let status = |what| agent.get(&format!("/v1/role?takes={what}")).unwrap().0;
    (status("writes"), status("reads"))
}

fn wait_takes(agent: &Agent, wanted: (u16, u16)) {
    wait_for(&format!("{wanted:?}: {}", agent.log()), || {
        (takes(agent) == wanted).then_some(())
    });
}

fn is(agent: &Agent, role: &str) -> bool {
    let series = format!("plimsoll_node_role{{role=\"{role}\",service=\"stocks\"}}");
    agent.metric(&series) == Some(1.0)
}

fn lag(agent: &Agent) -> f64 {
    let lag = agent.metric("plimsoll_replication_lag_seconds{service=\"stocks\"}");
    lag.unwrap_or(f64::INFINITY)
}

#[test]
fn a_standby_reads_while_it_is_fresh_and_writes_once_it_is_promoted() {
    let service = Service::start();
    let mut primary = PostgreSql::start();
    primary.sql("CREATE TABLE written (at timestamptz DEFAULT now())");
    let standby = primary.standby();
    let mut agent = unstarted_with(&service, "role", &table(&standby, ""));
    // A question may take as long as a period, which on a busy machine is not long.
    let config = agent.config();
    agent.write_config(&config.replace("period = \"100ms\"", "period = \"250ms\""));
    agent.start_again();
    wait_takes(&agent, (503, 200));
    assert!(is(&agent, "standby") && !is(&agent, "primary"));
    assert_eq!(agent.get("/v1/role").unwrap(), (503, "standby\n".into()));

    // Nothing is written for longer than the limit, and it is as fresh as before.
    let before = steps(&agent);
    wait_for("a longer time than the limit", || {
        assert_eq!(takes(&agent), (503, 200), "{}", agent.log());
        (steps(&agent) > before + 12.0).then_some(())
    });

    standby.sql("SELECT pg_wal_replay_pause()");
    primary.sql("INSERT INTO written DEFAULT VALUES");
    wait_for("a stale standby", || {
        let known = lag(&agent);
        // Proxies hear of it before it is behind by more than was promised.
        assert!(takes(&agent).1 == 503 || known < 2.0, "{known} s");
        (takes(&agent).1 == 503).then_some(())
    });
    wait_for("its agent check", || {
        agent.words().starts_with("down").then_some(())
    });
    wait_for("the lag as its reason", || {
        let told = agent.service("stocks")["health_detail"].to_string();
        told.starts_with("\"standby, lag ").then_some(())
    });
    assert_eq!(
        agent.metric("plimsoll_service_up{service=\"stocks\"}"),
        Some(0.0)
    );
    standby.sql("SELECT pg_wal_replay_resume()");
    wait_takes(&agent, (503, 200));
    assert_eq!(agent.words(), "up 50% maxconn:40");

    // Without a primary it goes on for longer, and not for ever.
    primary.kill();
    wait_for("a lag over the limit", || (lag(&agent) > 2.1).then_some(()));
    assert_eq!(takes(&agent), (503, 200), "{}", agent.log());
    wait_takes(&agent, (503, 503));

    assert_eq!(standby.sql("SELECT pg_promote()").trim(), "t");
    let before = steps(&agent);
    wait_for("two steps, of which one began later", || {
        (steps(&agent) >= before + 2.0).then_some(())
    });
    assert_eq!(takes(&agent), (200, 200), "{}", agent.log());
    assert!(is(&agent, "primary") && !is(&agent, "standby"));
    assert_eq!(lag(&agent), 0.0);
    assert_eq!(agent.words(), "up 50% maxconn:40");
}

#[test]
fn a_primary_takes_writes_while_it_answers_and_has_the_lock() {
    let (service, lock) = (Service::start(), Service::start());
    let mut server = PostgreSql::start();
    let url = format!("lock_url = \"http://127.0.0.1:{}/metrics\"", lock.port);
    let locked = table(&server, &url);
    let mut agent = unstarted_with(&service, "role", &locked);
    agent.start_again();
    wait_takes(&agent, (200, 200));

    // It was all there was until now, so it still answers reads for a while.
    drop(lock);
    wait_takes(&agent, (503, 200));
    wait_logged(
        &agent,
        "no writes: primary without the lock, http://127.0.0.1:",
    );
    set_table(&agent, "role", &table(&server, ""));
    assert_eq!(agent.reload(), "applied");
    wait_takes(&agent, (200, 200));

    // An operator's word comes first.
    agent.node(&["drain"]).unwrap();
    assert_eq!(takes(&agent), (503, 503));
    agent.node(&["ready"]).unwrap();
    assert_eq!(takes(&agent), (200, 200));

    server.kill();
    wait_takes(&agent, (503, 503));
    assert!(agent.count("plimsoll_source_failures_total{kind=\"role\",service=\"stocks\"}") > 0.0);
    server.start_again();
    wait_takes(&agent, (200, 200));

    std::fs::write(password_file(&agent), "wrong").unwrap();
    agent.stop();
    agent.start_again();
    wait_logged(
        &agent,
        "user \"plimsoll\" is rejected, see role.user and role.password_file: password authentication failed",
    );
    assert_eq!(takes(&agent), (503, 503));
    assert_eq!(agent.get("/v1/role").unwrap(), (503, "unknown\n".into()));
}

#[test]
fn a_standby_that_may_not_be_seen_takes_no_reads() {
    let service = Service::start();
    let primary = PostgreSql::start();
    primary.sql("REVOKE pg_monitor FROM plimsoll");
    let standby = primary.standby();
    let mut agent = unstarted_with(&service, "role", &table(&standby, ""));
    agent.start_again();
    wait_logged(
        &agent,
        "cannot see what the standby receives: GRANT pg_monitor TO \"plimsoll\"",
    );
    assert_eq!(takes(&agent), (503, 503));
    primary.sql("GRANT pg_monitor TO plimsoll");
    wait_takes(&agent, (503, 200));

    assert_eq!(agent.get("/v1/role?takes=all").unwrap().0, 400);
    assert_eq!(agent.get("/v1/role?service=bonds").unwrap().0, 404);
    set_table(
        &agent,
        "role",
        "address = \"x\"\nuser = \"u\"\nmax_lag = \"100ms\"",
    );
    assert_eq!(agent.reload(), "refused");
}
