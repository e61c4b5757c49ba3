//! A partition whose PostgreSQL wants TLS, and a certificate of its clients.

use std::{os::unix::fs::MetadataExt, path::Path, process::Command};

use serde_json::json;

use crate::support::certificates::Authority;
use crate::support::databases::{PASSWORD, PostgreSql};
use crate::support::lines::{self, QUERY, problem};
use crate::support::{Agent, Service, wait_for};

const TOKEN: &str = "0123456789abcdef";
const HBA: &str = "local all all trust\n\
    hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n";

/// A server that takes connections over TCP only so.
fn guarded(authority: &Authority) -> PostgreSql {
    let server = PostgreSql::start();
    let data = server.sql("SHOW data_directory");
    let data = Path::new(data.trim());
    let owner = std::fs::metadata(data).unwrap();
    for (name, file) in [
        ("server.crt", "server.pem"),
        ("server.key", "server.key"),
        ("root.crt", "ca.pem"),
    ] {
        // As the owner of the directory, and readable to nobody else.
        let copied = Command::new("install")
            .args(["-m", "600"])
            .args([
                "-o",
                &owner.uid().to_string(),
                "-g",
                &owner.gid().to_string(),
            ])
            .arg(authority.file(file))
            .arg(data.join(name))
            .status()
            .unwrap();
        assert!(copied.success());
    }
    std::fs::write(data.join("pg_hba.conf"), HBA).unwrap();
    for setting in ["ssl = on", "ssl_ca_file = 'root.crt'"] {
        server.sql(&format!("ALTER SYSTEM SET {setting}"));
    }
    server.sql("SELECT pg_reload_conf()");
    wait_for("TLS", || {
        (server.sql("SHOW ssl").trim() == "on").then_some(())
    });
    server
}

#[test]
fn queries_and_their_cancels_go_over_tls() {
    let (service, authority, stranger) = (Service::start(), Authority::new(), Authority::new());
    let server = guarded(&authority);
    let partition = format!(
        "[[partition]]\nname = \"p\"\naddress = \"127.0.0.1:{}\"\nuser = \"plimsoll\"\n\
         password_file = \"DIR/password\"\ndatabase = \"postgres\"\ntls = true\n\
         [partition.queries]\n\
         cipher = \"SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()\"\n\
         sleep = \"SELECT pg_sleep($1)\"\n",
        server.port
    );
    let mut agent = Agent::unstarted_guarded(&service, TOKEN, &partition);
    std::fs::write(agent.directory.path().join("password"), PASSWORD).unwrap();
    let config = agent.config();
    agent.write_config(&(config.clone() + &authority.client_table()));
    agent.start_again();
    let question = |query: &str, parameters| json!({"partition": "p", "query": query, "parameters": parameters, "deadline_seconds": 20});
    let ask = || {
        lines::ask(
            agent.http_port,
            QUERY,
            TOKEN,
            &question("cipher", json!([])),
        )
    };
    let (status, rows) = ask();
    assert_eq!((status, &rows[1]), (200, &json!(["TLSv1.3"])), "{rows:?}");
    let begun = lines::begin(
        agent.http_port,
        QUERY,
        TOKEN,
        &question("sleep", json!([600])),
    );
    let running = || server.queries("= 'active'");
    wait_for("the query runs", || (running() == "1").then_some(()));
    drop(begun);
    wait_for("it is cancelled", || (running() == "0").then_some(()));

    for (other, told) in [
        (config.replace("tls = true\n", ""), "no encryption"),
        (
            config.clone() + &stranger.client_table(),
            "invalid peer certificate",
        ),
        (
            config.clone() + "[tls]\n" + &authority.keys(&[("ca_file", "ca.pem")]),
            "valid client certificate",
        ),
    ] {
        agent.write_config(&other);
        assert_eq!(agent.reload(), "applied");
        let (status, lines) = ask();
        assert_eq!(status, 502, "{told}: {lines:?}");
        assert!(problem(&lines).contains(told), "{told}: {lines:?}");
    }
}
