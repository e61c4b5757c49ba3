//! `--check-config` and `--probe` of the real program, on ports and programs as they are.

use std::{net::TcpListener, process::Command};

use crate::support::{Agent, Service, free_port, mode, wait_for};

/// Whether it succeeded, what it printed, and what it said against it.
fn check(agent: &Agent, more: &[&str]) -> (bool, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["agent", "--check-config", "--config"])
        .arg(agent.config_path())
        .args(more)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

fn log_service(port: u16) -> String {
    format!(
        "[[service]]\nname = \"app\"\n[service.sla]\ndelay = \"500ms\"\n\
         [service.source]\nkind = \"haproxy-log\"\nlisten = \"udp://localhost:{port}\"\nnode = \"app/node1\"\n"
    )
}

fn make_state(agent: &Agent) {
    std::fs::create_dir(agent.config_path().with_file_name("state")).unwrap();
}

#[test]
fn what_is_fine_is_said_in_a_line_a_service() {
    let agent = Agent::new();
    let log_port = free_port();
    agent.configure("", &log_service(log_port));
    make_state(&agent);
    let (fine, said, against) = check(&agent, &[]);
    assert!(fine, "{against}");
    let (check_port, http_port) = (agent.check_port, agent.http_port);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[0],
        format!(
            "app: source: HAProxy's log of app/node1 at udp://127.0.0.1:{log_port}; SLA: 0.5 s for 95 %; \
             outputs: agent-check 127.0.0.1:{check_port}, HTTP 127.0.0.1:{http_port}"
        )
    );
    assert!(lines[1].ends_with("agent.toml: configuration is valid"));
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_state_directory_that_is_not_there_is_refused_with_the_way_to_make_it() {
    let agent = Agent::new();
    agent.configure("", &log_service(free_port()));
    let (fine, _, against) = check(&agent, &[]);
    let state = agent.config_path().with_file_name("state");
    let state = state.display();
    assert!(!fine);
    assert!(
        against.contains("agent.toml:4: agent.state_directory: "),
        "{against}"
    );
    assert!(
        against.contains(&format!("install -d -m 0750 -o plimsoll {state}")),
        "{against}"
    );
    std::fs::write(agent.config_path().with_file_name("state"), "").unwrap();
    let (fine, _, against) = check(&agent, &[]);
    assert!(!fine && against.contains("is not a directory"), "{against}");
}

#[test]
fn a_probe_tries_ports_and_sources_before_the_start_and_beside_the_running_agent() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    make_state(&agent);
    let (fine, said, against) = check(&agent, &["--probe"]);
    assert!(fine, "{said}{against}");
    let check_port = agent.check_port;
    let free = format!("ok    agent_check.listen 127.0.0.1:{check_port}: free\n");
    assert!(said.contains(&free), "{said}");
    let found = said
        .lines()
        .find(|line| line.starts_with("ok    stocks source: histogram work_seconds at http://"));
    assert!(
        found.is_some_and(|line| line.ends_with("/metrics: found")),
        "{said}"
    );

    agent.start_again();
    let (fine, said, against) = check(&agent, &["--probe"]);
    assert!(fine, "{said}{against}");
    let used = format!("agent_check.listen 127.0.0.1:{check_port}: in use, by the running agent\n");
    assert!(said.contains(&used), "{said}");
    // What it tried left the agent as it was.
    assert!(agent.node(&["status"]).unwrap().starts_with("stocks\n"));
}

#[test]
fn a_probe_advises_on_each_failure() {
    let service = Service::start();
    let agent = Agent::unstarted(&service, "");
    make_state(&agent);
    let _other = TcpListener::bind(("127.0.0.1", agent.check_port)).unwrap();
    let jobs = format!(
        "[service.jobs]\nkind = \"postgresql\"\naddress = \"localhost:{}\"\nuser = \"u\"\n",
        free_port()
    );
    let config = agent
        .config()
        .replace("\"work_seconds\"", "\"other_seconds\"");
    agent.write_config(&(config + &jobs));
    let (fine, said, against) = check(&agent, &["--probe"]);
    assert!(!fine);
    assert!(against.contains("3 of 4 probes failed"), "{said}{against}");
    for (start, hint) in [
        ("FAIL  agent_check.listen", "`ss -lnp`, run as root"),
        (
            "FAIL  stocks source: histogram other_seconds at http://",
            "write the name without _bucket",
        ),
        (
            "FAIL  stocks jobs: postgresql at localhost:",
            "is this user allowed to connect",
        ),
    ] {
        let line = said.lines().find(|line| line.starts_with(start));
        assert!(
            line.is_some_and(|line| line.contains(hint)),
            "{start}: {said}"
        );
    }
    drop(service);
    let (_, said, _) = check(&agent, &["--probe"]);
    assert!(
        said.contains("is the service running and listening there?"),
        "{said}"
    );
}

#[test]
fn localhost_is_an_address_everywhere() {
    let service = Service::start();
    let agent = Agent::unstarted(&service, "[envoy]\norca_listen = \"localhost:ORCA\"\n");
    let config = agent.config().replace("ORCA", &free_port().to_string());
    let mut agent = agent;
    std::fs::write(
        agent.config_path(),
        config.replace("127.0.0.1", "localhost"),
    )
    .unwrap();
    agent.start_again();
    wait_for("the probe of its health", || {
        (agent.service("stocks")["health"] == "up").then_some(())
    });
}

#[test]
fn what_was_learned_is_recalled_after_a_restart_and_what_is_broken_is_set_aside() {
    let mut agent = Agent::new();
    agent.configure("", &log_service(free_port()));
    make_state(&agent);
    let file = agent.config_path().with_file_name("state/learned.json");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let learned_at = now.unwrap().as_secs_f64() - 7300.0;
    let text = format!(
        r#"{{"version": 1, "services": {{
            "app": {{"learned_at": {learned_at}, "figures": {{"rate": 40.0, "unloaded": 0.02, "spread": 2.0, "mean_cost": 1.0}}}},
            "gone": {{"learned_at": {learned_at}, "figures": {{"rate": 4.0, "unloaded": 0.02, "spread": 2.0, "mean_cost": 1.0}}}},
            "old": {{"learned_at": 1000, "figures": {{"rate": 4.0, "unloaded": 0.02, "spread": 2.0, "mean_cost": 1.0}}}}}}}}"#
    );
    std::fs::write(&file, text).unwrap();
    agent.start_again();
    let app = wait_for("a step", || {
        let app = agent.service("app");
        app["capacity"].is_number().then_some(app)
    });
    assert_eq!(app["capacity"], app["decision"]["capacity"]);
    let learned = &app["learned"];
    assert_eq!(
        (&learned["rate"], &learned["earlier_run"]),
        (&40.0.into(), &true.into())
    );
    let age = learned["age_seconds"].as_f64().unwrap();
    assert!((7300.0..7330.0).contains(&age), "{age}");
    let status = agent.node(&["status"]).unwrap();
    assert!(
        status.contains(", learned 2 h ago, before the agent's start\n"),
        "{status}"
    );
    assert!(
        agent.log().contains("days old, limit 30"),
        "{}",
        agent.log()
    );
    agent.stop();
    // Nothing was learned anew: the file is as it was, with what a service that is gone may want again.
    assert!(std::fs::read_to_string(&file).unwrap().contains("gone"));

    std::fs::write(&file, "{").unwrap();
    agent.start_again();
    wait_for("a step", || {
        agent.service("app")["decision"].is_object().then_some(())
    });
    assert!(agent.service("app")["learned"].is_null());
    assert!(agent.service("app")["capacity"].is_null());
    assert!(file.with_file_name("learned.json.broken").exists());
    assert!(
        agent.log().contains("learned.json.broken"),
        "{}",
        agent.log()
    );
    assert_eq!(mode(&file.with_file_name("learned.json.broken")) & 0o111, 0);
}
